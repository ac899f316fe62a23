"""Shapes of intervals of what is joined or united: in which order, does not matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple


class ShapesTogether(NamedTuple):
    """What several plans have to do with each other, and how often each shape is among them."""

    kind: str
    counts: frozenset[tuple[Hashable, int]]


def shapes_together(kind: str, shapes: Iterable[Hashable | None]) -> ShapesTogether | None:
    """Return the shape of what is joined or united; None if any has none."""
    found: Counter[Hashable] = Counter()
    for each in shapes:
        if each is None:
            return None
        if isinstance(each, ShapesTogether) and each.kind == kind:
            found.update(dict(each.counts))
        else:
            found[each] += 1
    return ShapesTogether(kind, frozenset(found.items()))
