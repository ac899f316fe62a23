"""Windows merged from grids of panes are those merged from rows, whatever panes, keys and values there are.

keys        1    2    3                  a window of 3 panes, moving by 2
pane 4    | x    .    x                  |
pane 8    | x    x    .                  |
pane 24   | .    x    x    a gap before     |       the slabs of its positions
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.operators import pane_aggregation
from cluster.fjord.operators.pane_aggregation import PaneAggregate, PaneGrid, WindowSubscriber, has_slabs
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, AggregateCall, Column, Schema
from protocols.wire.streams import FieldType
from tests.cluster.fjord.test_aggregates_of_extremes import LARGEST, calls
from tests.cluster.fjord.test_extreme_values import INTEGERS, REALS

KEYS = {
    "none": (),
    "one": (Column("k", FieldType.INTEGER),),
    "two": (Column("k", FieldType.INTEGER), Column("name", FieldType.TEXT)),
}
SLABS = ("count", "sum", "avg", "min", "max", "stddev", "variance", "first", "last")
PANE_US = 4


def numbers(kind: FieldType) -> tuple[AggregateCall, ...]:
    """The aggregates that slabs can merge."""
    return tuple(each for each in calls(kind) if each.function in SLABS and not each.distinct)


def panes(keys: Schema, kind: FieldType, drawn: Sequence[Sequence[Any]]) -> Batch:
    """Partial rows of tuples (start, group, k, name, value)."""
    schema = {START: pl.Int64, QUERY_GROUP.name: pl.Int64, "k": pl.Int64, "name": pl.String, "v": POLARS_TYPES[kind]}
    rows = pl.DataFrame(list(drawn), schema=schema, orient="row").sort(START, maintain_order=True)
    rows = rows.with_columns((pl.col(START) + 1).alias(END), pl.lit(7, pl.Int64).alias(VISIBLE_FROM.name))
    pane = (pl.col(START).floordiv(PANE_US) + 1) * PANE_US - 1
    # The stamps at which values are first or last are those of tuples.
    rows = rows.with_columns(pl.col(START).alias("stamp")).with_columns(pane.alias(START), (pane + 1).alias(END))
    by = (*(key.name for key in keys), QUERY_GROUP.name, VISIBLE_FROM.name)
    return PartialAggregate(by, of_stamps(numbers(kind))).transition(0, Batch(rows, ALWAYS))


def of_stamps(aggregates: Sequence[AggregateCall]) -> tuple[AggregateCall, ...]:
    """The same aggregates, in the order of the tuples' stamps."""
    order = {None: None, START: "stamp"}
    return tuple(
        AggregateCall(
            name=each.name, function=each.function, argument=each.argument, type=each.type, order=order[each.order]
        )
        for each in aggregates
    )


def answered(
    kind: FieldType, keys: Schema, windows: Sequence[WindowSubscriber], steps: Sequence[tuple[Batch, int]]
) -> pl.DataFrame:
    """All answers of some windows, given partial rows and the watermark behind them, in turn."""
    operator = PaneAggregate(keys, of_stamps(numbers(kind)), windows)
    found = [operator.transition(0, Batch(batch.rows, watermark_us)).rows for batch, watermark_us in steps]
    assert all(each[START].is_sorted() for each in found)
    return pl.concat(found)


def tuples(values: Sequence[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    starts = st.integers(0, 40) | st.integers(400, 410)
    keys = st.none() | st.integers(-1, 2), st.none() | st.sampled_from("ab")
    row = st.tuples(starts, st.sampled_from([1, 1, 1, 2]), *keys, st.none() | st.sampled_from(values))
    return st.lists(row, min_size=1, max_size=40)


subscribers = st.lists(
    st.builds(
        WindowSubscriber,
        st.sampled_from([1, 1, 2]),
        st.sampled_from([4, 8, 12, 40]),
        st.sampled_from([4, 8, 12]),
        st.just(7),
    ),
    min_size=1,
    max_size=4,
)


def same(one: pl.DataFrame, other: pl.DataFrame, values: Sequence[Any]) -> None:
    """Check that answers about some values are equal but for the last digits of sums: those of what was added."""
    scale = max((abs(float(each)) for each in values), default=0.0)
    assert one.columns == other.columns
    order = [name for name in one.columns if name not in {each.name for each in numbers(FieldType.REAL)}]
    one, other = one.sort(order), other.sort(order)
    assert_frame_equal(one.select(order), other.select(order))
    for name in one.columns:
        if name in order:
            continue
        rounded = scale if name in ("sum", "avg") and one[name].dtype == pl.Float64 else 0.0
        for found, expected in zip(one[name], other[name], strict=True):
            if found is None or expected is None:
                # Whether squares, or sums at the very end of the reals, stay finite depends on the order of additions.
                ends = name == "sum" and abs(found or expected or 0.0) > LARGEST * (1 - 1e-12)
                assert found is expected or ends or name in ("variance", "stddev"), name
            else:
                assert math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12 * rounded + 1e-280), name


@pytest.fixture(autouse=True)
def grids_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane_aggregation, "MANY_ROWS", 1)
    monkeypatch.setattr(pane_aggregation, "FEWEST_KEYS", 1)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (FieldType.INTEGER, (*INTEGERS, 1, 2, 3)),
        (FieldType.REAL, REALS),
        (FieldType.REAL, (-1.5, 0.0, 2.25, 1e6)),
    ],
    ids=["integers", "extreme reals", "reals"],
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_grids_merge_what_rows_merge(keys: Schema, kind: FieldType, values: Sequence[Any], data: Any) -> None:
    first, second = data.draw(tuples(values)), data.draw(tuples(values))
    windows = data.draw(subscribers)
    watermark_us = data.draw(st.sampled_from([ALWAYS, 0, 13, 24, 400]))
    # What comes behind a watermark is not stamped before it.
    second = [(each[0] + max(watermark_us, 0), *each[1:]) for each in second]
    steps = [(panes(keys, kind, first), watermark_us), (panes(keys, kind, second), NEVER)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaneGrid, "of", lambda *_: None)
        expected = answered(kind, keys, windows, steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pane_aggregation, "MOST_CELLS", data.draw(st.sampled_from([1, 1_000])))
        found = answered(kind, keys, windows, steps)
    same(found, expected, [each[-1] for each in (*first, *second) if each[-1] is not None])
    assert found.height == expected.height


def test_a_grid_has_a_row_for_each_pane_and_a_column_for_each_key() -> None:
    kind, keys = FieldType.INTEGER, KEYS["one"]
    columns = partial_columns(of_stamps(numbers(kind)))
    rows = panes(keys, kind, [(1, 1, 5, None, 10), (2, 1, 6, None, 1), (5, 1, 5, None, 2), (6, 1, 5, None, 3)]).rows
    grid = PaneGrid.of(rows, ["k"], columns)
    assert grid is not None
    found = grid.merged(columns, 8, 4, ALWAYS, NEVER)
    assert found is not None
    sums = [name for name in found.columns if "sum_integer" in name]
    assert found.select(START, "k", *sums).rows() == [(3, 5, 10), (3, 6, 1), (7, 5, 15), (7, 6, 1), (11, 5, 5)]


def test_partial_rows_of_one_pane_from_several_tasks_are_one() -> None:
    kind, keys = FieldType.INTEGER, KEYS["one"]
    columns = partial_columns(of_stamps(numbers(kind)))
    pieces = [panes(keys, kind, [(1, 1, 5, None, value), (2, 1, 6, None, 1)]).rows for value in (10, 7)]
    grid = PaneGrid.of(pl.concat(pieces), ["k"], columns)
    assert grid is not None
    found = grid.merged(columns, 4, 4, ALWAYS, NEVER)
    assert found is not None
    (total,) = (name for name in found.columns if "sum_integer" in name)
    assert found.select(START, "k", total).rows() == [(3, 5, 17), (3, 6, 2)]


def test_a_pane_without_values_adds_nothing_to_a_variance() -> None:
    kind, keys = FieldType.REAL, KEYS["one"]
    # Of key 5 the second pane has no row, and the third no value.
    drawn = [(1, 1, 5, None, 1e200), (5, 1, 6, None, 1.0), (9, 1, 5, None, None), (13, 1, 5, None, 1e200)]
    window = [WindowSubscriber(1, 16, 16, 7)]
    found = answered(kind, keys, window, [(panes(keys, kind, drawn), NEVER)])
    assert found.filter(k=5).select("count", "variance", "avg").rows() == [(2, 0.0, 1e200)]


def test_few_rows_and_grids_with_many_gaps_are_merged_as_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, keys = FieldType.INTEGER, KEYS["one"]
    columns = partial_columns(of_stamps(numbers(kind)))
    diagonal = panes(keys, kind, [(4 * number, 1, number, None, 1) for number in range(9)]).rows
    assert PaneGrid.of(diagonal, ["k"], columns) is None, "9 rows in 81 cells"
    monkeypatch.setattr(pane_aggregation, "MOST_CELLS", 9)
    grid = PaneGrid.of(diagonal, ["k"], columns)
    assert grid is not None
    assert grid.merged(columns, 8, 4, ALWAYS, NEVER) is not None
    monkeypatch.setattr(pane_aggregation, "MANY_ROWS", 100)
    assert grid.merged(columns, 8, 4, ALWAYS, NEVER) is None
    monkeypatch.setattr(pane_aggregation, "FEWEST_KEYS", 10)
    assert PaneGrid.of(diagonal, ["k"], columns) is None, "9 keys"


def test_positions_of_a_long_gap_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane_aggregation, "MANY_ROWS", 1)
    kind, keys = FieldType.INTEGER, KEYS["one"]
    columns = partial_columns(of_stamps(numbers(kind)))
    rows = panes(keys, kind, [(0, 1, 1, None, 1), (2**61, 1, 1, None, 1)]).rows
    grid = PaneGrid.of(rows, ["k"], columns)
    assert grid is not None
    assert grid.merged(columns, 8, 4, ALWAYS, NEVER) is None


def test_texts_and_lists_have_no_slabs() -> None:
    assert has_slabs(partial_columns(numbers(FieldType.REAL)))
    assert not has_slabs(partial_columns(calls(FieldType.REAL))), "distinct values are lists"
    longest = next(each for each in calls(FieldType.TEXT) if each.function == "max")
    assert not has_slabs(partial_columns((longest,)))
