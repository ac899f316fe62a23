"""Ranks that a condition above them bounds: ``WHERE place <= 3`` over ``ROW_NUMBER() OVER (...) AS place``.

    filter place <= 3                                   filter place <= 3
    `- project segment, speed, place            ->      `- project segment, speed, place
       `- keep if any ...                                  `- keep if any ...
          `- places by segment, in order                      `- places by segment, in order, up to 3

The condition stays where it is, so the meaning stays, too: rows with higher places would be removed further up. With
the bound, few rows of a group have to be kept.
"""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import (
    Node,
    Ranked,
)
from cluster.operators.greatest_values import Greatest
from cluster.operators.walks import above


def with_rank_bounds(node: Node) -> Node:
    """Return a plan whose ranks have the bounds that conditions above them give; it means the same."""
    return _Bounding().bounded(node, {})


class _Bounding:
    """Remembers what has been found out about parts of a plan that several others share."""

    def __init__(self) -> None:
        self._done: dict[tuple[int, frozenset[tuple[str, int]]], tuple[Node, Node]] = {}

    def bounded(self, node: Node, bounds: Greatest) -> Node:
        """Return a plan of which only rows within bounds are asked for."""
        bounds = {name: bounds[name] for name in _names(node) if name in bounds} if bounds else bounds
        key = (id(node), frozenset(bounds.items()))
        if key not in self._done:
            below = node.greatest_below(bounds)
            inputs = tuple([self.bounded(each, known) for each, known in zip(node.inputs, below, strict=True)])
            self._done[key] = (node, _ranked(above(node, inputs), bounds))
        return self._done[key][-1]


def _ranked(node: Node, bounds: Greatest) -> Node:
    if not isinstance(node, Ranked) or node.name is None or node.name not in bounds:
        return node
    most = max(bounds[node.name], 0)
    return node if node.most is not None and node.most <= most else replace(node, most=most)


def _names(node: Node) -> list[str]:
    return [column.name for column in node.schema]
