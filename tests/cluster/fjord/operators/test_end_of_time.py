"""Durations that add up to more than 64 bits hold: what would last beyond the last instant lasts for ever."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.batch import END, INTERVAL, NEVER, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.session_window import SessionWindow
from cluster.fjord.operators.time_window import Granularity, GridWindow, TimeWindow
from cluster.fjord.operators.until_next import UntilNext
from cluster.operators import Distinct, Source
from cluster.operators import Granularity as Granules
from cluster.operators import TimeWindow as Window
from cluster.operators.columns import Column
from cluster.operators.window_shapes import LONGEST_WINDOW_US, Grid, Session, Span
from cluster.plan.rewrite import rewrite
from cluster.testing import EOF, QueryRun, ScriptedSource
from protocols.wire.streams import FieldType

LONGEST = 2**60
"""The longest duration that can be written."""
SIZES = st.one_of(st.integers(1, LONGEST_WINDOW_US), st.integers(1, 2**66), st.sampled_from([2**61, 2**62, 2**63]))
SLIDES = st.one_of(st.just(1), st.integers(1, LONGEST), st.just(LONGEST))
ROWS = st.lists(
    st.tuples(st.integers(-(2**61), NEVER - 1), st.integers(1, 2**61)).map(lambda row: (row[0], sum(row))), max_size=5
)


def of(operator: Operator, rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    frame = pl.DataFrame(sorted(rows), schema=INTERVAL, orient="row")
    return sorted(operator.transition(0, Batch(frame, NEVER)).rows.select(START, END).rows())


def ceiling(instant: int, step: int) -> int:
    return -(-instant // step) * step


@given(ROWS, SIZES, SLIDES)
def test_a_window_of_any_size_is_by_definition(rows: list[tuple[int, int]], size: int, slide: int) -> None:
    rows = [(start, min(end, NEVER)) for start, end in rows]
    expected = []
    for start, end in rows:
        begins = ceiling(start + 1, slide) - 1
        ends = NEVER if end == NEVER else min(ceiling(end + size, slide) - 1, NEVER)
        expected += [(begins, ends)] if begins < ends else []
    assert of(TimeWindow(size, slide), rows) == sorted(expected)


@pytest.mark.parametrize("operator", [
    TimeWindow(LONGEST, LONGEST), Granularity(LONGEST - 3),
    GridWindow(Grid(Span("us", LONGEST), 7, size=Span("us", LONGEST)), 1),
])  # fmt: skip
def test_no_row_ends_after_the_end_of_time(operator: Operator) -> None:
    assert [end for _, end in of(operator, [(5, NEVER - 9), (6, NEVER)])] == [NEVER, NEVER]


def test_sessions_and_tuples_that_hold_close_at_the_end_of_time() -> None:
    late = [(NEVER - 9, NEVER - 8)]
    columns = pl.DataFrame(schema=INTERVAL)
    assert of(SessionWindow(columns, (), Session(LONGEST, LONGEST, early=True)), late) == [(NEVER - 9, NEVER)]
    assert of(UntilNext(columns, (), LONGEST), late) == [(NEVER - 9, NEVER)]


def nested(count: int, window: str) -> str:
    table = "e"
    for _ in range(count):
        table = f"(SELECT DISTINCT i FROM {table} {window}) AS e"
    return f"SELECT DISTINCT i FROM {table}"


def answers(sql: str) -> list[tuple[int, int | None, int]]:
    source = ScriptedSource({"i": int}, [(5, {"i": 1}), (7, {"i": 2}), EOF()], batch_size=9)
    return sorted((each.start, each.end, each.row["i"]) for each in QueryRun(sql, {"e": source}, buckets=1).run())


@pytest.mark.parametrize("count", [4, 7, 8, 9, 10, 20])
def test_nested_windows_last_for_ever_together(count: int) -> None:
    assert answers(nested(count, f"WINDOW(RANGE {LONGEST} US)")) == [(5, None, 1), (7, None, 2)]
    sliding = nested(count, f"WINDOW(RANGE {LONGEST} US SLIDE {LONGEST} US)")
    assert answers(sliding) == [(LONGEST - 1, None, 1), (LONGEST - 1, None, 2)]


def test_aggregates_and_joins_see_what_lasts_for_ever() -> None:
    table = nested(4, f"WINDOW(RANGE {LONGEST} US)")
    assert answers(f"SELECT MAX(i) AS i FROM ({table}) AS t") == [(5, 7, 1), (7, None, 2)]
    joined = f"SELECT t.i FROM ({table}) AS t LEFT JOIN e WINDOW(RANGE 10 US) ON e.i = t.i WHERE e.i IS NULL"
    assert answers(joined) == [(15, None, 1), (17, None, 2)]


def test_rules_keep_sizes_within_64_bits() -> None:
    node = Source("e", (Column("i", FieldType.INTEGER),))
    windows, granules = Distinct(node), Granules(node, 2**59 - 1)
    for number in range(30):
        windows = Distinct(Window(windows.input, LONGEST))
        granules = Granules(granules, 2**59 + number)
    assert "9223372036854775808" not in repr(rewrite(windows).node)
    sizes = [each for each in walk(rewrite(windows).node) if isinstance(each, Window)]
    assert [each.size_us for each in sizes] == [LONGEST_WINDOW_US]
    assert all(each.granule_us < NEVER for each in walk(rewrite(granules).node) if isinstance(each, Granules))


def walk(node: object) -> list[object]:
    found = [node]
    while (node := getattr(node, "input", None)) is not None:
        found.append(node)
    return found
