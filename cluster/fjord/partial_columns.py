"""The columns of partial aggregates: their types, how they are merged, and sums of reals without overflow.

**Sums, means and quantiles of reals without overflow in intermediate results.**

Reals are added as they are, and once more scaled down by a power of two. That changes none of their digits but those of
the smallest, below 1e-288: so the scaled sum counts only where the plain one has left the reals, on the way or at all.

    plain    1e308 + 1e308 - 1e308 = infinite          5e-324 + 1e-300 = 1e-300
    scaled   (5.4e288 + 5.4e288 - 5.4e288) / 2^-64     (0 + 5.4e-320) / 2^-64: other digits

Means of integers are those of exact sums. These are known twice, too: as integers of 64 bits, which wrap around, and as
scaled reals, which tell how often they have.

**How partial values of several panes are merged for many keys at once: sums, extremes and moments of matrices.**

    a slab           key 1   key 2   key 3         merged: a value for each key
    first pane         4       .       7
    second pane        1       2       .      ->     5       2       7           (a sum)

The same as the merge functions of :mod:`cluster.fjord.aggregates` make of the rows of a group, one column of a partial
value at a time. Numbers only: texts and lists are merged as rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.errors import PlanError
from cluster.fjord.batch import START
from cluster.fjord.scalars import POLARS_TYPES, compile_scalar
from cluster.operators.columns import AggregateCall, Scalar
from cluster.operators.scalar_expressions import plain_column
from cluster.scalars.real_values import EXACT_INTEGERS
from protocols.wire.batches import SAMPLES_COLUMN, measure_column
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

SCALE = 2.0**-64
"""No number of tuples is so large that values scaled by this add up to more than the largest real."""
LARGEST = sys.float_info.max


def mean_of(scaled_sum: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the mean of so many values, given their scaled sum; rounding never makes it overflow."""
    return (scaled_sum / count).clip(-LARGEST * SCALE, LARGEST * SCALE) / SCALE


def sum_of(plain: pl.Expr, scaled_sum: pl.Expr) -> pl.Expr:
    """Return a sum of reals, given both its forms."""
    return pl.when(plain.is_finite()).then(plain).otherwise(scaled_sum / SCALE)


def mean_of_reals(plain: pl.Expr, scaled_sum: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the mean of so many reals, given both forms of their sum."""
    return pl.when(plain.is_finite()).then(plain / count).otherwise(mean_of(scaled_sum, count))


def mean_of_integers(wrapped: pl.Expr, scaled_sum: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the real next to the mean of so many integers, given both forms of their sum."""

    def found(columns: Sequence[pl.Series]) -> pl.Series:
        sums, reals, counts = (each.fill_null(0).to_numpy() for each in columns)
        return pl.Series(integer_means(sums, reals, counts))

    return pl.map_batches([wrapped, scaled_sum, count], found, return_dtype=pl.Float64, is_elementwise=True)


def integer_means(wrapped: Integers, scaled_sums: Reals, counts: Integers) -> Reals:
    """Return the reals next to means of integers, NaN of none; the sums are wrapped around, and scaled.

    >>> integer_means(np.array([1, -2]), np.array([0.0, 1.0]), np.array([2, 4])).tolist()
    [0.5, 4.611686018427388e+18]
    """
    sums, divisors = wrapped.astype(np.float64), counts.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = sums / divisors
        # How often the sum has gone around: the scaled sum is that number, but for a fraction.
        around = np.rint(scaled_sums - sums * SCALE)
    rounded_twice = (np.abs(sums) >= EXACT_INTEGERS) | (around != 0)
    for place in np.flatnonzero(rounded_twice & (counts > 0)):
        found[place] = (int(wrapped[place]) + int(around[place]) * 2**64) / int(counts[place])
    return found


def different(values: pl.Expr) -> pl.Expr:
    """Return lists with each value once."""
    return values.list.unique(maintain_order=True)


def wrapped_sums(scaled_sums: pl.Series) -> pl.Series:
    """Return the integers next to scaled sums, as those of 64 bits wrap around.

    >>> wrapped_sums(pl.Series([2.0**-62, 0.5])).to_list()
    [4, -9223372036854775808]
    """
    sums = [None if each is None else int(each / SCALE) for each in scaled_sums.to_list()]
    found = [None if each is None else (each + 2**63) % 2**64 - 2**63 for each in sums]
    return pl.Series(scaled_sums.name, found, dtype=pl.Int64)


def once(values: pl.Expr) -> pl.Expr:
    """Return lists with each value once, sorted, so that their sum does not depend on how they came."""
    return different(values).list.sort()


def scaled(values: pl.Expr) -> pl.Expr:
    """Return the same, scaled."""
    return once(values).list.eval(pl.element().cast(pl.Float64) * SCALE)


def between_values(found_in: Callable[[pl.Expr], pl.Expr]) -> Callable[[pl.Expr], pl.Expr]:
    """Return a function that interpolates between two values of each list; intermediate results may overflow."""

    def found(values: pl.Series) -> pl.Series:
        lists, name = values.to_frame(), pl.col(values.name)
        at_once = lists.select(found_in(name).cast(pl.Float64)).to_series()
        infinite = ~at_once.is_finite()
        if not infinite.any():
            return at_once
        halves = name.list.eval(pl.element().cast(pl.Float64) * 0.5)
        return lists.select(found_in(halves) * 2.0).to_series().zip_with(infinite, at_once)

    return lambda values: values.map_batches(found, return_dtype=pl.Float64, is_elementwise=True)


Truths = NDArray[np.bool_]
Values = NDArray[Any]
"""Reals or integers of 64 bits."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Values of one column; those that are not known are zero. `known` is None where all are."""

    values: Values
    known: Truths | None


class Slab:
    """The partial values of some panes, one after another, for all keys.

    Parameters
    ----------
    columns
        By name: a row for each pane of a grid, a column for each key.
    first, until
        The rows of the grid.
    """

    def __init__(self, columns: Mapping[str, Cells], first: int, until: int) -> None:
        self._columns = columns
        self._rows = slice(first, until)

    def values(self, name: str) -> Values:
        """Return the values of a column, with zero where there is none."""
        return self._columns[name].values[self._rows]

    def known(self, name: str) -> Truths:
        """Return where a column has a value."""
        known = self._columns[name].known
        assert known is not None  # noqa: S101 - those of a grid are
        return known[self._rows]


SlabMerge = Callable[[Slab], Cells]
"""Returns a value for each key."""


def added(name: str) -> SlabMerge:
    """Return the merge of a column by addition; nothing adds up to zero."""
    return lambda slab: Cells(slab.values(name).sum(axis=0), None)


def least(name: str) -> SlabMerge:
    """Return the merge of a column by its least value; nothing has none."""
    return lambda slab: _extreme(slab.values(name), slab.known(name), least=True)


def greatest(name: str) -> SlabMerge:
    """Return the merge of a column by its greatest value; nothing has none."""
    return lambda slab: _extreme(slab.values(name), slab.known(name), least=False)


def mean(count: str, of: str) -> SlabMerge:
    """Return the merge of a mean, given its column and that of the counts."""
    return lambda slab: Cells(_mean(slab, count, of), None)


def squares(count: str, of: str, apart: str) -> SlabMerge:
    """Return the merge of squared deviations: of the values from their pane's mean, and of that from the whole one."""

    def merge(slab: Slab) -> Cells:
        counts = slab.values(count)
        between = counts * (slab.values(of) - _mean(slab, count, of)) ** 2
        # Where there are no values, what is infinite would become NaN.
        whole = slab.values(apart).sum(axis=0) + np.where(counts > 0, between, 0.0).sum(axis=0)
        return Cells(np.where(counts.any(axis=0), whole, 0.0), None)

    return merge


def stamp_of(stamp: str, *, first: bool) -> SlabMerge:
    """Return the merge of the stamps at which values are first or last."""
    return least(stamp) if first else greatest(stamp)


def value_at(stamp: str, value: str, *, first: bool) -> SlabMerge:
    """Return the merge of the values with the least or greatest stamp; of equal stamps the least or greatest value."""

    def merge(slab: Slab) -> Cells:
        stamps, known = slab.values(stamp), slab.known(value)
        chosen = _extreme(stamps, known, least=first).values
        return _extreme(slab.values(value), known & (stamps == chosen), least=first)

    return merge


def _extreme(values: Values, known: Truths, *, least: bool) -> Cells:
    kind = np.iinfo(values.dtype) if values.dtype.kind == "i" else np.finfo(values.dtype)
    found = np.where(known, values, kind.max).min(axis=0) if least else np.where(known, values, kind.min).max(axis=0)
    there: Truths = np.logical_or.reduce(known, axis=0)
    return Cells(np.where(there, found, 0), there)


def _mean(slab: Slab, count: str, of: str) -> Values:
    counts = slab.values(count)
    whole = counts.sum(axis=0)
    scaled = (counts * (slab.values(of) * SCALE)).sum(axis=0) / whole
    found: Values = np.where(whole > 0, scaled.clip(-LARGEST * SCALE, LARGEST * SCALE) / SCALE, 0.0)
    return found


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


Halves = tuple[tuple[PartialColumn, ...], pl.Expr]
"""An aggregate's partial columns, and its value computed from them once they are merged."""


def argument_of(call: AggregateCall) -> pl.Expr:
    """Return the argument of a call, a value for each row.

    Raises
    ------
    PlanError
        If it has none.
    """
    if call.argument is None:
        raise PlanError(f"{call.function.upper()} needs an argument")
    return of_each_row(call.argument)


def of_each_row(scalar: Scalar) -> pl.Expr:
    """Return an expression with a value for each row, also if it is a constant."""
    value = compile_scalar(scalar)
    # Polars treats a constant as a single value, not one per row.
    return value if value.meta.root_names() else pl.when(pl.col(START).is_not_null()).then(value)


def argument_type(call: AggregateCall) -> type[pl.DataType]:
    """Return the type of a call's argument."""
    return POLARS_TYPES[call.argument.type if call.argument else FieldType.INTEGER]


def _compared(call: AggregateCall) -> tuple[Scalar, ...]:
    """Return what ARG_MIN and ARG_MAX compare, if it is one of these."""
    return () if call.by is msgspec.UNSET else (call.by,)


def partial_name(call: AggregateCall, part: str) -> str:
    """Return a name for a partial column that contains everything on which its values depend."""
    words = "*" if call.argument is None else ", ".join(each.sql for each in (call.argument, *_compared(call)))
    return f"fjord_{part}({'DISTINCT ' if call.distinct else ''}{words})"


def partial_column(
    call: AggregateCall,
    part: str,
    kind: pl.DataType | type[pl.DataType],
    begin: pl.Expr,
    merge: Callable[[pl.Expr], pl.Expr] = lambda partial: partial.sum(),
    *,
    measure: Measure | None = None,
    slab: Callable[[str], SlabMerge] = added,
) -> PartialColumn:
    """Return a partial column of a call.

    Parameters
    ----------
    call, part
        The call, and which of its partial values this is.
    kind, begin, merge
        Its type, initial value and merge function.
    measure
        The measure of devices that is the same.
    slab
        Merges the values of many keys at once, given the name.
    """
    name = partial_name(call, part)
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
