"""Hints for errors about types that do not match."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.typing_rules import Typed

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
