"""Which plans' rows last as long as the tuples that they are made of, whatever else the streams have.

Such a row is part of two plans' answers with the same interval, so that a migration has nothing to cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from msgspec import UNSET

from cluster.language.algebra import Filter, Join, Lookup, Node, Project, Source, TimeWindow, Union, inputs_of
from cluster.language.instants import is_instantaneous


def interval_shape(plan: Node) -> Hashable | None:
    """Return what decides how long a plan's rows last: plans with equal snapshots and equal shapes have equal rows.

    A row is a tuple of each stream that is joined, and lasts while all of these are in their windows. So filters and
    projections do not matter, and neither does the order of joins and unions.

    None for all other plans. Their rows also begin and end where other tuples do, so that the same snapshots may be
    cut in many ways: groups at every tuple that an aggregate gets to see, ranked rows even with the progress of time.
    """
    try:
        return _shape(plan, ())
    except _NoShapeError:
        return None


class _NoShapeError(Exception):
    pass


def _shape(node: Node, windows: tuple[Hashable, ...]) -> Hashable:
    match node:
        case Source():
            return "source", node.stream, node.sample_period_us, node.detector, windows
        case TimeWindow() if is_instantaneous(node.input):
            grid = None if node.grid is UNSET else node.grid
            return _shape(node.input, (*windows, (node.size_us, node.slide_us, grid)))
        case Filter() | Project() | Lookup():
            return _shape(node.input, windows)
        case Union():
            return "union", _bag(_flat(node, Union, windows))
        case Join() if not windows:
            return "join", _bag(_flat(node, Join, windows))
        case _:
            raise _NoShapeError


def _flat(node: Node, kind: type[Join | Union], windows: tuple[Hashable, ...]) -> list[Hashable]:
    """Return the shapes of all that is joined, or united."""
    below = node
    while isinstance(below, Filter | Project | Lookup):
        below = below.input
    if isinstance(below, kind):
        return [shape for each in inputs_of(below) for shape in _flat(each, kind, windows)]
    return [_shape(node, windows)]


def _bag(shapes: list[Hashable]) -> Hashable:
    return frozenset(Counter(shapes).items())
