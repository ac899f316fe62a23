"""Aggregates: one row for each, with what the language, the planner and devices have to know of it.

How it is computed is in cluster/fjord/aggregates.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.scalars.scalar_function import Family, Result
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate.

    Parameters
    ----------
    name
        As in :class:`cluster.operators.columns.AggregateCall`.
    parameter
        The family of its argument.
    result
        The type of its result.
    names
        As written in FjordSQL; `name` in capitals if there are none.
    keeps_unit
        True if the result has the unit of the argument.
    distinct
        True if it can count each value once.
    own
        True if sqlglot does not know it, or reads it otherwise: then it has a class of ours in syntax trees.
    computed_as
        The aggregate that gives the same result, if there is one: then only that is computed.
    ignores_copies
        True if it has the same value for a bag of tuples and for its set.
    by_value
        True if it depends on the values of rows only: not on stamps, nor on the order in which rows come.
    errs_as_its_values
        True if its error is at most the largest error of a value.
    measures
        Those of devices of which it is composed; none if devices cannot compute it.
    """

    name: str
    parameter: Family
    result: FieldType | Result
    names: tuple[str, ...] = ()
    keeps_unit: bool = True
    distinct: bool = False
    own: bool = False
    computed_as: str = ""
    ignores_copies: bool = False
    by_value: bool = False
    errs_as_its_values: bool = False
    measures: tuple[Measure, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """The names that it can be called by."""
        return self.names or (self.name.upper(),)


_SAMPLES_AND_SUM = (Measure.COUNT, Measure.SUM)
_ROWS = (
    AggregateFunction(
        "count", Family.ANY, FieldType.INTEGER,
        keeps_unit=False, distinct=True, by_value=True, measures=(Measure.COUNT,),
    ),
    AggregateFunction("sum", Family.NUMBER, Result.FIRST, distinct=True, by_value=True, measures=_SAMPLES_AND_SUM),
    AggregateFunction(
        "avg", Family.NUMBER, FieldType.REAL,
        distinct=True, by_value=True, errs_as_its_values=True, measures=_SAMPLES_AND_SUM,
    ),
    AggregateFunction(
        "min", Family.ANY, Result.FIRST,
        distinct=True, ignores_copies=True, by_value=True, errs_as_its_values=True,
        measures=(Measure.COUNT, Measure.MIN),
    ),
    AggregateFunction(
        "max", Family.ANY, Result.FIRST,
        distinct=True, ignores_copies=True, by_value=True, errs_as_its_values=True,
        measures=(Measure.COUNT, Measure.MAX),
    ),
    AggregateFunction("stddev", Family.NUMBER, FieldType.REAL, names=("STDDEV", "STDEV", "STDDEV_SAMP")),
    AggregateFunction(
        "variance", Family.NUMBER, FieldType.REAL, names=("VARIANCE", "VAR_SAMP", "VARIANCE_SAMP"), keeps_unit=False
    ),
    AggregateFunction("stddev_pop", Family.NUMBER, FieldType.REAL),
    AggregateFunction("var_pop", Family.NUMBER, FieldType.REAL, names=("VAR_POP", "VARIANCE_POP"), keeps_unit=False),
    AggregateFunction(
        "bool_and", Family.BOOLEAN, FieldType.BOOLEAN,
        names=("BOOL_AND", "LOGICAL_AND", "EVERY"), distinct=True, computed_as="min",
    ),
    AggregateFunction(
        "bool_or", Family.BOOLEAN, FieldType.BOOLEAN,
        names=("BOOL_OR", "LOGICAL_OR"), distinct=True, computed_as="max",
    ),
    AggregateFunction("median", Family.NUMBER, FieldType.REAL, errs_as_its_values=True),
    AggregateFunction("mode", Family.ANY, Result.FIRST),
    AggregateFunction(
        "percentile_cont", Family.NUMBER, FieldType.REAL, computed_as="quantile", errs_as_its_values=True
    ),
    AggregateFunction("percentile_disc", Family.ANY, Result.FIRST, errs_as_its_values=True),
    AggregateFunction(
        "quantile", Family.NUMBER, FieldType.REAL, names=("APPROX_QUANTILE", "QUANTILE"), errs_as_its_values=True
    ),
    AggregateFunction(
        "string_agg", Family.TEXT, FieldType.TEXT,
        names=("STRING_AGG", "LISTAGG"), keeps_unit=False, distinct=True,
    ),
    AggregateFunction(
        "arg_min", Family.ANY, Result.FIRST,
        names=("ARG_MIN", "ARGMIN", "MIN_BY"), ignores_copies=True, errs_as_its_values=True,
    ),
    AggregateFunction(
        "arg_max", Family.ANY, Result.FIRST,
        names=("ARG_MAX", "ARGMAX", "MAX_BY"), ignores_copies=True, errs_as_its_values=True,
    ),
    AggregateFunction("first", Family.ANY, Result.FIRST, ignores_copies=True, errs_as_its_values=True),
    AggregateFunction("last", Family.ANY, Result.FIRST, ignores_copies=True, errs_as_its_values=True),
    AggregateFunction("completeness", Family.ANY, FieldType.REAL, keeps_unit=False),
)  # fmt: skip
AGGREGATE_FUNCTIONS: Mapping[str, AggregateFunction] = {row.name: row for row in _ROWS}
"""Aggregates by name."""
