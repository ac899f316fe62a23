"""Aggregate functions in two halves: partial values that can be merged, and the final value computed from them.

A partial value is one or more columns. Merging partials of disjoint sets of tuples gives the partial of their union, so
panes, partitions, proxies and motes can all begin an aggregate that the downstream dataflow finishes. No value is ever
subtracted: sums of reals stay as exact as one addition after another. They are kept twice, once scaled down by a power
of two, so that no partial sum can overflow (:mod:`cluster.fjord.partial_columns`): whether the whole sum does depends
on the tuples, not on how they are cut.

Sums of integers wrap around as their arithmetic does. A result that is not a finite real is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.fjord import partial_columns as merging
from cluster.fjord.partial_columns import (
    SCALE,
    Halves,
    PartialColumn,
    argument_of,
    argument_type,
    between_values,
    different,
    mean_of,
    mean_of_integers,
    mean_of_reals,
    of_each_row,
    once,
    partial_column,
    partial_name,
    scaled,
    sum_of,
    wrapped_sums,
)
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators.columns import AggregateCall
from cluster.scalars.real_values import settled
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.batches import EXPECTED_COLUMN, MISSING_COLUMN, SAMPLES_COLUMN
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType


def of_values(call: AggregateCall, final: Callable[[pl.Expr], pl.Expr]) -> Halves:
    """The partial of aggregates that need every value: a list of the values."""
    name = partial_name(call, "values")
    begun, merged = argument_of(call).drop_nulls(), pl.col(name).explode().drop_nulls()
    if call.distinct:
        # Merging keeps each value once, too: a pane grows with its values, not with its micro-batches.
        begun, merged = begun.unique(maintain_order=True), merged.unique(maintain_order=True)
    column = PartialColumn(name, pl.List(argument_type(call)), begun.implode().alias(name), merged.implode())
    return (column,), final(pl.col(name))


def median(call: AggregateCall) -> Halves:
    """The value in the middle, or the mean of the two in the middle."""
    return of_values(call, between_values(lambda values: values.list.median()))


def count_distinct(call: AggregateCall) -> Halves:
    """The number of different values."""
    return of_values(call, lambda values: values.list.n_unique())


def quantile(call: AggregateCall) -> Halves:
    """The value at a share of all values, between two of them if need be."""
    share = 0.5 if call.parameter is None else call.parameter
    return of_values(
        call,
        between_values(lambda values: values.list.agg(pl.element().quantile(share, interpolation="linear"))),
    )


def percentile(call: AggregateCall) -> Halves:
    """The least value up to which, itself included, at least the share of all values lies."""
    # A share is the decimal that was written: 0.55 of 100 values are 55, and not what the nearest real makes of it.
    share = Fraction(repr(0.5 if call.parameter is None else call.parameter))

    def places(counts: pl.Series) -> pl.Series:
        return pl.Series(counts.name, [max(math.ceil(share * count), 1) - 1 for count in counts], dtype=pl.Int64)

    def at_share(values: pl.Expr) -> pl.Expr:
        place = values.list.len().map_batches(places, return_dtype=pl.Int64, is_elementwise=True)
        return values.list.sort().list.get(place, null_on_oob=True)

    return of_values(call, at_share)


def mode(call: AggregateCall) -> Halves:
    """The most frequent value; of equally frequent ones the least."""
    return of_values(call, lambda values: values.list.eval(pl.element().mode().sort()).list.first())


def string_agg(call: AggregateCall) -> Halves:
    """All texts in their order, with a separator between them; NULL if there is none, and if the result is too long."""
    if call.joining is msgspec.UNSET:
        raise PlanError("STRING_AGG needs a separator")
    joining = call.joining

    def joined(values: pl.Expr) -> pl.Expr:
        letters = values.list.eval(pl.element().str.len_chars()).list.sum()
        letters = letters.cast(pl.Int64) + (values.list.len().cast(pl.Int64) - 1) * len(joining.separator)
        # A text that would be too long is never made.
        fitting = pl.when((values.list.len() > 0) & (letters <= LONGEST_TEXT)).then(values)
        return fitting.list.sort(descending=joining.descending).list.join(joining.separator)

    return of_values(call, joined)


def distinct_sum(call: AggregateCall) -> Halves:
    """The sum of the different values."""

    def total(values: pl.Expr) -> pl.Expr:
        plain = once(values).list.sum()
        found = plain if call.type is not FieldType.REAL else sum_of(plain, scaled(values).list.sum())
        return pl.when(values.list.len() > 0).then(found)

    return of_values(call, total)


def distinct_average(call: AggregateCall) -> Halves:
    """The mean of the different values."""

    def mean(values: pl.Expr) -> pl.Expr:
        sums = once(values).list.sum(), scaled(values).list.sum()
        count = different(values).list.len().cast(pl.Int64)
        mean_of_all = mean_of_integers if argument_type(call) is pl.Int64 else mean_of_reals
        return pl.when(values.list.len() > 0).then(mean_of_all(*sums, count))

    return of_values(call, mean)


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
        slab=merging.least,
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
        slab=merging.greatest,
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
            slab=merging.added(count),
        ),
        PartialColumn(
            mean,
            pl.Float64,
            pl.when(value.count() > 0).then(begun).otherwise(0.0).alias(mean),
            pl.when(n.sum() > 0).then(total).otherwise(0.0).alias(mean),
            slab=merging.mean(count, mean),
            quick=value.mean().fill_null(0.0).alias(mean),
        ),
        PartialColumn(
            squares,
            pl.Float64,
            ((value - begun) ** 2).sum().alias(squares),
            pl.when(n.sum() > 0).then(s.sum() + apart.sum()).otherwise(0.0).alias(squares),
            slab=merging.squares(count, mean, squares),
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
    slabs = (
        merging.stamp_of(stamp_name, first=first),
        merging.value_at(stamp_name, value_name, first=first),
    )
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
