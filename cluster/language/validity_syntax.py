"""The syntax of what held for how long: VALID UNTIL NEXT, VALID(t), and what is asked of such intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp

VALID_SHAPE = "FROM doors VALID UNTIL NEXT BY sensor MAX 10 MINUTES"
COALESCE_SHAPE = "FROM climate WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(humidity TOLERANCE 2 BY sensor)"
KEEP_SHAPE = "FROM climate WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(humidity BY sensor) KEEP 10000 TUPLES"
INTERVAL_SHAPES = "VALID(t), or INTERSECT(VALID(t), VALID(u))"
RELATIONS = ("OVERLAPS", "CONTAINS", "DURING", "EQUALS", "BEFORE", "AFTER", "MEETS", "STARTS", "FINISHES")
"""Words between two intervals."""


class ValidClause(exp.Expression):
    """``VALID UNTIL NEXT [BY key | BY (key, ...)] [MAX longest]`` behind an item of FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"keys": False, "longest": False}


class CoalesceClause(exp.Expression):
    """``COALESCE(attribute, ... [BY key, ...] [WHILE condition])`` behind a window of an item of FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True, "keys": False, "condition": False}


class KeepClause(exp.Expression):
    """``KEEP number TUPLES`` behind COALESCE, or at the end of a SELECT."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class CoalescedAttribute(exp.Expression):
    """``attribute [TOLERANCE number]``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "tolerance": False}


class Previous(exp.Expression, exp.Func):
    """``PREV(column)`` in a WHILE; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}
    is_var_len_args = True


class NearlyEqual(exp.Expression, exp.Predicate):
    """``a ~= b [TOLERANCE number]``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "tolerance": False}


class Validity(exp.Column):
    """``VALID()`` or ``VALID(stream)``, an interval, as if it were a column; other arguments are kept."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "table": False, "expressions": False}


class ValidBound(exp.Column):
    """Begin or end of the interval of a tuple; the name says which. No text contains it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "table": False}


BEGIN, END = "valid begin", "valid end"
"""Names of the two."""


class CommonValidity(exp.Expression, exp.Func):
    """``INTERSECT(interval, interval, ...)``: what several intervals have in common."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args = True


class IntervalEnd(exp.Expression, exp.Func):
    """Begin or end of an interval in SELECT, as a timestamp: `end` says which. No text contains it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "end": False}

    @property
    def word(self) -> str:
        """What names of columns end with."""
        return "end" if self.args.get("end") else "start"


class Duration(exp.Expression, exp.Func):
    """``DURATION(interval)``; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}
    is_var_len_args = True


class AllenRelation(exp.Expression, exp.Func):
    """``ALLEN(interval, interval)``, the name of their relation; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}
    is_var_len_args = True
    _sql_names: ClassVar[list[str]] = ["ALLEN"]


class IntervalRelation(exp.Expression, exp.Predicate):
    """``interval OVERLAPS interval``, and the other :data:`RELATIONS`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "kind": True}


def bounds_of(interval: Validity) -> tuple[ValidBound, ValidBound]:
    """Return begin and end of the interval of a tuple."""
    table = interval.args.get("table")
    begin, end = (ValidBound(this=exp.Identifier(this=name, quoted=True), table=table) for name in (BEGIN, END))
    return begin, end


INTERVALS = (Validity, CommonValidity)
"""Classes of intervals; they are no values by themselves."""


def valid_of(arguments: list[exp.Expr]) -> Validity:
    """Return the call of VALID with these arguments."""
    name = exp.Identifier(this="valid", quoted=False)
    match arguments:
        case []:
            return Validity(this=name)
        case [exp.Column(this=exp.Identifier()) as stream] if len(stream.parts) == 1:
            return Validity(this=name, table=stream.this)
        case _:
            return Validity(this=name, expressions=arguments)


def is_interval(expression: exp.Expr | None) -> bool:
    """Return whether an expression is an interval, perhaps in parentheses."""
    return expression is not None and isinstance(expression.unnest(), INTERVALS)


INTERVAL_CALLS: dict[str, Callable[[list[exp.Expr]], exp.Expr]] = {
    "VALID": valid_of,
    "DURATION": lambda arguments: Duration(expressions=arguments),
    "ALLEN": lambda arguments: AllenRelation(expressions=arguments),
}
"""By name: what makes a call. Functions of users that had these names before keep them."""
