"""Aggregates over the ends of the reals and integers: no result depends on how the tuples are cut into batches."""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.partial_columns import SCALE
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators.columns import AggregateCall
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.aggregate_rows import AGGREGATE_ROWS
from tests.cluster.fjord.scalar_definition import wrapped
from tests.cluster.fjord.test_extreme_values import INTEGERS, REALS, is_settled

LARGEST = sys.float_info.max
Cut = list[list[Any]]

TINY = [1e-300, -1e-300, 2.5e-308, 5e-324, 1e-289, -3e-310]
"""Scaled down for the sake of the largest, these would lose digits."""
VALUES = st.one_of(
    st.lists(st.none() | st.sampled_from([*REALS, LARGEST, -LARGEST, *TINY]), min_size=1, max_size=7),
    st.lists(st.none() | st.sampled_from(TINY), min_size=1, max_size=7),
)


def calls(kind: FieldType) -> tuple[AggregateCall, ...]:
    """Every aggregate of a column of a type, and of an expression over it."""
    argument = read_scalar('"v"', kind)
    functions = ["count", "sum", "min", "max", *AGGREGATE_ROWS, "quantile", "first", "last",
                 "percentile_disc", "mode", "arg_min", "arg_max"]  # fmt: skip
    once_each = {"count", "sum", "min", "max", *(name for name, row in AGGREGATE_ROWS.items() if row.distinct)}
    results = {
        "count": FieldType.INTEGER,
        **dict.fromkeys(("sum", "min", "max", "first", "last", "percentile_disc", "mode", "arg_min", "arg_max"), kind),
    }
    found = [
        AggregateCall(
            name=f"{function}{' distinct' if distinct else ''}",
            function=function,
            argument=argument,
            type=results.get(function, FieldType.REAL),
            distinct=distinct,
            parameter=0.3 if function in ("quantile", "percentile_disc") else None,
            order=START if function in ("first", "last") else None,
            by=argument if function in ("arg_min", "arg_max") else msgspec.UNSET,
        )
        for function in functions
        for distinct in ((False, True) if function in once_each else (False,))
    ]
    return tuple(found)


def aggregated(kind: FieldType, batches: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What all aggregates are of values that come in some batches."""
    partial, merge = PartialAggregate((), calls(kind)), MergeAggregate((), calls(kind))
    rows: list[pl.DataFrame] = []
    for number, batch in enumerate(batches):
        schema = {START: pl.Int64, END: pl.Int64, "v": POLARS_TYPES[kind]}
        frame = pl.DataFrame([(0, 10, value) for value in batch], schema=schema, orient="row")
        watermark_us = NEVER if number == len(batches) - 1 else -1
        rows.append(merge.transition(0, partial.transition(0, Batch(frame, watermark_us))).rows)
    return pl.concat(rows).drop(START, END).row(0, named=True)


@st.composite
def cuts(draw: Any, values: st.SearchStrategy[list[Any]]) -> tuple[Cut, Cut]:
    """The same values in two orders, cut into batches in two ways."""
    drawn = draw(values)

    def cut(order: list[Any]) -> Cut:
        at = sorted(draw(st.sets(st.integers(1, len(order)), max_size=4)))
        pieces = [order[begin:end] for begin, end in zip([0, *at], [*at, len(order)], strict=True)]
        return [piece for piece in pieces if piece]

    return cut(drawn), cut(draw(st.permutations(drawn)))


def close(one: float | None, other: float | None, scale: float) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12 * scale + 5e-323)


@settings(max_examples=150, deadline=None)
@given(cuts(VALUES))
def test_aggregates_of_extreme_reals_do_not_depend_on_cuts(cut: tuple[Cut, Cut]) -> None:
    one, other = (aggregated(FieldType.REAL, each) for each in cut)
    values = [value for batch in cut[0] for value in batch if value is not None]
    scale = max(map(abs, values), default=0.0)
    assert all(map(is_settled, (*one.values(), *other.values())))
    total = sum(map(Fraction, values))
    # The last digit of a sum depends on the order of additions; there, that digit decides whether it is in range.
    at_the_edge = abs(abs(total) / Fraction(LARGEST) - 1) <= Fraction(1, 10**9)
    uncertain = {"sum"} if at_the_edge else set()
    assert {name for name, value in one.items() if value is None} - uncertain == {
        name for name, value in other.items() if value is None
    } - uncertain
    for name, value in one.items():
        assert close(value, other[name], scale) or name in {"variance", "stddev", *uncertain}, name
    if not values:
        assert one == {**dict.fromkeys(one), "count": 0, "count distinct": 0}
        return
    assert one["count distinct"] == len(set(values))
    assert (one["min"], one["max"]) == (min(values), max(values))
    if not at_the_edge:
        assert close(one["sum"], None if abs(total) > LARGEST else float(total), scale)
    assert close(one["avg"], float(total / len(values)), scale)
    assert close(one["avg distinct"], float(sum(map(Fraction, set(values))) / len(set(values))), scale)
    middle = [Fraction(value) for value in values]
    assert close(one["median"], float(statistics.median(middle)), scale)
    assert min(values) <= one["quantile"] <= max(values)
    assert one["percentile_disc"] == sorted(values)[max(math.ceil(Fraction("0.3") * len(values)), 1) - 1]
    assert (one["arg_min"], one["arg_max"]) == (min(values), max(values))
    assert one["mode"] == min(statistics.multimode(values))


@pytest.mark.parametrize("values", [(-1e308, -LARGEST, 1e308), (LARGEST, 1.0, 2.0, -1.0), (0.1, 0.2, 0.3, 1e16, -1e16)])
def test_a_sum_of_different_reals_does_not_depend_on_their_order_to_the_last_bit(values: tuple[float, ...]) -> None:
    sums = [aggregated(FieldType.REAL, [list(each)]) for each in itertools.permutations(values)]
    assert len({each["sum distinct"] for each in sums}) == len({each["avg distinct"] for each in sums}) == 1


@settings(max_examples=150, deadline=None)
@given(cuts(st.lists(st.none() | st.sampled_from([*INTEGERS, 2**62 + 1, -(2**62)]), min_size=1, max_size=6)))
def test_aggregates_of_extreme_integers_do_not_depend_on_cuts(cut: tuple[Cut, Cut]) -> None:
    one, other = (aggregated(FieldType.INTEGER, each) for each in cut)
    values = [value for batch in cut[0] for value in batch if value is not None]
    assert [name for name in one if not close(one[name], other[name], 2.0**63)] == []
    if values:
        assert one["sum"] == other["sum"] == wrapped(sum(values))
        assert one["sum distinct"] == other["sum distinct"] == wrapped(sum(set(values)))
        assert one["avg"] == other["avg"] == sum(values) / len(values)  # rounded once, as Python divides integers
        assert one["avg distinct"] == other["avg distinct"] == sum(set(values)) / len(set(values))


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[1e308, 1e308, -1e308]], {"sum": 1e308, "avg": 1e308 / 3}),
        ([[1e308, 1e308], [-1e308]], {"sum": 1e308, "avg": 1e308 / 3}),
        ([[1e308], [1e308]], {"sum": None, "avg": 1e308, "variance": 0.0, "median": 1e308}),
        ([[LARGEST, -LARGEST]], {"sum": 0.0, "avg": 0.0, "variance": None, "median": 0.0, "quantile": -0.4 * LARGEST}),
        ([[1e200], [1e200, None], [None]], {"variance": 0.0, "stddev": 0.0}),
        ([[1e308, 1e308]], {"variance": 0.0, "avg": 1e308}),
        ([[2.0, 4.0, None], [9.0]], {"variance": 13.0}),
        ([[LARGEST] * 3], {"avg": LARGEST, "sum": None, "sum distinct": LARGEST, "avg distinct": LARGEST}),
        ([[-5e-324], [0.0]], {"median": 0.0, "avg": 0.0}),
        ([[1e-300]], {"sum": 1e-300, "avg": 1e-300, "sum distinct": 1e-300, "avg distinct": 1e-300}),
        ([[2.5e-308], [2.5e-308]], {"sum": 5e-308, "avg": 2.5e-308, "sum distinct": 2.5e-308}),
        ([[5e-324, None], [5e-324], [5e-324]], {"sum": 1.5e-323, "avg": 5e-324, "avg distinct": 5e-324}),
    ],
)
def test_what_leaves_the_reals_on_the_way(batches: list[list[Any]], expected: dict[str, float | None]) -> None:
    found = aggregated(FieldType.REAL, batches)
    for name, value in expected.items():
        assert (found[name] is None) == (value is None), name
        assert value is None or math.isclose(found[name], value, rel_tol=1e-15, abs_tol=5e-324), (name, found[name])
        assert is_settled(found[name])


def test_the_argument_of_an_aggregate_is_null_where_a_row_is() -> None:
    argument = read_scalar('"v" * 10', FieldType.REAL)
    counted = AggregateCall("n", "count", argument, FieldType.INTEGER)
    least = AggregateCall("m", "max", argument, FieldType.REAL)
    partial, merge = PartialAggregate((), (counted, least)), MergeAggregate((), (counted, least))
    rows = pl.DataFrame({START: [0, 0, 0], END: [1, 1, 1], "v": [1e308, -0.0, 2.0]})
    answer = merge.transition(0, partial.transition(0, Batch(rows, NEVER))).rows
    assert answer.select("n", "m").rows() == [(2, 20.0)]


def test_a_mean_of_integers_is_that_of_their_exact_sum() -> None:
    for values, expected in [
        ([4611686018427387905, -4611686018427387904], 0.5),
        ([2**63 - 1] * 3, float(2**63 - 1)),
        ([2**62, 2**62, 2**62, 1], (3 * 2**62 + 1) / 4),
        ([-(2**63)] * 5 + [7], (7 - 5 * 2**63) / 6),
    ]:
        for batches in ([values], [[each] for each in values]):
            assert aggregated(FieldType.INTEGER, batches)["avg"] == expected


@pytest.mark.parametrize(("column", "factor"), [("fjord_sum_real", 1.0), ("fjord_scaled_sum", SCALE)])
@pytest.mark.parametrize(("function", "kind", "expected"), [
    ("sum", FieldType.REAL, 42.0), ("avg", FieldType.REAL, 14.0), ("avg", FieldType.INTEGER, 14.0),
])  # fmt: skip
def test_sums_saved_by_an_earlier_version_go_on(
    column: str, factor: float, function: str, kind: FieldType, expected: float
) -> None:
    call = AggregateCall("found", function, read_scalar('"v"', kind), FieldType.REAL)
    saved = pl.DataFrame({START: [0], END: [10], f'{column}("v")': [40.0 * factor], 'fjord_count("v")': [2]})
    for rounds in (1, 2):
        merge = MergeAggregate((), (call,))
        merge.restore({"pending": saved, "watermark_us": -1})
        if rounds == 2:
            again = MergeAggregate((), (call,))
            again.restore(merge.save())
            merge = again
        rows = pl.DataFrame({START: [0], END: [10], "v": [2]}).cast({"v": POLARS_TYPES[kind]})
        partial = PartialAggregate((), (call,)).transition(0, Batch(rows, NEVER))
        assert merge.transition(0, partial).rows["found"].to_list() == [expected]


@pytest.mark.parametrize(("reported", "expected"), [(40.0, 42.0), (math.inf, None), (math.nan, None)])
def test_a_sum_that_a_sensor_made(reported: float, expected: float | None) -> None:
    total = AggregateCall("total", "sum", read_scalar('"v"', FieldType.REAL), FieldType.REAL)
    merge = MergeAggregate((), (total,))
    rows = pl.DataFrame({START: [0], END: [10], "fjord_sum_v": [reported], "fjord_count_v": [2]})
    begun = rows.select(START, END, *(column.from_sensors for column in partial_columns((total,))))
    merge.transition(0, Batch(begun, -1))
    sample = Batch(pl.DataFrame({START: [0], END: [10], "v": [2.0]}), NEVER)
    assert merge.transition(0, PartialAggregate((), (total,)).transition(0, sample)).rows["total"].to_list() == [
        expected
    ]
