"""Checking operands: the interface by which rules for expressions check the expressions in them, and hints on types."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.typing_rules import Typed, TypeMismatchError, belongs, clashing_units, common_type
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.scope import Scope

_OF_NUMBER = "TIMESTAMP_SECONDS(x), TIMESTAMP_MILLIS(x) and TIMESTAMP_MICROS(x) make a timestamp of a number since 1970"
_TO_TIMESTAMP = {
    FieldType.LOCAL_TIMESTAMP: "x AT TIME ZONE 'Europe/Berlin' makes one of the other",
    FieldType.TEXT: "a timestamp is written TIMESTAMP '2026-03-29 02:30:00Z'; CAST(x AS TIMESTAMP) makes one of a text",
    **dict.fromkeys((FieldType.INTEGER, FieldType.REAL), _OF_NUMBER),
}

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ][\d:.]+)?(?:Z|[+-]\d{2}:\d{2})?\Z")
_CHAIN = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ)


def converted(found: FieldType | None, wanted: Family) -> str | None:
    """Return how to convert a value of one type to another family, if there is a good way."""
    match wanted:
        case Family.BOOLEAN if found is not None:
            return "compare it with something"
        case Family.TEXT if found is not None:
            return "convert it: CAST(x AS text)"
        case Family.NUMBER if found in (FieldType.TIMESTAMP, FieldType.LOCAL_TIMESTAMP, FieldType.INTERVAL):
            return "EXTRACT(EPOCH FROM x) gives seconds, as a real"
        case Family.NUMBER if found == FieldType.BOOLEAN:
            return "COUNT(*) FILTER (WHERE x) counts where it is true; CASE WHEN x THEN 1 ELSE 0 END is a number"
        case Family.NUMBER if found == FieldType.TEXT:
            return "convert it: CAST(x AS real)"
        case _:
            return None


def reconciled(at: exp.Expr, operands: Iterable[Typed]) -> str:
    """Return how operands of types that do not match can be made to match.

    Parameters
    ----------
    at
        The expression that compares, adds or chooses among them.
    operands
        The operands.
    """
    values = list(operands)
    types = {each.type for each in values}
    if FieldType.BOOLEAN in types and isinstance(at, _CHAIN):
        if isinstance(at.this, _CHAIN):
            return "write low < x AND x < high, or x BETWEEN low AND high"
        return "a boolean is a condition by itself: write it alone, or behind NOT"
    if FieldType.TIMESTAMP in types:
        days = [each.expression.this for each in values if _is_day(each.expression)]
        if days:
            return f"a timestamp is written TIMESTAMP '{days[0]}'"
        for other, hint in _TO_TIMESTAMP.items():
            if other in types:
                return hint
    one_against_one = (
        isinstance(at, exp.Predicate) and len(values) == len(types) and not isinstance(at, exp.Between | exp.In)
    )
    if one_against_one and FieldType.TEXT in types and FieldType.BOOLEAN not in types:
        for literal in (each.expression for each in values if isinstance(each.expression, exp.Literal)):
            if not literal.is_string:
                return f"a text is written in single quotes: '{literal.this}'"
            if _is_number(literal.this):
                return f"a number is written without quotes: {literal.this}"
    return "convert one of them with CAST"


def _is_day(literal: exp.Expr) -> bool:
    """Return whether a text begins as a timestamp does."""
    return isinstance(literal, exp.Literal) and literal.is_string and _DAY.match(literal.this) is not None


def _is_number(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").replace(".", "", 1).isdigit()


@dataclass(frozen=True, slots=True)
class OperandChecker(ABC):
    """Checks operands against one scope."""

    scope: Scope
    context: Context

    @abstractmethod
    def check(self, expression: exp.Expr) -> Typed:
        """Return `expression`, resolved and typed.

        Raises
        ------
        FjordSqlError
            If a name is unknown, types do not fit, or it is no scalar expression of FjordSQL.
        """

    def check_as(self, expression: exp.Expr, family: Family, hint: str | None = None) -> Typed:
        """Return `expression`, resolved and typed, if it belongs to `family`; `hint` is for the error if it does not.

        Raises
        ------
        FjordSqlError
            As :meth:`check`, or if it does not.
        """
        return self.belonging(self.check(expression), expression, family, hint)

    def belonging(self, typed: Typed, expression: exp.Expr, family: Family, hint: str | None = None) -> Typed:
        """Return a typed expression, if it belongs to `family`, as :meth:`check_as` does.

        Raises
        ------
        FjordSqlError
            If it does not.
        """
        if not belongs(typed.type, family):
            found = typed.type.value if typed.type else "null"
            reason = f"{family.value} was expected here, but this is {found}"
            raise self.context.error(expression, reason, hint or converted(typed.type, family))
        return typed

    def common(self, at: exp.Expr, operands: list[Typed], *, action: str) -> FieldType | None:
        """Return the common type of `operands`; warns when their units differ.

        Raises
        ------
        FjordSqlError
            If they have none.
        """
        try:
            found = common_type(operand.type for operand in operands)
        except TypeMismatchError as mismatch:
            raise self.context.error(at, f"cannot {action}: {mismatch}", reconciled(at, operands)) from None
        if units := clashing_units(operands):
            self.context.warn(f"{self.context.source_text(at)} mixes {units[0]} and {units[1]}")
        return found
