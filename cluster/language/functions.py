"""The functions and aggregates of FjordSQL: names, argument types, result types.

Shared with the compiler of scalar expressions, which must give each of them one meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from cluster.language.syntax import (
    TIME_FUNCTIONS,
    Completeness,
    FirstOfGroup,
    LastOfGroup,
    PercentileCont,
    PercentileDisc,
    StringAgg,
)
from cluster.scalars import SCALAR_FUNCTIONS
from cluster.scalars.scalar_function import Family, Result
from protocols.wire.streams import FieldType

TIME = ("STAMP", "EXTRACT", *TIME_FUNCTIONS)
"""Functions about time, which have rules of their own (cluster/language/time_functions.py)."""

FUNCTION_NAMES: tuple[str, ...] = (*SCALAR_FUNCTIONS, "IF", "CAST", "TRY_CAST", *TIME)


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
    keeps_unit
        True if the result has the unit of the argument.
    distinct
        True if it can count each value once.
    computed_as
        The aggregate that gives the same result, if there is one: then only that is computed.
    """

    name: str
    parameter: Family
    result: FieldType | Result
    keeps_unit: bool = True
    distinct: bool = False
    computed_as: str = ""


AGGREGATES: dict[type[exp.Expr], AggregateFunction] = {
    exp.Count: AggregateFunction("count", Family.ANY, FieldType.INTEGER, keeps_unit=False, distinct=True),
    exp.Sum: AggregateFunction("sum", Family.NUMBER, Result.FIRST, distinct=True),
    exp.Avg: AggregateFunction("avg", Family.NUMBER, FieldType.REAL, distinct=True),
    exp.Min: AggregateFunction("min", Family.ANY, Result.FIRST, distinct=True),
    exp.Max: AggregateFunction("max", Family.ANY, Result.FIRST, distinct=True),
    exp.Stddev: AggregateFunction("stddev", Family.NUMBER, FieldType.REAL),
    exp.Variance: AggregateFunction("variance", Family.NUMBER, FieldType.REAL, keeps_unit=False),
    exp.StddevSamp: AggregateFunction("stddev", Family.NUMBER, FieldType.REAL),
    exp.StddevPop: AggregateFunction("stddev_pop", Family.NUMBER, FieldType.REAL),
    exp.VariancePop: AggregateFunction("var_pop", Family.NUMBER, FieldType.REAL, keeps_unit=False),
    exp.LogicalAnd: AggregateFunction("bool_and", Family.BOOLEAN, FieldType.BOOLEAN, distinct=True, computed_as="min"),
    exp.LogicalOr: AggregateFunction("bool_or", Family.BOOLEAN, FieldType.BOOLEAN, distinct=True, computed_as="max"),
    exp.Median: AggregateFunction("median", Family.NUMBER, FieldType.REAL),
    exp.ApproxQuantile: AggregateFunction("quantile", Family.NUMBER, FieldType.REAL),
    exp.Quantile: AggregateFunction("quantile", Family.NUMBER, FieldType.REAL),
    PercentileCont: AggregateFunction("percentile_cont", Family.NUMBER, FieldType.REAL, computed_as="quantile"),
    PercentileDisc: AggregateFunction("percentile_disc", Family.ANY, Result.FIRST),
    StringAgg: AggregateFunction("string_agg", Family.TEXT, FieldType.TEXT, keeps_unit=False, distinct=True),
    exp.Mode: AggregateFunction("mode", Family.ANY, Result.FIRST),
    exp.ArgMin: AggregateFunction("arg_min", Family.ANY, Result.FIRST),
    exp.ArgMax: AggregateFunction("arg_max", Family.ANY, Result.FIRST),
    exp.First: AggregateFunction("first", Family.ANY, Result.FIRST),
    exp.Last: AggregateFunction("last", Family.ANY, Result.FIRST),
    FirstOfGroup: AggregateFunction("first", Family.ANY, Result.FIRST),
    LastOfGroup: AggregateFunction("last", Family.ANY, Result.FIRST),
    Completeness: AggregateFunction("completeness", Family.ANY, FieldType.REAL, keeps_unit=False),
}
"""Aggregates by sqlglot's class."""

RANKED = (exp.ArgMin, exp.ArgMax)
"""Aggregates that give a value of the tuple in which another one, their second argument, is the least or greatest."""

AGGREGATE_NAMES: tuple[str, ...] = (
    "COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV", "VARIANCE", "STDDEV_POP", "VAR_POP", "BOOL_AND", "BOOL_OR",
    "MEDIAN", "MODE", "PERCENTILE_CONT", "PERCENTILE_DISC", "APPROX_QUANTILE", "STRING_AGG", "ARG_MIN", "ARG_MAX",
    "FIRST", "LAST", "COMPLETENESS", "ERROR_BOUND", "GROUPING",
)  # fmt: skip

UNBOUNDED_AGGREGATES: tuple[type[exp.Expr], ...] = (exp.ArrayAgg, exp.GroupConcat, exp.JSONArrayAgg)
"""Aggregates whose result grows with the number of tuples."""
