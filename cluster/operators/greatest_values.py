"""The greatest values of columns that conditions let pass: ``place <= 3``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cluster.expressions.conditions import MIRRORED, conjuncts, disjuncts
from cluster.expressions.nodes import Among, Between, Binary, Column, Expression, Literal, bare
from cluster.operators.columns import Scalar
from protocols.wire.streams import FieldType

Greatest = Mapping[str, int]
"""By column: the greatest value that is asked for."""


def greatest_of(predicate: Scalar | None) -> Greatest:
    """Return the greatest values of columns with which a condition may be true."""
    return {} if predicate is None else _of_condition(predicate.expression)


def _of_condition(condition: Expression) -> Greatest:
    parts = conjuncts(condition)
    if len(parts) > 1:
        return least(each for part in parts for each in _of_condition(part).items())
    choices = disjuncts(condition)
    if len(choices) > 1:
        found = [_of_condition(each) for each in choices]
        common = set(found[0]).intersection(*found[1:])
        return {name: max(each[name] for each in found) for name in common}
    match bare(condition):
        case Binary(sign=sign, left=Column(name=name), right=Literal() as value) if sign in MIRRORED:
            return _compared(name, sign, value)
        case Binary(sign=sign, left=Literal() as value, right=Column(name=name)) if sign in MIRRORED:
            return _compared(name, MIRRORED[sign], value)
        case Between(value=Column(name=name), high=Literal() as value):
            return _compared(name, "<=", value)
        case Among(value=Column(name=name), choices=values) if all(isinstance(each, Literal) for each in values):
            bounds = [_compared(name, "=", each).get(name) for each in values if isinstance(each, Literal)]
            return {name: max(each for each in bounds if each is not None)} if bounds and None not in bounds else {}
        case _:
            return {}


def _compared(name: str, sign: str, value: Literal) -> Greatest:
    if value.kind not in (FieldType.INTEGER, FieldType.REAL) or sign in (">", ">="):
        return {}
    number = int(value.text) if value.kind == FieldType.INTEGER else float(value.text)
    if not math.isfinite(number):
        return {}
    return {name: math.ceil(number) - 1 if sign == "<" else math.floor(number)}


def both(one: Greatest, other: Greatest) -> Greatest:
    """Return what both say."""
    return least((*one.items(), *other.items()))


def least(bounds: Iterable[tuple[str, int]]) -> Greatest:
    """Return the least of each column."""
    found: dict[str, int] = {}
    for name, most in bounds:
        found[name] = min(most, found.get(name, most))
    return found
