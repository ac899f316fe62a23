"""Ranks that a condition above them bounds: ``WHERE place <= 3`` over ``ROW_NUMBER() OVER (...) AS place``.

    filter place <= 3                                   filter place <= 3
    `- project segment, speed, place            ->      `- project segment, speed, place
       `- keep if any ...                                  `- keep if any ...
          `- places by segment, in order                      `- places by segment, in order, up to 3

The condition stays where it is, so the meaning stays, too: rows with higher places would be removed further up. With
the bound, few rows of a group have to be kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from cluster.expressions.conditions import MIRRORED, conjuncts, disjuncts
from cluster.expressions.nodes import Among, Between, Binary, Column, Expression, Literal, bare
from cluster.operators import (
    Aggregate,
    AntiJoin,
    Difference,
    Distinct,
    Dstream,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    Project,
    Ranked,
    SemiJoin,
    TimeWindow,
    Union,
)
from cluster.operators.columns import Scalar
from cluster.operators.scalar_expressions import plain_column
from cluster.operators.walks import above
from protocols.wire.streams import FieldType

Bounds = Mapping[str, int]
"""By column: the greatest value that is asked for."""


def with_rank_bounds(node: Node) -> Node:
    """Return a plan whose ranks have the bounds that conditions above them give; it means the same."""
    return _Bounding().bounded(node, {})


class _Bounding:
    """Remembers what has been found out about parts of a plan that several others share."""

    def __init__(self) -> None:
        self._done: dict[tuple[int, frozenset[tuple[str, int]]], tuple[Node, Node]] = {}

    def bounded(self, node: Node, bounds: Bounds) -> Node:
        """Return a plan of which only rows within bounds are asked for."""
        bounds = {name: bounds[name] for name in _names(node) if name in bounds} if bounds else bounds
        key = (id(node), frozenset(bounds.items()))
        if key not in self._done:
            below = _bounds_below(node, bounds)
            inputs = tuple([self.bounded(each, known) for each, known in zip(node.inputs, below, strict=True)])
            self._done[key] = (node, _ranked(above(node, inputs), bounds))
        return self._done[key][-1]


def _ranked(node: Node, bounds: Bounds) -> Node:
    if not isinstance(node, Ranked) or node.name is None or node.name not in bounds:
        return node
    most = max(bounds[node.name], 0)
    return node if node.most is not None and node.most <= most else replace(node, most=most)


def _bounds_below(node: Node, bounds: Bounds) -> tuple[Bounds, ...]:
    """Return, by input, which rows are asked for, given those of the node that are."""
    match node:
        case Filter():
            return (_both(bounds, _bounds_of(node.predicate)),)
        case Project():
            passed = {output.name: plain_column(output.scalar) for output in node.outputs}
            return (_least((name, most) for each, most in bounds.items() if (name := passed.get(each)) is not None),)
        case Distinct() | Granularity() | Istream() | Dstream() | TimeWindow():
            return (bounds,)
        case Lookup():
            known = _both(bounds, _bounds_of(node.predicate)) if node.kind in ("inner", "semi") else bounds
            return (known,)
        case Aggregate() | PartitionedWindow() | Ranked():
            return ({name: most for name, most in bounds.items() if name in node.keys},)
        case Join():
            known = _both(bounds, _bounds_of(node.predicate))
            return known, known
        case SemiJoin():
            known = _bounds_of(node.predicate)
            return _both(bounds, known), known
        case AntiJoin():
            return bounds, _bounds_of(node.predicate)
        case Union() | Difference() | Intersection():
            names = dict(zip(_names(node.left), _names(node.right), strict=True))
            return bounds, {names[name]: most for name, most in bounds.items()}
        case _:
            return tuple({} for _ in node.inputs)


def _names(node: Node) -> list[str]:
    return [column.name for column in node.schema]


def _bounds_of(predicate: Scalar | None) -> Bounds:
    return {} if predicate is None else _of_condition(predicate.expression)


def _of_condition(condition: Expression) -> Bounds:
    """Return the greatest values of columns with which a condition may be true."""
    parts = conjuncts(condition)
    if len(parts) > 1:
        return _least(each for part in parts for each in _of_condition(part).items())
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


def _compared(name: str, sign: str, value: Literal) -> Bounds:
    if value.kind not in (FieldType.INTEGER, FieldType.REAL) or sign in (">", ">="):
        return {}
    number = int(value.text) if value.kind == FieldType.INTEGER else float(value.text)
    if not math.isfinite(number):
        return {}
    return {name: math.ceil(number) - 1 if sign == "<" else math.floor(number)}


def _both(one: Bounds, other: Bounds) -> Bounds:
    return _least((*one.items(), *other.items()))


def _least(bounds: Iterable[tuple[str, int]]) -> Bounds:
    found: dict[str, int] = {}
    for name, most in bounds:
        found[name] = min(most, found.get(name, most))
    return found
