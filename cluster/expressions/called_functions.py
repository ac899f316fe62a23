"""The functions that can be called, by their nodes in syntax trees; those that sqlglot lacks have classes here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
from sqlglot import exp

from cluster.expressions.user_functions import UserFunction
from cluster.scalars import SCALAR_FUNCTIONS
from cluster.scalars.scalar_function import ScalarFunction


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


class FirstPlace(exp.Expression, exp.Func):
    """``STRPOS(x, part)``, also written ``POSITION(part IN x)``, ``INSTR(x, part)`` and ``LOCATE(part, x)``."""

    _sql_names: ClassVar[list[str]] = ["STRPOS", "INSTR"]
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


_WRITTEN_HERE: tuple[type[exp.Func], ...] = (
    *(LeftPad, RightPad, FirstPlace, BothTrim, LeftTrim, RightTrim, RegexMatches, RegexExtract, RegexReplace),
    *(JsonValue, JsonQuery, JsonExists, JsonExtract, JsonExtractString),
)
"""Functions about which the translator has to know more than their rows say."""


def class_named(name: str, names: Sequence[str], slots: dict[str, bool], kind: type[exp.Func]) -> type[exp.Func]:
    """Return a class for calls of a function that sqlglot does not know, or reads otherwise.

    Parameters
    ----------
    name, names
        What it is called after, and the names that it can be called by.
    slots
        Where its arguments are kept, and whether each is needed.
    kind
        What it is one of.
    """
    parts = {"__module__": __name__, "_sql_names": [*names], "arg_types": slots}
    return type(name.title().replace("_", ""), (exp.Expression, kind), parts)


def _class_of(function: ScalarFunction) -> type[exp.Func]:
    slots = {slot: place < function.least for place, slot in enumerate(function.slots)}
    return class_named(function.name, [function.name, *function.aliases], slots, exp.Func)


_HERE = {kind.sql_name(): kind for kind in _WRITTEN_HERE}
CLASSES: Mapping[str, type[exp.Func]] = {
    name: _HERE.get(name) or _class_of(function) if function.own else exp.FUNCTION_BY_NAME[name]
    for name, function in SCALAR_FUNCTIONS.items()
}
"""The class in sqlglot's syntax trees of each function that can be called."""
OWN_FUNCTIONS: tuple[type[exp.Func], ...] = tuple(
    CLASSES[name] for name, function in SCALAR_FUNCTIONS.items() if function.own
)
"""Functions that sqlglot does not know, or reads otherwise."""
FUNCTIONS: dict[type[exp.Expr], ScalarFunction] = {
    CLASSES[name]: function for name, function in SCALAR_FUNCTIONS.items()
}
"""Each function that can be called, by its class."""


class UserFunctionCall(exp.Expression, exp.Func):
    """A call of a function of a user in a syntax tree; ``this`` is the function, as JSON."""

    arg_types = {"this": True, "expressions": True}  # noqa: RUF012 - sqlglot's
    is_var_len_args = True


def call_tree(function: UserFunction, arguments: list[exp.Expr]) -> UserFunctionCall:
    """Return the syntax tree of a call."""
    return UserFunctionCall(this=msgspec.json.encode(function).decode(), expressions=arguments)


def called_in(tree: UserFunctionCall) -> UserFunction:
    """Return the function that a syntax tree calls."""
    return msgspec.json.decode(tree.this, type=UserFunction)
