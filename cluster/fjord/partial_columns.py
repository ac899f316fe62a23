"""The columns of partial aggregates: their names, types, initial values, and how two of them are merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.fjord import slab_merges
from cluster.fjord.batch import START
from cluster.fjord.scalars import POLARS_TYPES, compile_scalar
from cluster.fjord.slab_merges import SlabMerge
from cluster.operators.columns import AggregateCall, Scalar
from cluster.operators.scalar_expressions import plain_column
from protocols.wire.batches import SAMPLES_COLUMN, measure_column
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
    slab: Callable[[str], SlabMerge] = slab_merges.added,
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
