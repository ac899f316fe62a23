"""Conditions as intervals of a column's values, which a predicate index can look up.

``speed > 20 AND lane IN (1, 2) AND sensor LIKE 'I-8%'`` is three sets of intervals without a rest. Conditions that are
not intervals of one column's values (functions, comparisons of columns, IS NULL) stay expressions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cluster.expressions.conditions import MIRRORED, conjuncts, disjuncts
from cluster.expressions.nodes import (
    TRUE,
    Among,
    Between,
    Binary,
    Chain,
    Column,
    Expression,
    Like,
    Literal,
    Negative,
    Not,
    bare,
)
from cluster.operators.columns import Scalar, Schema
from protocols.wire.streams import FieldType

Value = int | float | str
LAST_LETTER = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `low` to `high`; None means no bound. NULL is in no interval."""

    low: Value | None = None
    high: Value | None = None
    low_open: bool = False
    high_open: bool = False


Intervals = tuple[Interval, ...]
"""A union of intervals; the empty union contains no value."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """A predicate as intervals and the rest; all of them must hold.

    Parameters
    ----------
    intervals
        By column: unions of intervals, each of which must contain the value.
    rest
        The other conditions, as expressions.
    """

    intervals: Mapping[str, tuple[Intervals, ...]] = field(default_factory=dict)
    rest: tuple[Scalar, ...] = ()


@lru_cache(maxsize=65_536)
def extract_ranges(predicate: Scalar | None, columns: Schema) -> Conditions:
    """Return the intervals in a predicate, and the rest of it.

    Parameters
    ----------
    predicate
        None means no condition.
    columns
        Columns that it may read.
    """
    if predicate is None:
        return Conditions()
    types = {column.name: column.type for column in columns}
    intervals: dict[str, tuple[Intervals, ...]] = {}
    rest: list[Scalar] = []
    for part in conjuncts(predicate.expression):
        found = _intervals(part, types)
        if found is None:
            rest.append(Scalar(part, FieldType.BOOLEAN))
        else:
            column, union = found
            intervals[column] = (*intervals.get(column, ()), union)
    return Conditions(intervals, tuple(rest))


_MIRRORED = {**MIRRORED, "<>": "<>"}
"""The equivalent operator with the sides exchanged."""


def _intervals(part: Expression, types: Mapping[str, FieldType]) -> tuple[str, Intervals] | None:
    match part:
        case Column():
            return _truth(part, types, value=True)
        case Not() if isinstance(column := bare(part.operand), Column):
            return _truth(column, types, value=False)
        case Chain(word="OR"):
            return _union([_intervals(side, types) for side in disjuncts(part)])
        case Among():
            return _union([_compared("=", bare(part.value), bare(each), types) for each in part.choices])
        case Between():
            value, low, high = map(bare, part.operands)
            return _both(_compared(">=", value, low, types), _compared("<=", value, high, types))
        case Like(escape=None, folds=False):
            return _prefix(part, types)
        case Binary() if part.sign in _MIRRORED:
            one, other = bare(part.left), bare(part.right)
            if isinstance(one, Column):
                return _compared(part.sign, one, other, types)
            return _compared(_MIRRORED[part.sign], other, one, types)
        case _:
            return None


def _truth(column: Column, types: Mapping[str, FieldType], *, value: bool) -> tuple[str, Intervals] | None:
    if types.get(column.name) is not FieldType.BOOLEAN:
        return None
    return column.name, (Interval(int(value), int(value)),)


def _union(sides: list[tuple[str, Intervals] | None]) -> tuple[str, Intervals] | None:
    columns: set[str] = set()
    found: list[Interval] = []
    for side in sides:
        if side is None:
            return None
        columns.add(side[0])
        found += side[1]
    return (columns.pop(), tuple(found)) if len(columns) == 1 else None


def _both(low: tuple[str, Intervals] | None, high: tuple[str, Intervals] | None) -> tuple[str, Intervals] | None:
    if low is None or high is None or low[0] != high[0]:
        return None
    if not low[1] or not high[1]:
        return low[0], ()
    (begin,), (end,) = low[1], high[1]
    return low[0], (Interval(begin.low, end.high, begin.low_open, end.high_open),)


def _compared(
    sign: str, column: Expression, constant: Expression, types: Mapping[str, FieldType]
) -> tuple[str, Intervals] | None:
    kind = types.get(column.name) if isinstance(column, Column) else None
    value = _constant(constant)
    if not isinstance(column, Column) or kind is None or value is None:
        return None
    if isinstance(value, str) != (kind is FieldType.TEXT) or _is_truth(constant) != (kind is FieldType.BOOLEAN):
        return None
    if kind is FieldType.REAL:
        value = float(value)
    if kind is FieldType.INTEGER and isinstance(value, float):
        # Integers beyond this compare as their nearest reals, so their order is not exact.
        return (column.name, _of_integers(sign, value)) if abs(value) < 2**53 else None
    return column.name, _of_values(sign, value)


def _is_truth(constant: Expression) -> bool:
    return isinstance(constant, Literal) and constant.kind is FieldType.BOOLEAN


def _of_values(sign: str, value: Value) -> Intervals:
    if sign == "=":
        return (Interval(value, value),)
    if sign == "<>":
        return (Interval(high=value, high_open=True), Interval(low=value, low_open=True))
    if sign in ("<", "<="):
        return (Interval(high=value, high_open=sign == "<"),)
    return (Interval(low=value, low_open=sign == ">"),)


def _of_integers(sign: str, value: float) -> Intervals:
    """Return the integers that equal a real in comparisons."""
    if sign == "=":
        return (Interval(int(value), int(value)),) if value.is_integer() else ()
    if sign == "<>":
        return _of_values(sign, int(value)) if value.is_integer() else (Interval(),)
    if sign == "<":
        return (Interval(high=math.ceil(value) - 1),)
    if sign == "<=":
        return (Interval(high=math.floor(value)),)
    return (Interval(low=math.floor(value) + 1 if sign == ">" else math.ceil(value)),)


def _constant(constant: Expression) -> Value | None:
    match constant:
        case Negative() if isinstance(number := bare(constant.operand), Literal):
            value = _constant(number)
            return 0 - value if isinstance(value, int | float) else None
        case Literal(kind=FieldType.BOOLEAN):
            return int(constant == TRUE)
        case Literal(kind=FieldType.TEXT):
            return constant.text
        case Literal(kind=FieldType.INTEGER):
            return int(constant.text)
        case Literal(kind=FieldType.REAL):
            # Infinite values are NULL, and equal nothing.
            return float(constant.text) if math.isfinite(float(constant.text)) else None
        case _:
            return None


def _prefix(like: Like, types: Mapping[str, FieldType]) -> tuple[str, Intervals] | None:
    column, text = bare(like.operand), like.pattern
    if not isinstance(column, Column):
        return None
    if types.get(column.name) is not FieldType.TEXT or not text.endswith("%") or set(text[:-1]) & {"%", "_"}:
        return None
    prefix = text[:-1]
    if not prefix:
        return column.name, (Interval(low=""),)
    following = ord(prefix[-1]) + 1
    if SURROGATES[0] <= following <= SURROGATES[1]:
        following = SURROGATES[1] + 1
    if following > LAST_LETTER:
        return None
    return column.name, (Interval(prefix, prefix[:-1] + chr(following), high_open=True),)
