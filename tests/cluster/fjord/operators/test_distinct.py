"""Distinct over rows that come in another order than they begin: it remembers where a tuple is covered, not how far.

count 1    b    |-------------)              ends first, so comes first
           a  |------------------------)     begins before it
distinct      |-|-------------|--------)
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import polars as pl
import pytest

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operators.set_operations import Distinct
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.comparison import difference_of_rows, snapshots_of
from tests.cluster.oracle.definition import Streams, evaluate
from tests.cluster.oracle.running import all_at_once, deliveries, one_by_one, run_plan, tuple_by_tuple

CATALOG = Catalog.of([StreamSchema("t", (Field("k", FieldType.TEXT),))])
STREAMS: Streams = {"t": [(10, ("a",)), (20, ("b",)), (30, ("b",)), (40, ("c",)), (60, ("c",))]}
COUNTS = "COUNT(*) AS n FROM t WINDOW(RANGE 100 US)"
EMPTY = pl.DataFrame(schema={START: pl.Int64, END: pl.Int64, "v": pl.String})


def rows(*intervals: tuple[int, int, str | None]) -> pl.DataFrame:
    return pl.DataFrame(intervals, schema=EMPTY.schema, orient="row")


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT DISTINCT {COUNTS} GROUP BY k",
        f"SELECT {COUNTS} GROUP BY k EXCEPT SELECT {COUNTS} WHERE k = 'c' GROUP BY k",
        f"SELECT {COUNTS} GROUP BY k UNION SELECT {COUNTS}",
    ],
)  # fmt: skip
def test_the_rows_of_groups_are_the_same_however_the_stream_is_cut(text: str) -> None:
    plan = rewrite(translate(text, CATALOG).node).node
    whole = snapshots_of(run_plan(plan, all_at_once(STREAMS)), 200)
    assert any(whole)
    cuts = [one_by_one(STREAMS), *(tuple_by_tuple(STREAMS, random.Random(seed)) for seed in range(4))]
    for batches in [*cuts, *(deliveries(STREAMS, random.Random(seed)) for seed in range(8))]:
        assert snapshots_of(run_plan(plan, batches), 200) == whole


def test_what_lies_before_and_between_what_is_covered_is_emitted() -> None:
    distinct = Distinct(EMPTY)
    assert distinct.transition(0, Batch(rows((10, 20, "x"), (30, 40, "x")), 0)).rows.height == 2
    found = distinct.transition(0, Batch(rows((5, 50, "x"), (5, 8, None)), 0)).rows.rows()
    assert found == [(5, 10, "x"), (5, 8, None), (20, 30, "x"), (40, 50, "x")]
    assert distinct.transition(0, Batch(rows((6, 50, "x"), (7, 8, None)), 0)).rows.height == 0


def test_no_row_is_longer_than_those_it_is_made_of() -> None:
    """What is valid at instants only is counted by windows above: (15, 17) would be one tuple of two instants."""
    instants = rows((15, 16, "x"), (16, 17, "x"), (16, 17, "x"))
    assert Distinct(EMPTY).transition(0, Batch(instants, ALWAYS)).rows.rows() == [(15, 16, "x"), (16, 17, "x")]
    lasting = rows((10, 20, "x"), (15, 30, "x"), (30, 40, "x"))
    expected = [(10, 20, "x"), (20, 30, "x"), (30, 40, "x")]
    assert Distinct(EMPTY).transition(0, Batch(lasting, ALWAYS)).rows.rows() == expected


@pytest.mark.parametrize("inner", [
    "SELECT DISTINCT k FROM t", "SELECT k FROM t EXCEPT SELECT k FROM t WHERE k = 'c'",
    "SELECT k FROM t EXCEPT ALL SELECT k FROM t WHERE k = 'c'", "SELECT k FROM t INTERSECT SELECT k FROM t",
    "SELECT k FROM t INTERSECT ALL SELECT k FROM t", "SELECT k FROM t UNION SELECT k FROM t",
    "SELECT k FROM t GROUP BY k", "SELECT k FROM t WHERE k IN (SELECT k FROM t WINDOW(RANGE 9 US))",
])  # fmt: skip
@pytest.mark.parametrize(
    "outer", ["SELECT COUNT(*) AS n FROM ({}) AS x WINDOW(RANGE 3 US)", "SELECT k FROM ({}) AS x WINDOW(ROWS 2)"]
)
def test_windows_above_count_every_instant(inner: str, outer: str) -> None:
    plan = rewrite(translate(outer.format(inner), CATALOG).node).node
    streams: Streams = {"t": [(6, ("a",)), (15, ("b",)), (16, ("b",)), (17, ("b",)), (18, ("a",))]}
    expected = evaluate(plan, [streams], 30).snapshots[0]
    for batches in (all_at_once(streams), one_by_one(streams)):
        assert difference_of_rows(run_plan(plan, batches), expected) is None


def test_a_new_tuple_is_emitted_at_once() -> None:
    assert Distinct(EMPTY).transition(0, Batch(rows((10, 20, "x")), ALWAYS)).rows.rows() == [(10, 20, "x")]


def test_what_the_watermark_has_passed_is_forgotten() -> None:
    distinct = Distinct(EMPTY)
    for at in range(0, 1_000, 10):
        distinct.transition(0, Batch(rows((at, at + 15, "x"), (at, at + 5, f"{at}")), at))
        state = distinct.save()["intervals"]
        assert isinstance(state, pl.DataFrame)
        assert state.height <= 3, "one interval of x, those of the last two others"


def test_a_state_that_knew_only_how_far_a_tuple_is_covered_is_taken_up() -> None:
    covered = pl.DataFrame({"v": ["x"], "fjord_covered": [20]})
    distinct = Distinct(EMPTY)
    state: Any = {"covered": covered, "held": rows((12, 20, "x")), "output_watermark_us": 10}
    distinct.restore(unpack_state(pack_state(state)))
    found = [*distinct.transition(0, Batch(rows((15, 25, "x")), 15)).rows.rows()]
    found += distinct.transition(0, Batch(EMPTY, NEVER)).rows.rows()
    assert Counter(found) == Counter([(12, 20, "x"), (20, 25, "x")])
