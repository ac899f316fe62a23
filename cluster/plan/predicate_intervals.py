"""Conditions as intervals of a column's values: what a predicate index can look up.

``speed > 20 AND lane IN (1, 2) AND sensor LIKE 'I-8%'`` is three sets of intervals and no rest. What is no interval of
one column's values (functions, columns compared with each other, IS NULL) stays an expression.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sqlglot import exp

from cluster.language.algebra import Scalar, Schema
from cluster.language.dialect import canonical, parse_scalar
from cluster.language.syntax import conjuncts, disjuncts
from protocols.streams import FieldType

Value = int | float | str
LAST_LETTER = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `low` to `high`; None is no bound. NULL is in no interval."""

    low: Value | None = None
    high: Value | None = None
    low_open: bool = False
    high_open: bool = False


Intervals = tuple[Interval, ...]
"""A union; none of them is no value at all."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """A predicate taken apart; all its parts must hold.

    Parameters
    ----------
    intervals
        By column: unions of intervals, each of which must contain the value.
    rest
        What is no interval, as expressions.
    """

    intervals: Mapping[str, tuple[Intervals, ...]] = field(default_factory=dict)
    rest: tuple[Scalar, ...] = ()


@lru_cache(maxsize=65_536)
def take_apart(predicate: Scalar | None, columns: Schema) -> Conditions:
    """Return the intervals in a predicate, and the rest of it.

    Parameters
    ----------
    predicate
        None for no condition.
    columns
        What it may read.
    """
    if predicate is None:
        return Conditions()
    types = {column.name: column.type for column in columns}
    intervals: dict[str, tuple[Intervals, ...]] = {}
    rest: list[Scalar] = []
    for part in conjuncts(parse_scalar(predicate.sql)):
        found = _intervals(part.unnest(), types)
        if found is None:
            rest.append(Scalar(canonical(part), FieldType.BOOLEAN))
        else:
            column, union = found
            intervals[column] = (*intervals.get(column, ()), union)
    return Conditions(intervals, tuple(rest))


_MIRRORED = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ, exp.NEQ: exp.NEQ}


def _intervals(part: exp.Expr, types: Mapping[str, FieldType]) -> tuple[str, Intervals] | None:
    match part:
        case exp.Column():
            return _truth(part, types, value=True)
        case exp.Not() if isinstance(part.this.unnest(), exp.Column):
            return _truth(part.this.unnest(), types, value=False)
        case exp.Or():
            return _union([_intervals(side, types) for side in disjuncts(part)])
        case exp.In() if part.expressions:
            return _union([_compared(exp.EQ, part.this.unnest(), each.unnest(), types) for each in part.expressions])
        case exp.Between():
            value, low, high = (part.args[name].unnest() for name in ("this", "low", "high"))
            return _both(_compared(exp.GTE, value, low, types), _compared(exp.LTE, value, high, types))
        case exp.Like():
            return _prefix(part, types)
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            one, other = part.this.unnest(), part.expression.unnest()
            if isinstance(one, exp.Column):
                return _compared(type(part), one, other, types)
            return _compared(_MIRRORED[type(part)], other, one, types)
        case _:
            return None


def _truth(column: exp.Expr, types: Mapping[str, FieldType], *, value: bool) -> tuple[str, Intervals] | None:
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
    sign: type[exp.Expr], column: exp.Expr, constant: exp.Expr, types: Mapping[str, FieldType]
) -> tuple[str, Intervals] | None:
    kind = types.get(column.name) if isinstance(column, exp.Column) else None
    value = _constant(constant)
    if kind is None or value is None or isinstance(value, str) != (kind is FieldType.TEXT):
        return None
    if isinstance(constant, exp.Boolean) != (kind is FieldType.BOOLEAN):
        return None
    if kind is FieldType.REAL:
        value = float(value)
    if kind is FieldType.INTEGER and isinstance(value, float):
        # Integers beyond compare as the nearest reals: not as they lie on the line.
        return (column.name, _of_integers(sign, value)) if abs(value) < 2**53 else None
    return column.name, _of_values(sign, value)


def _of_values(sign: type[exp.Expr], value: Value) -> Intervals:
    if sign is exp.EQ:
        return (Interval(value, value),)
    if sign is exp.NEQ:
        return (Interval(high=value, high_open=True), Interval(low=value, low_open=True))
    if sign in (exp.LT, exp.LTE):
        return (Interval(high=value, high_open=sign is exp.LT),)
    return (Interval(low=value, low_open=sign is exp.GT),)


def _of_integers(sign: type[exp.Expr], value: float) -> Intervals:
    """Return the integers that compare with a real."""
    if sign is exp.EQ:
        return (Interval(int(value), int(value)),) if value.is_integer() else ()
    if sign is exp.NEQ:
        return _of_values(sign, int(value)) if value.is_integer() else (Interval(),)
    if sign is exp.LT:
        return (Interval(high=math.ceil(value) - 1),)
    if sign is exp.LTE:
        return (Interval(high=math.floor(value)),)
    return (Interval(low=math.floor(value) + 1 if sign is exp.GT else math.ceil(value)),)


def _constant(constant: exp.Expr) -> Value | None:
    match constant:
        case exp.Neg() if isinstance(constant.this.unnest(), exp.Literal):
            value = _constant(constant.this.unnest())
            return 0 - value if isinstance(value, int | float) else None
        case exp.Boolean():
            return int(bool(constant.this))
        case exp.Literal():
            text = str(constant.this)
            if constant.is_string:
                return text
            if text.isdecimal():
                return int(text)
            # What is infinite is NULL, and equals nothing.
            return float(text) if math.isfinite(float(text)) else None
        case _:
            return None


def _prefix(like: exp.Like, types: Mapping[str, FieldType]) -> tuple[str, Intervals] | None:
    column, pattern = like.this.unnest(), like.expression
    if not (isinstance(column, exp.Column) and isinstance(pattern, exp.Literal)):
        return None
    text = str(pattern.this)
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
