"""The functions and aggregates of FjordSQL: names, argument types, result types.

Shared with the compiler of scalar expressions, which must give each of them one meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from cluster.expressions.called_functions import (
    BeginsWith,
    BothTrim,
    Cotangent,
    DistanceMetres,
    EndsWith,
    FirstPlace,
    JsonExists,
    JsonExtract,
    JsonExtractString,
    JsonQuery,
    JsonValue,
    LeftPad,
    LeftTrim,
    Log2,
    Log10,
    RegexExtract,
    RegexMatches,
    RegexReplace,
    RightPad,
    RightTrim,
)
from cluster.language.syntax import (
    TIME_FUNCTIONS,
    Completeness,
    FirstOfGroup,
    LastOfGroup,
    PercentileCont,
    PercentileDisc,
    StringAgg,
)
from protocols.wire.streams import FieldType


class Family(Enum):
    """Types that can be compared and mixed with each other."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"
    TEXT = "text"
    TIMESTAMP = "a timestamp"
    LOCAL = "a local timestamp"
    INTERVAL = "an interval"
    INTEGER = "an integer"
    ANY = "any value"


FAMILY_OF: dict[FieldType, Family] = {
    FieldType.BOOLEAN: Family.BOOLEAN,
    FieldType.INTEGER: Family.NUMBER,
    FieldType.REAL: Family.NUMBER,
    FieldType.TEXT: Family.TEXT,
    FieldType.TIMESTAMP: Family.TIMESTAMP,
    FieldType.LOCAL_TIMESTAMP: Family.LOCAL,
    FieldType.INTERVAL: Family.INTERVAL,
}


class Result(Enum):
    """The type of a function's result, where it depends on its arguments."""

    FIRST = "that of the first argument"
    COMMON = "the common type of all arguments"


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    Parameters
    ----------
    name
        As written in FjordSQL.
    slots
        Where sqlglot's syntax tree keeps the arguments, in order; the last may hold a list.
    parameters
        The family of each argument; the last one also stands for all further ones.
    required
        How many arguments there must be.
    result
        The type of the result.
    keeps_unit
        True if a value in mph stays one in mph.
    null_if_null
        True if the result can be NULL only where an argument is.
    """

    name: str
    slots: tuple[str, ...]
    parameters: tuple[Family, ...]
    required: int
    result: FieldType | Result
    keeps_unit: bool = False
    null_if_null: bool = True

    @property
    def several(self) -> bool:
        """True if it takes any number of arguments from :attr:`required` on."""
        return "expressions" in self.slots

    @property
    def arity(self) -> str:
        """How many arguments it takes, in words."""
        if self.several:
            return "one argument or more"
        counts = [_COUNTED[count] for count in range(self.required, len(self.slots) + 1)]
        return f"{' or '.join(counts)} argument{'' if counts == ['one'] else 's'}"

    def shape(self, name: str) -> str:
        """Return how a call under a name is written."""
        words = [_PARAMETER_WORDS.get(slot) or family.value.split()[-1] for slot, family in self._parameters]
        needed, optional = words[: self.required], words[self.required :]
        more = ", ..." if self.several else "".join(f"[, {word}]" for word in optional)
        return f"{name}({', '.join(needed)}{more})"

    @property
    def _parameters(self) -> list[tuple[str, Family]]:
        last = len(self.parameters) - 1
        return [(slot, self.parameters[min(place, last)]) for place, slot in enumerate(self.slots)]


_COUNTED = ("no", "one", "two", "three", "four")
_PARAMETER_WORDS = {
    **{
        name: name for name in ("start", "length", "decimals", "part", "characters", "fill", "pattern", "group", "path")
    },
    **{name: name for name in ("lat1", "lon1", "lat2", "lon2")},
    "delimiter": "separator",
    "part_index": "number",
    "replacement": "replacement",
}

_NUMBER, _TEXT, _ANY, _INTEGER = Family.NUMBER, Family.TEXT, Family.ANY, Family.INTEGER


def _real(name: str, *slots: str) -> Function:
    """Return a function of numbers that gives a real, or NULL where there is none."""
    return Function(name, slots, (_NUMBER,), len(slots), FieldType.REAL, null_if_null=False)


def _of_document(name: str, result: FieldType = FieldType.TEXT) -> Function:
    """Return a function that reads a place of a JSON document, and gives NULL where there is none."""
    return Function(name, ("this", "path"), (_TEXT,), 2, result, null_if_null=False)


FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Abs: Function("ABS", ("this",), (_NUMBER,), 1, Result.FIRST, keeps_unit=True),
    exp.Round: Function("ROUND", ("this", "decimals"), (_NUMBER, _INTEGER), 1, Result.FIRST, keeps_unit=True),
    exp.Floor: Function("FLOOR", ("this",), (_NUMBER,), 1, Result.FIRST, keeps_unit=True),
    exp.Ceil: Function("CEIL", ("this",), (_NUMBER,), 1, Result.FIRST, keeps_unit=True),
    exp.Sign: Function("SIGN", ("this",), (_NUMBER,), 1, FieldType.INTEGER),
    exp.Sqrt: Function("SQRT", ("this",), (_NUMBER,), 1, FieldType.REAL, null_if_null=False),
    exp.Pow: Function("POWER", ("this", "expression"), (_NUMBER, _NUMBER), 2, FieldType.REAL, null_if_null=False),
    exp.Ln: Function("LN", ("this",), (_NUMBER,), 1, FieldType.REAL, null_if_null=False),
    exp.Exp: Function("EXP", ("this",), (_NUMBER,), 1, FieldType.REAL, null_if_null=False),
    exp.Trunc: Function("TRUNC", ("this",), (_NUMBER,), 1, Result.FIRST, keeps_unit=True),
    Log10: _real("LOG10", "this"),
    Log2: _real("LOG2", "this"),
    exp.Pi: Function("PI", (), (), 0, FieldType.REAL),
    exp.Sin: Function("SIN", ("this",), (_NUMBER,), 1, FieldType.REAL),
    exp.Cos: Function("COS", ("this",), (_NUMBER,), 1, FieldType.REAL),
    exp.Tan: _real("TAN", "this"),
    exp.Asin: _real("ASIN", "this"),
    exp.Acos: _real("ACOS", "this"),
    exp.Atan: Function("ATAN", ("this",), (_NUMBER,), 1, FieldType.REAL),
    exp.Atan2: Function("ATAN2", ("this", "expression"), (_NUMBER,), 2, FieldType.REAL),
    exp.Radians: Function("RADIANS", ("this",), (_NUMBER,), 1, FieldType.REAL),
    exp.Degrees: _real("DEGREES", "this"),
    Cotangent: _real("COT", "this"),
    exp.Sinh: _real("SINH", "this"),
    exp.Cosh: _real("COSH", "this"),
    exp.Tanh: Function("TANH", ("this",), (_NUMBER,), 1, FieldType.REAL),
    DistanceMetres: _real("DISTANCE_METRES", "lat1", "lon1", "lat2", "lon2"),
    exp.Least: Function("LEAST", ("this", "expressions"), (_ANY,), 1, Result.COMMON, keeps_unit=True),
    exp.Greatest: Function("GREATEST", ("this", "expressions"), (_ANY,), 1, Result.COMMON, keeps_unit=True),
    exp.Coalesce: Function("COALESCE", ("this", "expressions"), (_ANY,), 1, Result.COMMON, keeps_unit=True),
    exp.Nullif: Function(
        "NULLIF", ("this", "expression"), (_ANY, _ANY), 2, Result.FIRST, keeps_unit=True, null_if_null=False
    ),
    exp.Upper: Function("UPPER", ("this",), (_TEXT,), 1, FieldType.TEXT),
    exp.Lower: Function("LOWER", ("this",), (_TEXT,), 1, FieldType.TEXT),
    exp.Length: Function("LENGTH", ("this",), (_TEXT,), 1, FieldType.INTEGER),
    BothTrim: Function("TRIM", ("this", "characters"), (_TEXT,), 1, FieldType.TEXT),
    LeftTrim: Function("LTRIM", ("this", "characters"), (_TEXT,), 1, FieldType.TEXT),
    RightTrim: Function("RTRIM", ("this", "characters"), (_TEXT,), 1, FieldType.TEXT),
    FirstPlace: Function("STRPOS", ("this", "part"), (_TEXT,), 2, FieldType.INTEGER),
    BeginsWith: Function("STARTS_WITH", ("this", "part"), (_TEXT,), 2, FieldType.BOOLEAN),
    EndsWith: Function("ENDS_WITH", ("this", "part"), (_TEXT,), 2, FieldType.BOOLEAN),
    exp.Reverse: Function("REVERSE", ("this",), (_TEXT,), 1, FieldType.TEXT),
    exp.Substring: Function("SUBSTRING", ("this", "start", "length"), (_TEXT, _INTEGER, _INTEGER), 2, FieldType.TEXT),
    exp.Left: Function("LEFT", ("this", "expression"), (_TEXT, _INTEGER), 2, FieldType.TEXT),
    exp.Right: Function("RIGHT", ("this", "expression"), (_TEXT, _INTEGER), 2, FieldType.TEXT),
    exp.SplitPart: Function(
        "SPLIT_PART", ("this", "delimiter", "part_index"), (_TEXT, _TEXT, _INTEGER), 3, FieldType.TEXT
    ),
    exp.Replace: Function(
        "REPLACE", ("this", "expression", "replacement"), (_TEXT,), 3, FieldType.TEXT, null_if_null=False
    ),
    LeftPad: Function(
        "LPAD", ("this", "length", "fill"), (_TEXT, _INTEGER, _TEXT), 2, FieldType.TEXT, null_if_null=False
    ),
    RightPad: Function(
        "RPAD", ("this", "length", "fill"), (_TEXT, _INTEGER, _TEXT), 2, FieldType.TEXT, null_if_null=False
    ),
    RegexMatches: Function("REGEXP_LIKE", ("this", "pattern"), (_TEXT,), 2, FieldType.BOOLEAN),
    RegexExtract: Function(
        "REGEXP_EXTRACT", ("this", "pattern", "group"), (_TEXT, _TEXT, _INTEGER), 2, FieldType.TEXT, null_if_null=False
    ),
    RegexReplace: Function(
        "REGEXP_REPLACE", ("this", "pattern", "replacement"), (_TEXT,), 3, FieldType.TEXT, null_if_null=False
    ),
    JsonValue: _of_document("JSON_VALUE"),
    JsonQuery: _of_document("JSON_QUERY"),
    JsonExists: _of_document("JSON_EXISTS", FieldType.BOOLEAN),
    JsonExtract: _of_document("JSON_EXTRACT"),
    JsonExtractString: _of_document("JSON_EXTRACT_STRING"),
    exp.Concat: Function("CONCAT", ("expressions",), (_ANY,), 1, FieldType.TEXT),
}
"""Scalar functions by sqlglot's class. CASE, CAST, TRY_CAST, IF and the operators have rules of their own."""

TIME = ("STAMP", "EXTRACT", *TIME_FUNCTIONS)
"""Functions about time, which have rules of their own (cluster/language/time_functions.py)."""

FUNCTION_NAMES: tuple[str, ...] = (*(function.name for function in FUNCTIONS.values()), "IF", "CAST", "TRY_CAST", *TIME)


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate.

    Parameters
    ----------
    name
        As in :class:`cluster.language.columns.AggregateCall`.
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
