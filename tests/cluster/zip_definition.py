"""What a zipper join means, tuple by tuple, from its words alone (docs/reference/sql/temporal-joins.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Row = tuple[Any, ...]
Stamped = tuple[int, Row]


def zipped(
    left: Iterable[Stamped],
    right: Iterable[Stamped],
    key_of: tuple[Callable[[Row], Row], Callable[[Row], Row]],
    bounds: tuple[int, int],
) -> tuple[list[tuple[Stamped, Stamped]], list[Stamped], list[Stamped]]:
    """Pairs, and the tuples of left and right that stay alone.

    Parameters
    ----------
    left, right
        Stamped rows, in any order.
    key_of
        By side: what must be equal, and has no NULL in it.
    bounds
        Least and greatest of the right stamp minus the left one.
    """
    low, high = bounds
    groups: dict[Row, tuple[list[Stamped], list[Stamped]]] = {}
    alone: tuple[list[Stamped], list[Stamped]] = ([], [])
    pairs: list[tuple[Stamped, Stamped]] = []
    for side, rows in enumerate((left, right)):
        for stamped in rows:
            key = key_of[side](stamped[1])
            if None in key:
                alone[side].append(stamped)
            else:
                groups.setdefault(key, ([], []))[side].append(stamped)
    for lefts, rights in groups.values():
        for side in (lefts, rights):
            side.sort(key=_order)
        while lefts and rights:
            (one, _), (other, _) = lefts[0], rights[0]
            if other - one > high:
                alone[0].append(lefts.pop(0))
            elif other - one < low:
                alone[1].append(rights.pop(0))
            elif one < other and any(one < later <= other and low <= other - later <= high for later, _ in lefts):
                alone[0].append(lefts.pop(0))
            elif other < one and any(other < later <= one and low <= later - one <= high for later, _ in rights):
                alone[1].append(rights.pop(0))
            else:
                pairs.append((lefts.pop(0), rights.pop(0)))
        alone[0].extend(lefts)
        alone[1].extend(rights)
    return pairs, *alone


def zip_rows(
    left: Iterable[Stamped],
    right: Iterable[Stamped],
    key_of: tuple[Callable[[Row], Row], Callable[[Row], Row]],
    bounds: tuple[int, int],
    kind: str,
    widths: tuple[int, int],
) -> list[Stamped]:
    """The answer of a zipper join: rows, each with its one instant of validity; `widths` are columns of the sides."""
    pairs, alone_left, alone_right = zipped(left, right, key_of, bounds)
    found = [(max(one[0], other[0]), (*one[1], *other[1], other[0] - one[0])) for one, other in pairs]
    if kind != "inner":
        found += [(at + max(bounds[1], 0), (*row, *[None] * widths[1], None)) for at, row in alone_left]
    if kind == "full":
        found += [(at + max(-bounds[0], 0), (*[None] * widths[0], *row, None)) for at, row in alone_right]
    return found


def _order(stamped: Stamped) -> tuple[Any, ...]:
    stamp, row = stamped
    return stamp, *((value is None, 0 if value is None else value) for value in row)
