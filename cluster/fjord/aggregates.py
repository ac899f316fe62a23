"""Aggregate functions in two halves: partial values that can be merged, and the final value computed from them.

A partial value is one or more columns. Merging partials of disjoint sets of tuples gives the partial of their union, so
panes, partitions, proxies and motes can all begin an aggregate that the downstream dataflow finishes. No value is ever
subtracted: sums of reals stay as exact as one addition after another. They are kept twice, once scaled down by a power
of two, so that no partial sum can overflow (:mod:`cluster.fjord.scaled_reals`): whether the whole sum does depends on
the tuples, not on how they are cut.

Sums of integers wrap around as their arithmetic does. A result that is not a finite real is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.fjord import slab_merges
from cluster.fjord.aggregates_of_values import (
    count_distinct,
    distinct_average,
    distinct_sum,
    median,
    mode,
    percentile,
    quantile,
    string_agg,
)
from cluster.fjord.partial_columns import (
    Halves,
    PartialColumn,
    argument_of,
    argument_type,
    of_each_row,
    partial_column,
    partial_name,
)
from cluster.fjord.scalars import POLARS_TYPES
from cluster.fjord.scaled_reals import SCALE, mean_of, mean_of_integers, mean_of_reals, sum_of, wrapped_sums
from cluster.operators.columns import AggregateCall
from cluster.scalars.real_values import settled
from protocols.wire.batches import EXPECTED_COLUMN, MISSING_COLUMN, SAMPLES_COLUMN
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class SplitAggregate:
    """An aggregate call, split. `final` reads the merged partial columns."""

    columns: tuple[PartialColumn, ...]
    final: pl.Expr


def split_aggregate(call: AggregateCall) -> SplitAggregate:
    """Return the halves of an aggregate call.

    Raises
    ------
    PlanError
        If the aggregate does not exist.
    """
    known = _AGGREGATES.get(call.function)
    rule = None if known is None else known.distinct if call.distinct else known.halves
    if rule is None:
        what = "does not take DISTINCT" if call.distinct else "cannot be evaluated"
        raise PlanError(f"{call.function.upper()} {what}", hint="aggregate a subquery, FROM (SELECT DISTINCT ...) AS x")
    columns, final = rule(call)
    final = final.cast(POLARS_TYPES[call.type])
    if call.type is FieldType.REAL:
        final = final.map_batches(settled, return_dtype=pl.Float64, is_elementwise=True)
    return SplitAggregate(columns, final.alias(call.name))


_Rule = Callable[[AggregateCall], Halves]


def partial_columns(calls: Iterable[AggregateCall]) -> tuple[PartialColumn, ...]:
    """Return the partial columns of several calls: a column that two of them need, such as a count, exists once."""
    found = {column.name: column for call in calls for column in split_aggregate(call).columns}
    return tuple(found.values())


def _count(call: AggregateCall) -> Halves:
    begin = pl.len() if call.argument is None else argument_of(call).count()
    column = partial_column(call, "count", pl.Int64, begin, measure=Measure.COUNT)
    return (column,), pl.col(column.name)


def _sum(call: AggregateCall) -> Halves:
    count = partial_column(call, "count", pl.Int64, argument_of(call).count(), measure=Measure.COUNT)
    some = pl.col(count.name) > 0
    if call.type is FieldType.REAL:
        plain, scaled = _plain_sum(call), _scaled_sum(call)
        return (plain, scaled, count), pl.when(some).then(sum_of(pl.col(plain.name), pl.col(scaled.name)))
    total = _integer_sum(call)
    return (total, count), pl.when(some).then(pl.col(total.name))


def _average(call: AggregateCall) -> Halves:
    count = partial_column(call, "count", pl.Int64, argument_of(call).count(), measure=Measure.COUNT)
    scaled = _scaled_sum(call)
    counted, real = pl.col(count.name), pl.col(scaled.name)
    if argument_type(call) is pl.Int64:
        total = _integer_sum(call)
        mean = mean_of_integers(pl.col(total.name), real, counted)
    else:
        total = _plain_sum(call)
        mean = mean_of_reals(pl.col(total.name), real, counted)
    return (total, scaled, count), pl.when((counted > 0) & real.is_finite()).then(mean)


def _integer_sum(call: AggregateCall) -> PartialColumn:
    return partial_column(call, INTEGER_SUM, pl.Int64, argument_of(call).cast(pl.Int64).sum(), measure=Measure.SUM)


def _plain_sum(call: AggregateCall) -> PartialColumn:
    return partial_column(call, PLAIN_SUM, pl.Float64, argument_of(call).cast(pl.Float64).sum(), measure=Measure.SUM)


def _scaled_sum(call: AggregateCall) -> PartialColumn:
    begin = (argument_of(call).cast(pl.Float64) * SCALE).sum()
    column = partial_column(call, SCALED_SUM, pl.Float64, begin, measure=Measure.SUM)
    return column if column.reported is None else replace(column, reported=column.reported * SCALE)


OLD_SUM, SCALED_SUM, PLAIN_SUM, INTEGER_SUM = "sum_real", "scaled_sum", "plain_sum", f"sum_{FieldType.INTEGER.value}"
"""Names of sums: unscaled reals, as earlier versions kept them alone; scaled, and plain reals; integers."""


def with_present_sums(saved: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """Return partial rows with the sums that this version keeps, given rows that an earlier one may have saved.

    Parameters
    ----------
    saved
        The rows.
    columns
        The names of the columns that are kept now. Those that no other column tells of stay missing.
    """
    before = f"fjord_{OLD_SUM}("
    sums = [name for name in saved.columns if name.startswith(before)]
    saved = saved.with_columns(pl.col(name) * SCALE for name in sums).rename(
        {name: f"fjord_{SCALED_SUM}({name.removeprefix(before)}" for name in sums}
    )
    found = []
    for name in set(columns) - set(saved.columns):
        kept, _, words = name.partition("(")
        scaled = f"fjord_{SCALED_SUM}({words}"
        if scaled in saved.columns and kept == f"fjord_{PLAIN_SUM}":
            found.append((pl.col(scaled) / SCALE).alias(name))
        elif scaled in saved.columns and kept == f"fjord_{INTEGER_SUM}":
            found.append(pl.col(scaled).map_batches(wrapped_sums, return_dtype=pl.Int64).alias(name))
    return saved.with_columns(found)


def _least(call: AggregateCall) -> Halves:
    column = partial_column(
        call,
        "min",
        argument_type(call),
        argument_of(call).min(),
        lambda partial: partial.min(),
        measure=Measure.MIN,
        slab=slab_merges.least,
    )
    return (column,), pl.col(column.name)


def _greatest(call: AggregateCall) -> Halves:
    column = partial_column(
        call,
        "max",
        argument_type(call),
        argument_of(call).max(),
        lambda partial: partial.max(),
        measure=Measure.MAX,
        slab=slab_merges.greatest,
    )
    return (column,), pl.col(column.name)


def _variance(call: AggregateCall, *, of_all: bool = False) -> Halves:
    """Variance from count, mean and squared deviations, merged after Chan, Golub and LeVeque (1979).

    It is that of a sample, which is NULL for a single value, or `of_all` values.
    """
    value = argument_of(call).cast(pl.Float64)
    count = partial_name(call, "count")
    mean = partial_name(call, "mean")
    squares = partial_name(call, "squares")
    n, m, s = pl.col(count), pl.col(mean), pl.col(squares)
    total = mean_of((n * (m * SCALE)).sum(), n.sum())
    begun = mean_of((value * SCALE).sum(), value.count())
    apart = pl.when(n > 0).then(n * (m - total) ** 2)
    columns = (
        PartialColumn(
            count,
            pl.Int64,
            value.count().cast(pl.Int64).alias(count),
            n.sum().alias(count),
            slab=slab_merges.added(count),
        ),
        PartialColumn(
            mean,
            pl.Float64,
            pl.when(value.count() > 0).then(begun).otherwise(0.0).alias(mean),
            pl.when(n.sum() > 0).then(total).otherwise(0.0).alias(mean),
            slab=slab_merges.mean(count, mean),
            quick=value.mean().fill_null(0.0).alias(mean),
        ),
        PartialColumn(
            squares,
            pl.Float64,
            ((value - begun) ** 2).sum().alias(squares),
            pl.when(n.sum() > 0).then(s.sum() + apart.sum()).otherwise(0.0).alias(squares),
            slab=slab_merges.squares(count, mean, squares),
            quick=(value.var(ddof=0) * value.count()).fill_null(0.0).alias(squares),
        ),
    )
    others = n if of_all else n - 1
    return columns, pl.when(others > 0).then(s / others)


def _deviation(call: AggregateCall, *, of_all: bool = False) -> Halves:
    columns, variance = _variance(call, of_all=of_all)
    return columns, variance.sqrt()


def keeps_values(call: AggregateCall) -> bool:
    """Return whether the partial of a call grows with its values: it is a list of them."""
    known = _AGGREGATES[call.function]
    return known.lists_distinct if call.distinct else known.lists_all


def _by_stamp(call: AggregateCall, *, first: bool) -> Halves:
    """The value with the least or greatest stamp; of equal stamps the least or greatest value. NULLs do not count."""
    if call.order is None:
        raise PlanError(f"{call.function.upper()} needs the instants at which tuples were sampled")
    stamps = pl.col(call.order)
    return _at_extreme(call, "first" if first else "last", stamps, pl.Int64, argument_of(call), first=first)


def _ranked(call: AggregateCall, *, first: bool) -> Halves:
    """The value of the tuple with the least or greatest of what is compared; of equal ones likewise of the values.

    NULLs do not count, neither of these nor of those.
    """
    if call.by is msgspec.UNSET:
        raise PlanError(f"{call.function.upper()} needs something to compare")
    compared, kind = of_each_row(call.by), POLARS_TYPES[call.by.type]
    return _at_extreme(call, call.function, compared, kind, argument_of(call), first=first)


def _at_extreme(
    call: AggregateCall, which: str, compared: pl.Expr, kind: type[pl.DataType], value: pl.Expr, *, first: bool
) -> Halves:
    stamp_name, value_name = partial_name(call, f"{which}_stamp"), partial_name(call, f"{which}_value")

    def pick(stamp: pl.Expr, value: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        known = value.is_not_null()
        stamps, values = stamp.filter(known), value.filter(known)
        extreme = stamps.min() if first else stamps.max()
        candidates = values.filter(stamps == extreme)
        return extreme.alias(stamp_name), (candidates.min() if first else candidates.max()).alias(value_name)

    begin = pick(compared, value)
    merge = pick(pl.col(stamp_name), pl.col(value_name))
    slabs = slab_merges.stamp_of(stamp_name, first=first), slab_merges.value_at(stamp_name, value_name, first=first)
    columns = (
        PartialColumn(stamp_name, kind, begin[0], merge[0], slab=slabs[0]),
        PartialColumn(value_name, argument_type(call), begin[1], merge[1], slab=slabs[1]),
    )
    return columns, pl.col(value_name)


SAMPLED = "fjord_sampled(*)"
"""The partial column that is true where there are tuples; rows may hold only counts of missing samples."""


def _completeness(_: AggregateCall) -> Halves:
    """The share of due samples that were seen. Proxies report it; samples do not contain it."""

    def reported(name: str, column: str) -> PartialColumn:
        begin, found = pl.lit(0, pl.Int64).alias(name), pl.col(column).fill_null(0)
        return PartialColumn(name, pl.Int64, begin, pl.col(name).sum().alias(name), found)

    # Rows saved before the column existed are of tuples.
    there = pl.col(SAMPLED).fill_null(value=True).any().alias(SAMPLED)
    sampled = PartialColumn(SAMPLED, pl.Boolean, (pl.len() > 0).alias(SAMPLED), there, pl.col(SAMPLES_COLUMN) > 0)
    expected = reported("fjord_expected(*)", EXPECTED_COLUMN)
    missing = reported("fjord_missing(*)", MISSING_COLUMN)
    seen = pl.col(expected.name) - pl.col(missing.name)
    return (sampled, expected, missing), pl.when(pl.col(expected.name) > 0).then(seen / pl.col(expected.name))


@dataclass(frozen=True, slots=True)
class _Computed:
    """How an aggregate is computed: of all values, and of each once; and whether partial values are lists of these."""

    halves: _Rule
    distinct: _Rule | None = None
    lists_all: bool = False
    lists_distinct: bool = False


_AGGREGATES: dict[str, _Computed] = {
    "count": _Computed(_count, count_distinct, lists_distinct=True),
    "sum": _Computed(_sum, distinct_sum, lists_distinct=True),
    "avg": _Computed(_average, distinct_average, lists_distinct=True),
    "min": _Computed(_least, _least),
    "max": _Computed(_greatest, _greatest),
    "variance": _Computed(_variance),
    "stddev": _Computed(_deviation),
    "var_pop": _Computed(lambda call: _variance(call, of_all=True)),
    "stddev_pop": _Computed(lambda call: _deviation(call, of_all=True)),
    "median": _Computed(median, lists_all=True),
    "quantile": _Computed(quantile, lists_all=True),
    "percentile_disc": _Computed(percentile, lists_all=True),
    "mode": _Computed(mode, lists_all=True),
    "string_agg": _Computed(string_agg, string_agg, lists_all=True, lists_distinct=True),
    "first": _Computed(lambda call: _by_stamp(call, first=True)),
    "last": _Computed(lambda call: _by_stamp(call, first=False)),
    "arg_min": _Computed(lambda call: _ranked(call, first=True)),
    "arg_max": _Computed(lambda call: _ranked(call, first=False)),
    "completeness": _Computed(_completeness),
}
