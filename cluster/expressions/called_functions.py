"""The functions that can be called, by their nodes in syntax trees; those that sqlglot lacks have classes here."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp


class Log10(exp.Expression, exp.Func):
    """``LOG10(x)``; sqlglot would make it LOG of two arguments."""


class Log2(exp.Expression, exp.Func):
    """``LOG2(x)``."""


class DistanceMetres(exp.Expression, exp.Func):
    """``DISTANCE_METRES(lat1, lon1, lat2, lon2)``."""

    arg_types: ClassVar[dict[str, bool]] = {"lat1": True, "lon1": True, "lat2": True, "lon2": True}


class LeftPad(exp.Expression, exp.Func):
    """``LPAD(x, length[, fill])``; sqlglot has one class for both."""

    _sql_names: ClassVar[list[str]] = ["LPAD"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "length": True, "fill": False}


class RightPad(exp.Expression, exp.Func):
    """``RPAD(x, length[, fill])``."""

    _sql_names: ClassVar[list[str]] = ["RPAD"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "length": True, "fill": False}


class RegexMatches(exp.Expression, exp.Func):
    """``REGEXP_LIKE(x, 'pattern')``; the operators ``~`` and ``~*`` become one."""

    _sql_names: ClassVar[list[str]] = ["REGEXP_LIKE", "REGEXP_MATCHES"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "pattern": True}


class RegexExtract(exp.Expression, exp.Func):
    """``REGEXP_EXTRACT(x, 'pattern'[, group])``."""

    _sql_names: ClassVar[list[str]] = ["REGEXP_EXTRACT"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "pattern": True, "group": False}


class RegexReplace(exp.Expression, exp.Func):
    """``REGEXP_REPLACE(x, 'pattern', 'replacement')``."""

    _sql_names: ClassVar[list[str]] = ["REGEXP_REPLACE"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "pattern": True, "replacement": True}


class Cotangent(exp.Expression, exp.Func):
    """``COT(x)``."""

    _sql_names: ClassVar[list[str]] = ["COT"]


class FirstPlace(exp.Expression, exp.Func):
    """``STRPOS(x, part)``, also written ``POSITION(part IN x)``, ``INSTR(x, part)`` and ``LOCATE(part, x)``."""

    _sql_names: ClassVar[list[str]] = ["STRPOS", "INSTR"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "part": True}


class BeginsWith(exp.Expression, exp.Func):
    """``STARTS_WITH(x, part)``."""

    _sql_names: ClassVar[list[str]] = ["STARTS_WITH", "STARTSWITH"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "part": True}


class EndsWith(exp.Expression, exp.Func):
    """``ENDS_WITH(x, part)``."""

    _sql_names: ClassVar[list[str]] = ["ENDS_WITH", "ENDSWITH"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "part": True}


class BothTrim(exp.Expression, exp.Func):
    """``TRIM(x[, characters])``, also written ``TRIM(BOTH characters FROM x)``."""

    _sql_names: ClassVar[list[str]] = ["TRIM", "BTRIM"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "characters": False}


class LeftTrim(exp.Expression, exp.Func):
    """``LTRIM(x[, characters])``, also written ``TRIM(LEADING characters FROM x)``."""

    _sql_names: ClassVar[list[str]] = ["LTRIM"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "characters": False}


class RightTrim(exp.Expression, exp.Func):
    """``RTRIM(x[, characters])``, also written ``TRIM(TRAILING characters FROM x)``."""

    _sql_names: ClassVar[list[str]] = ["RTRIM"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "characters": False}


class TimeCall(exp.Expression, exp.Func):
    """A call about timestamps as a plan has it: its name, and its arguments."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True}


class JsonValue(exp.Expression, exp.Func):
    """``JSON_VALUE(x, 'path' [RETURNING type])``."""

    _sql_names: ClassVar[list[str]] = ["JSON_VALUE"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True, "returning": False}


class JsonQuery(exp.Expression, exp.Func):
    """``JSON_QUERY(x, 'path')``."""

    _sql_names: ClassVar[list[str]] = ["JSON_QUERY"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True}


class JsonExists(exp.Expression, exp.Func):
    """``JSON_EXISTS(x, 'path')``."""

    _sql_names: ClassVar[list[str]] = ["JSON_EXISTS"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True}


class JsonExtract(exp.Expression, exp.Func):
    """``JSON_EXTRACT(x, 'path')``; the operator ``->`` becomes one."""

    _sql_names: ClassVar[list[str]] = ["JSON_EXTRACT"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True}


class JsonExtractString(exp.Expression, exp.Func):
    """``JSON_EXTRACT_STRING(x, 'path')``; the operator ``->>`` becomes one."""

    _sql_names: ClassVar[list[str]] = ["JSON_EXTRACT_STRING", "GET_JSON_OBJECT"]
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "path": True}


class TimeLiteral(exp.Expression):
    """A timestamp or an interval that is written out: its type, and its canonical text."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


OWN_FUNCTIONS: tuple[type[exp.Func], ...] = (
    *(Log10, Log2, DistanceMetres, LeftPad, RightPad),
    *(Cotangent, FirstPlace, BeginsWith, EndsWith, BothTrim, LeftTrim, RightTrim),
    *(RegexMatches, RegexExtract, RegexReplace),
    *(JsonValue, JsonQuery, JsonExists, JsonExtract, JsonExtractString),
)
"""Functions that sqlglot does not know, or reads otherwise."""

FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Abs: "ABS",
    exp.Round: "ROUND",
    exp.Floor: "FLOOR",
    exp.Ceil: "CEIL",
    exp.Sign: "SIGN",
    exp.Sqrt: "SQRT",
    exp.Pow: "POWER",
    exp.Ln: "LN",
    exp.Exp: "EXP",
    exp.Trunc: "TRUNC",
    Log10: "LOG10",
    Log2: "LOG2",
    exp.Pi: "PI",
    exp.Sin: "SIN",
    exp.Cos: "COS",
    exp.Tan: "TAN",
    exp.Asin: "ASIN",
    exp.Acos: "ACOS",
    exp.Atan: "ATAN",
    exp.Atan2: "ATAN2",
    exp.Radians: "RADIANS",
    exp.Degrees: "DEGREES",
    Cotangent: "COT",
    exp.Sinh: "SINH",
    exp.Cosh: "COSH",
    exp.Tanh: "TANH",
    DistanceMetres: "DISTANCE_METRES",
    exp.Least: "LEAST",
    exp.Greatest: "GREATEST",
    exp.Coalesce: "COALESCE",
    exp.Nullif: "NULLIF",
    exp.Upper: "UPPER",
    exp.Lower: "LOWER",
    exp.Length: "LENGTH",
    BothTrim: "TRIM",
    LeftTrim: "LTRIM",
    RightTrim: "RTRIM",
    FirstPlace: "STRPOS",
    BeginsWith: "STARTS_WITH",
    EndsWith: "ENDS_WITH",
    exp.Reverse: "REVERSE",
    exp.Substring: "SUBSTRING",
    exp.Left: "LEFT",
    exp.Right: "RIGHT",
    exp.SplitPart: "SPLIT_PART",
    exp.Replace: "REPLACE",
    LeftPad: "LPAD",
    RightPad: "RPAD",
    RegexMatches: "REGEXP_LIKE",
    RegexExtract: "REGEXP_EXTRACT",
    RegexReplace: "REGEXP_REPLACE",
    JsonValue: "JSON_VALUE",
    JsonQuery: "JSON_QUERY",
    JsonExists: "JSON_EXISTS",
    JsonExtract: "JSON_EXTRACT",
    JsonExtractString: "JSON_EXTRACT_STRING",
    exp.Concat: "CONCAT",
}
"""The name of each function that can be called, by sqlglot's class."""
