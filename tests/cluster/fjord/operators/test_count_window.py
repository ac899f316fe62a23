"""Windows by count whose keys fall silent: cut at the watermark, so that nothing waits for them and nothing piles up.

a  |--------------)--------------)-----...      silent: cut whenever it lags by more than the bound
b  |--)--)--)--)--)--)--)--)--)--)--...         busy: goes on
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.dataflow import Dataflow, PushQueue
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.join import Join
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.running_kinds import add_behind
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators import Aggregate, Distinct, Filter, Node, PartitionedWindow, Source, Union
from cluster.operators import CountWindow as CountWindowNode
from cluster.operators import Join as JoinNode
from cluster.operators.columns import AggregateCall, Column
from cluster.physical.rules.pieces import MOST_LAG_US, awaited_windows
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.oracle.running import fragment_alone

TEXT, INTEGER, BOOLEAN = FieldType.TEXT, FieldType.INTEGER, FieldType.BOOLEAN
Row = tuple[Any, ...]
EMPTY = pl.DataFrame(schema={START: pl.Int64, END: pl.Int64, "k": pl.String, "n": pl.Int64})
COUNT = (AggregateCall("c", "count", None, INTEGER),)


def batch(watermark: int, *rows: tuple[int, str, int]) -> Batch:
    chronons = [(at, at + 1, key, number) for at, key, number in rows]
    return Batch(pl.DataFrame(chronons, schema=EMPTY.schema, orient="row"), watermark)


def silent_and_busy(last: int) -> list[Batch]:
    """One tuple of a, then one of b in every micro-batch of 10."""
    return [batch(1, (0, "a", 0)), *(batch(at + 10, (at, "b", at)) for at in range(10, last, 10))]


def kept(state: Any) -> int:
    return sum(table.height for name, table in state.items() if isinstance(table, pl.DataFrame) and name != "counts")


def test_a_silent_key_holds_back_neither_rows_nor_watermark() -> None:
    window = CountWindow(EMPTY, 2, 1, ("k",), lag_us=50)
    found: list[Row] = []
    for each in silent_and_busy(2_000):
        answer = window.transition(0, each)
        found += answer.rows.rows()
        assert each.watermark_us - answer.watermark_us <= 50, "the answer follows the input"
        assert kept(window.save()) <= 4, "two tuples of each key"
    assert {row for row in found if row[2] == "b"} >= {(at, at + 20, "b", at) for at in range(10, 1_900, 10)}
    assert len(found) <= 200 + 2 * 2_000 // 50 + 2, "a tuple that stays is cut once per bound"
    found += window.transition(0, Batch(EMPTY, NEVER)).rows.rows()
    for instant in range(0, 2_500, 7):
        busy = [at for at in range(10, 2_000, 10) if at <= instant][-2:]
        expected = Counter([("a", 0), *(("b", at) for at in busy)])
        assert Counter(row[2:] for row in found if row[0] <= instant < row[1]) == expected


def test_without_a_bound_a_silent_key_holds_back_the_watermark_but_no_row() -> None:
    window = CountWindow(EMPTY, 2, 1, ("k",), lag_us=None)
    found = [row for each in silent_and_busy(500) for row in window.transition(0, each).rows.rows()]
    assert found == [(at, at + 20, "b", at) for at in range(10, 480, 10)], "each once, as soon as its end is known"
    assert kept(window.save()) <= 4
    assert window.transition(0, batch(600)).watermark_us == 0


def test_all_tuples_of_a_key_are_cut_together() -> None:
    """Above, a key's answer is then cut once per bound, however many tuples it is made of."""
    window = CountWindow(EMPTY, 3, 1, ("k",), lag_us=5)
    window.transition(0, batch(3, (0, "a", 1), (1, "a", 2), (2, "a", 3)))
    assert window.transition(0, batch(5)).rows.height == 0
    first = window.transition(0, batch(6)).rows.rows()
    assert first == [(0, 6, "a", 1), (1, 6, "a", 2), (2, 6, "a", 3)], "the others lag less, but go along"
    assert window.transition(0, batch(11)).rows.height == 0
    assert window.transition(0, batch(12)).rows.rows() == [(6, 12, "a", number) for number in (1, 2, 3)]


def test_what_is_pushed_out_where_it_was_cut_leaves_nothing_behind() -> None:
    window = CountWindow(EMPTY, 1, 1, lag_us=0)
    assert window.transition(0, batch(7, (0, "a", 1))).rows.rows() == [(0, 7, "a", 1)]
    after = window.transition(0, batch(8, (7, "a", 2)))
    assert after.rows.rows() == [(7, 8, "a", 2)]
    assert after.watermark_us == 8


def test_a_silent_stream_does_not_stall_a_join() -> None:
    window = CountWindow(EMPTY, 1, 1, lag_us=50)
    right = EMPTY.rename({"k": "k2", "n": "n2"})
    join = Join(EMPTY, right, None)
    join.transition(0, window.transition(0, batch(1, (0, "a", 0))))
    pairs = 0
    for at in range(10, 2_000, 10):
        left = join.transition(0, window.transition(0, batch(at)))
        rows = pl.DataFrame([(at, at + 1, "x", at)], schema=right.schema, orient="row")
        answer = join.transition(1, Batch(rows, at + 1))
        pairs += left.rows.height + answer.rows.height
        assert at - answer.watermark_us <= 60
        assert kept(join.save()) <= 8, "neither side piles up"
    assert pairs >= 190


def test_aggregates_above_go_on_and_stay_right() -> None:
    window = CountWindow(EMPTY, 2, 1, ("k",), lag_us=50)
    partial, merge = PartialAggregate(("k",), COUNT), MergeAggregate((Column("k", TEXT),), COUNT)
    found: list[Row] = []
    for each in [*silent_and_busy(2_000), batch(NEVER)]:
        answer = merge.transition(0, partial.transition(0, window.transition(0, each)))
        found += answer.rows.rows()
        if each.watermark_us < NEVER:
            assert each.watermark_us - answer.watermark_us <= 110, "a piece, and what the window lags"
            assert kept(merge.save()) <= 4
    for instant in range(30, 2_500, 7):
        assert sorted(row[2:] for row in found if row[0] <= instant < row[1]) == [("a", 1), ("b", 2)]
    assert sum(row[2] == "a" for row in found) <= 2_000 // 50 + 2, "a silent key is answered once per bound"


def test_a_cut_survives_a_restart() -> None:
    window = CountWindow(EMPTY, 1, 1, ("k",), lag_us=0)
    window.transition(0, batch(5, (0, "a", 1)))
    again = CountWindow(EMPTY, 1, 1, ("k",), lag_us=0)
    again.restore(unpack_state(pack_state(window.save())))
    assert again.transition(0, batch(9)).rows.rows() == [(5, 9, "a", 1)]


@pytest.mark.parametrize("lag_us", [None, 0])
def test_a_state_of_before_there_were_cuts_is_taken_up(lag_us: int | None) -> None:
    waiting = batch(0, (0, "a", 1), (3, "b", 2)).rows.with_columns(fjord_number=pl.Series([1, 2]))
    counts = pl.DataFrame({"k": ["a", "b"], "fjord_count": [1, 2]})
    held = batch(0, (2, "b", 1)).rows
    state = {"waiting": waiting, "counts": counts, "held": held, "output_watermark_us": 0}
    window = CountWindow(EMPTY, 1, 1, ("k",), lag_us=lag_us)
    window.restore(unpack_state(pack_state(state)))
    answers = [window.transition(0, each) for each in (batch(6), batch(9, (7, "a", 3)), batch(NEVER))]
    assert answers[0].watermark_us == (0 if lag_us is None else 6)
    found = [row for answer in answers for row in answer.rows.rows()]
    for at in range(20):
        expected = [("a", 1) if at < 7 else ("a", 3), *([("b", 1)] if at == 2 else [("b", 2)] if at > 2 else [])]
        assert sorted(row[2:] for row in found if row[0] <= at < row[1]) == expected, at


STREAM = Source("s", (Column("k", TEXT), Column("n", INTEGER)))
WINDOW = PartitionedWindow(STREAM, ("k",), 2)
POSITIVE = read_scalar('"n" > 0', BOOLEAN)


@pytest.mark.parametrize(
    ("node", "awaited"),
    [
        (WINDOW, False),
        (Filter(WINDOW, POSITIVE), False),
        (Distinct(WINDOW), True),
        (Aggregate(Filter(WINDOW, POSITIVE), ("k",), COUNT), True),
        (JoinNode(WINDOW, Source("other", (Column("x", INTEGER),)), None), True),
        (Union(WINDOW, Filter(WINDOW, POSITIVE)), True),
        (CountWindowNode(STREAM, 2), False),
    ],
)  # fmt: skip
def test_only_what_something_waits_for_is_cut(node: Node, awaited: bool) -> None:
    windows = [node]
    while not isinstance(windows[-1], PartitionedWindow | CountWindowNode):
        windows.append(windows[-1].inputs[0])
    assert awaited_windows(node) == ({windows[-1]} if awaited else set())


@pytest.mark.parametrize("node", [WINDOW, Aggregate(WINDOW, ("k",), COUNT)])
def test_a_plan_cuts_after_a_second_where_something_waits(node: Node) -> None:
    fragment = fragment_alone(node)
    (exchange,) = fragment.exchanges
    arrival, dataflow = PushQueue(), Dataflow()
    outlet = dataflow.outlet(add_behind(dataflow, fragment, {exchange.id: arrival}))
    found = []
    for watermark in (1, MOST_LAG_US, MOST_LAG_US + 1, MOST_LAG_US + 2):
        arrival.put(batch(watermark, *([(0, "a", 1)] if watermark == 1 else [])))
        dataflow.run()
        while (answer := outlet.get()) is not None:
            found += answer.rows.rows()
    assert not dataflow.failures
    assert found == ([] if node is WINDOW else [(0, MOST_LAG_US + 1, "a", 1)])


def test_the_bound_is_a_second() -> None:
    assert MOST_LAG_US == 1_000_000
