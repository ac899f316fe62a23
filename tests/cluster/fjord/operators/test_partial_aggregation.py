"""The first half of an aggregate, in pieces: the same partial rows as of the whole batch, from little memory at a time.

starts    0 0 0 1 1 2 2 2 2 2 3        cut only between two starts, so that a pane stays whole
pieces    |----|---|---------|-|
"""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from cluster.expressions.nodes import Column
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operators import partial_aggregation
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.operators.columns import AggregateCall, Scalar
from protocols.wire.streams import FieldType

INTEGER = FieldType.INTEGER
CALLS = (
    AggregateCall("n", "count", None, INTEGER),
    AggregateCall("total", "sum", Scalar(Column("x"), INTEGER), INTEGER),
)


@pytest.fixture(params=[1, 2, 3, 1_000])
def rows_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_aggregation, "ROWS_AT_ONCE", request.param)
    monkeypatch.setattr(partial_aggregation, "ROWS_OF_A_START", request.param)


keys = st.none() | st.integers(0, 2)
rows = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 2), keys, keys, st.integers(-9, 9)), max_size=30)


@pytest.mark.usefixtures("rows_at_once")
@given(rows=rows, alike=st.booleans())
def test_partial_rows_are_those_of_the_whole_batch(rows: list[tuple[int | None, ...]], *, alike: bool) -> None:
    schema = dict.fromkeys([START, END, "a", "b", "x"], pl.Int64)
    batch = pl.DataFrame(rows, schema=schema, orient="row").sort(START, maintain_order=True)
    length, first = (pl.lit(1), pl.lit(1)) if alike else (pl.col(END), pl.col("a"))
    batch = batch.with_columns((pl.col(START) + length).alias(END), first.cast(pl.Int64).alias("a"))
    emitted = PartialAggregate(("a", "b"), CALLS).transition(0, Batch(batch, 9))
    by = [START, END, "a", "b"]
    expected = batch.group_by(by, maintain_order=True).agg(pl.len().cast(pl.Int64), pl.col("x").sum())
    assert emitted.rows.columns[:4] == by
    counts, totals = (next(name for name in emitted.rows.columns if part in name) for part in ("count(*)", "sum"))
    found = emitted.rows.select(*by, pl.col(counts).alias("len"), pl.col(totals).alias("x"))
    assert_frame_equal(found, expected)
    assert emitted.watermark_us == 9


def test_rows_are_grouped_only_by_keys_that_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pl.DataFrame({START: [0, 0, 1], END: [1, 1, 2], "group": [7, 7, 7], "k": [1, 2, 1], "x": [1, 2, 3]})
    grouped: list[list[str]] = []
    group_by = pl.DataFrame.group_by

    def recorded(self: pl.DataFrame, by: list[str], *, maintain_order: bool) -> object:
        grouped.append(by)
        return group_by(self, by, maintain_order=maintain_order)

    monkeypatch.setattr(pl.DataFrame, "group_by", recorded)
    emitted = PartialAggregate(("group", "k"), CALLS).transition(0, Batch(batch, 9))
    assert grouped == [[START, "k"]]
    assert emitted.rows["group"].to_list() == [7, 7, 7]
    assert emitted.rows[END].to_list() == [1, 1, 2]
    grouped.clear()
    monkeypatch.setattr(partial_aggregation, "ROWS_OF_A_START", 1)
    start_by_start = PartialAggregate(("group", "k"), CALLS).transition(0, Batch(batch, 9))
    assert grouped == [["k"], ["k"]], "of a start with many rows, only by what varies there"
    assert_frame_equal(start_by_start.rows, emitted.rows)
