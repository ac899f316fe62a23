"""Aggregate functions in two halves: partial values that can be merged, and the final value computed from them.

A partial value is one or more columns. Merging partials of disjoint sets of tuples gives the partial of their union, so
panes, partitions, proxies and motes can all begin an aggregate that the downstream dataflow finishes. No value is ever
subtracted: sums of reals stay as exact as one addition after another. They are scaled down by a power of two, so
that no partial sum can overflow: whether the whole sum does depends on the tuples, not on how they are cut.

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
from cluster.fjord import slab_merges
from cluster.fjord.batch import START
from cluster.fjord.real_values import settled
from cluster.fjord.scalars import POLARS_TYPES, compile_scalar
from cluster.fjord.scaled_reals import SCALE, between_values, different, mean_of, scaled
from cluster.fjord.slab_merges import SlabMerge
from cluster.language.call_limits import LONGEST_TEXT
from cluster.language.columns import AggregateCall, Scalar
from cluster.language.plans import plain_column
from protocols.wire.batches import EXPECTED_COLUMN, MISSING_COLUMN, SAMPLES_COLUMN, measure_column
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """One column of a partial value: its name, type, initial value and merge function.

    `reported` is the initial value from a device aggregate; None if devices do not compute such a value. `slab` merges
    as `merge` does, the values of many keys at once; None if only rows can be merged. `quick` is the initial value
    wherever it is finite, and computed sooner; None if there is no quicker way.
    """

    name: str
    type: pl.DataType | type[pl.DataType]
    begin: pl.Expr
    merge: pl.Expr
    reported: pl.Expr | None = None
    slab: SlabMerge | None = None
    quick: pl.Expr | None = None

    @property
    def reads(self) -> frozenset[str]:
        """The columns of a device aggregate that it reads."""
        return frozenset() if self.reported is None else frozenset(self.reported.meta.root_names())

    @property
    def from_sensors(self) -> pl.Expr:
        """Return the initial value from a device aggregate; NULL where that has no value for it."""
        reported = pl.lit(None) if self.reported is None else self.reported
        return reported.cast(self.type).alias(self.name)


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
    rule = _DISTINCT_RULES.get(call.function) if call.distinct else _RULES.get(call.function)
    if rule is None:
        what = "does not take DISTINCT" if call.distinct else "cannot be evaluated"
        raise PlanError(f"{call.function.upper()} {what}", hint="aggregate a subquery, FROM (SELECT DISTINCT ...) AS x")
    columns, final = rule(call)
    final = final.cast(POLARS_TYPES[call.type])
    if call.type is FieldType.REAL:
        final = final.map_batches(settled, return_dtype=pl.Float64, is_elementwise=True)
    return SplitAggregate(columns, final.alias(call.name))


_Rule = Callable[[AggregateCall], tuple[tuple[PartialColumn, ...], pl.Expr]]


def _argument(call: AggregateCall) -> pl.Expr:
    if call.argument is None:
        raise PlanError(f"{call.function.upper()} needs an argument")
    return _of_each_row(call.argument)


def _of_each_row(scalar: Scalar) -> pl.Expr:
    value = compile_scalar(scalar)
    # Polars treats a constant as a single value, not one per row.
    return value if value.meta.root_names() else pl.when(pl.col(START).is_not_null()).then(value)


def _argument_type(call: AggregateCall) -> type[pl.DataType]:
    return POLARS_TYPES[call.argument.type if call.argument else FieldType.INTEGER]


def partial_columns(calls: Iterable[AggregateCall]) -> tuple[PartialColumn, ...]:
    """Return the partial columns of several calls: a column that two of them need, such as a count, exists once."""
    found = {column.name: column for call in calls for column in split_aggregate(call).columns}
    return tuple(found.values())


def _compared(call: AggregateCall) -> tuple[Scalar, ...]:
    """Return what ARG_MIN and ARG_MAX compare, if it is one of these."""
    return () if call.by is msgspec.UNSET else (call.by,)


def _name(call: AggregateCall, part: str) -> str:
    """Return a name for a partial column that contains everything on which its values depend."""
    words = "*" if call.argument is None else ", ".join(each.sql for each in (call.argument, *_compared(call)))
    return f"fjord_{part}({'DISTINCT ' if call.distinct else ''}{words})"


def _column(
    call: AggregateCall,
    part: str,
    kind: pl.DataType | type[pl.DataType],
    begin: pl.Expr,
    merge: Callable[[pl.Expr], pl.Expr] = lambda partial: partial.sum(),
    *,
    measure: Measure | None = None,
    slab: Callable[[str], SlabMerge] = slab_merges.added,
) -> PartialColumn:
    name = _name(call, part)
    reported = None if measure is None or call.distinct else _reported(call, measure)
    merged = merge(pl.col(name)).alias(name)
    return PartialColumn(name, kind, begin.cast(kind).alias(name), merged, reported, slab(name))


def _reported(call: AggregateCall, measure: Measure) -> pl.Expr | None:
    """Return the column of a device aggregate with a measure of a call's argument."""
    if call.argument is None:
        return pl.col(SAMPLES_COLUMN)
    field = plain_column(call.argument)
    if field is None:
        return None
    found = pl.col(measure_column(measure, field))
    return found.fill_null(0) if measure in (Measure.COUNT, Measure.SUM) else found


def _count(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    begin = pl.len() if call.argument is None else _argument(call).count()
    column = _column(call, "count", pl.Int64, begin, measure=Measure.COUNT)
    return (column,), pl.col(column.name)


def _sum(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    count = _column(call, "count", pl.Int64, _argument(call).count(), measure=Measure.COUNT)
    if call.type is FieldType.REAL:
        total = _scaled_sum(call)
        return (total, count), pl.when(pl.col(count.name) > 0).then(pl.col(total.name) / SCALE)
    kind = POLARS_TYPES[call.type]
    total = _column(call, f"sum_{call.type.value}", kind, _argument(call).cast(kind).sum(), measure=Measure.SUM)
    return (total, count), pl.when(pl.col(count.name) > 0).then(pl.col(total.name))


def _average(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    total = _scaled_sum(call)
    count = _column(call, "count", pl.Int64, _argument(call).count(), measure=Measure.COUNT)
    mean = mean_of(pl.col(total.name), pl.col(count.name))
    return (total, count), pl.when((pl.col(count.name) > 0) & pl.col(total.name).is_finite()).then(mean)


def _scaled_sum(call: AggregateCall) -> PartialColumn:
    begin = (_argument(call).cast(pl.Float64) * SCALE).sum()
    column = _column(call, SCALED_SUM, pl.Float64, begin, measure=Measure.SUM)
    return column if column.reported is None else replace(column, reported=column.reported * SCALE)


SUM, SCALED_SUM = "sum_real", "scaled_sum"
"""Names of sums of reals: unscaled, as earlier versions kept them, and scaled."""


def with_scaled_sums(saved: pl.DataFrame) -> pl.DataFrame:
    """Return partial rows in this version's form, given rows that an earlier one may have saved."""
    before = f"fjord_{SUM}("
    sums = [name for name in saved.columns if name.startswith(before)]
    return saved.with_columns(pl.col(name) * SCALE for name in sums).rename(
        {name: f"fjord_{SCALED_SUM}({name.removeprefix(before)}" for name in sums}
    )


def _least(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    column = _column(
        call,
        "min",
        _argument_type(call),
        _argument(call).min(),
        lambda partial: partial.min(),
        measure=Measure.MIN,
        slab=slab_merges.least,
    )
    return (column,), pl.col(column.name)


def _greatest(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    column = _column(
        call,
        "max",
        _argument_type(call),
        _argument(call).max(),
        lambda partial: partial.max(),
        measure=Measure.MAX,
        slab=slab_merges.greatest,
    )
    return (column,), pl.col(column.name)


def _variance(call: AggregateCall, *, of_all: bool = False) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    """Variance from count, mean and squared deviations, merged after Chan, Golub and LeVeque (1979).

    It is that of a sample, which is NULL for a single value, or `of_all` values.
    """
    value = _argument(call).cast(pl.Float64)
    count = _name(call, "count")
    mean = _name(call, "mean")
    squares = _name(call, "squares")
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


def _deviation(call: AggregateCall, *, of_all: bool = False) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    columns, variance = _variance(call, of_all=of_all)
    return columns, variance.sqrt()


def keeps_values(call: AggregateCall) -> bool:
    """Return whether the partial of a call grows with its values: it is a list of them."""
    return call.function in _DISTINCT_OF_ALL if call.distinct else call.function in _OF_ALL


def _values(call: AggregateCall, final: Callable[[pl.Expr], pl.Expr]) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    """The partial of aggregates that need every value: a list of the values."""
    name = _name(call, "values")
    begun, merged = _argument(call).drop_nulls(), pl.col(name).explode().drop_nulls()
    if call.distinct:
        # Merging keeps each value once, too: a pane grows with its values, not with its micro-batches.
        begun, merged = begun.unique(maintain_order=True), merged.unique(maintain_order=True)
    column = PartialColumn(name, pl.List(_argument_type(call)), begun.implode().alias(name), merged.implode())
    return (column,), final(pl.col(name))


def _by_stamp(call: AggregateCall, *, first: bool) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    """The value with the least or greatest stamp; of equal stamps the least or greatest value. NULLs do not count."""
    if call.order is None:
        raise PlanError(f"{call.function.upper()} needs the instants at which tuples were sampled")
    stamps = pl.col(call.order)
    return _at_extreme(call, "first" if first else "last", stamps, pl.Int64, _argument(call), first=first)


def _ranked(call: AggregateCall, *, first: bool) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    """The value of the tuple with the least or greatest of what is compared; of equal ones likewise of the values.

    NULLs do not count, neither of these nor of those.
    """
    if call.by is msgspec.UNSET:
        raise PlanError(f"{call.function.upper()} needs something to compare")
    compared, kind = _of_each_row(call.by), POLARS_TYPES[call.by.type]
    return _at_extreme(call, call.function, compared, kind, _argument(call), first=first)


def _at_extreme(
    call: AggregateCall, which: str, compared: pl.Expr, kind: type[pl.DataType], value: pl.Expr, *, first: bool
) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    stamp_name, value_name = _name(call, f"{which}_stamp"), _name(call, f"{which}_value")

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
        PartialColumn(value_name, _argument_type(call), begin[1], merge[1], slab=slabs[1]),
    )
    return columns, pl.col(value_name)


def _quantile(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    share = 0.5 if call.parameter is None else call.parameter
    return _values(
        call,
        between_values(lambda values: values.list.agg(pl.element().quantile(share, interpolation="linear"))),
    )


def _percentile(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    """The least value up to which, itself included, at least the share of all values lies."""
    # A share is the decimal that was written: 0.55 of 100 values are 55, and not what the nearest real makes of it.
    share = Fraction(repr(0.5 if call.parameter is None else call.parameter))

    def places(counts: pl.Series) -> pl.Series:
        return pl.Series(counts.name, [max(math.ceil(share * count), 1) - 1 for count in counts], dtype=pl.Int64)

    def at_share(values: pl.Expr) -> pl.Expr:
        place = values.list.len().map_batches(places, return_dtype=pl.Int64, is_elementwise=True)
        return values.list.sort().list.get(place, null_on_oob=True)

    return _values(call, at_share)


def _mode(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    """The most frequent value; of equally frequent ones the least."""
    return _values(call, lambda values: values.list.eval(pl.element().mode().sort()).list.first())


def _string_agg(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
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

    return _values(call, joined)


def _distinct_sum(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    if call.type is not FieldType.REAL:
        return _values(call, lambda values: pl.when(values.list.len() > 0).then(different(values).list.sum()))
    return _values(call, lambda values: pl.when(values.list.len() > 0).then(scaled(values).list.sum() / SCALE))


def _distinct_average(call: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
    def mean(values: pl.Expr) -> pl.Expr:
        once = scaled(values)
        return pl.when(values.list.len() > 0).then(mean_of(once.list.sum(), once.list.len()))

    return _values(call, mean)


SAMPLED = "fjord_sampled(*)"
"""The partial column that is true where there are tuples; rows may hold only counts of missing samples."""


def _completeness(_: AggregateCall) -> tuple[tuple[PartialColumn, ...], pl.Expr]:
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


_RULES: dict[str, _Rule] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _least,
    "max": _greatest,
    "variance": _variance,
    "stddev": _deviation,
    "var_pop": lambda call: _variance(call, of_all=True),
    "stddev_pop": lambda call: _deviation(call, of_all=True),
    "median": lambda call: _values(call, between_values(lambda values: values.list.median())),
    "quantile": _quantile,
    "percentile_disc": _percentile,
    "mode": _mode,
    "string_agg": _string_agg,
    "first": lambda call: _by_stamp(call, first=True),
    "last": lambda call: _by_stamp(call, first=False),
    "arg_min": lambda call: _ranked(call, first=True),
    "arg_max": lambda call: _ranked(call, first=False),
    "completeness": _completeness,
}
_DISTINCT_RULES: dict[str, _Rule] = {
    "count": lambda call: _values(call, lambda values: values.list.n_unique()),
    "sum": _distinct_sum,
    "avg": _distinct_average,
    "min": _least,
    "max": _greatest,
    "string_agg": _string_agg,
}
_OF_ALL = frozenset({"median", "quantile", "percentile_disc", "mode", "string_agg"})
_DISTINCT_OF_ALL = frozenset({"count", "sum", "avg", "string_agg"})
