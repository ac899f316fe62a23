"""What joins by stamps mean, tuple by tuple, from their words alone (docs/reference/sql/temporal-joins.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = tuple[Any, ...]
Stamped = tuple[int, Row]
Meets = Callable[[Row, Row], bool]


def asof_rows(
    left: Sequence[Stamped],
    right: Sequence[Stamped],
    meets: Meets,
    bounds: tuple[int | None, int],
    kind: str,
    width: int,
) -> list[Stamped]:
    """The answer of an ASOF join: rows, each with its one instant of validity.

    Parameters
    ----------
    left, right
        Stamped rows, in any order.
    meets
        Whether a row of the left and one of the right have equal keys.
    bounds
        Least and greatest of the right stamp minus the left one; None for no least one.
    kind
        Whether left rows without a partner are answered.
    width
        How many columns the right has.
    """
    low, high = bounds
    found = []
    for at, row in left:
        near = [each for each in right if (low is None or each[0] - at >= low) and each[0] - at <= high]
        partners = [each for each in near if meets(row, each[1])]
        if partners:
            found.append((at, (*row, *max(partners, key=_order)[1])))
        elif kind != "inner":
            found.append((at, (*row, *[None] * width)))
    return found


def interval_rows(
    left: Sequence[Stamped],
    right: Sequence[Stamped],
    meets: Meets,
    bounds: tuple[int, int],
    kind: str,
    widths: tuple[int, int],
) -> list[Stamped]:
    """The answer of an interval join: rows, each with its one instant of validity; parameters as above."""
    low, high = bounds
    if kind == "right":
        turned = interval_rows(right, left, lambda one, other: meets(other, one), (-high, -low), "left", widths[::-1])
        return [(at, (*row[widths[1] :], *row[: widths[1]])) for at, row in turned]
    pairs = [
        (one, other) for one in left for other in right if low <= other[0] - one[0] <= high and meets(one[1], other[1])
    ]
    found = [(max(one[0], other[0]), (*one[1], *other[1])) for one, other in pairs]
    met_left = {id(one) for one, _ in pairs}
    met_right = {id(other) for _, other in pairs}
    if kind != "inner":
        alone = [each for each in left if id(each) not in met_left]
        found += [(at + max(high, 0), (*row, *[None] * widths[1])) for at, row in alone]
    if kind == "full":
        alone = [each for each in right if id(each) not in met_right]
        found += [(at + max(-low, 0), (*[None] * widths[0], *row)) for at, row in alone]
    return found


def stamp_join_rows(
    left: Sequence[Stamped],
    right: Sequence[Stamped],
    meets: Meets,
    bounds: tuple[int | None, int],
    kind: str,
    widths: tuple[int, int],
    *,
    latest: bool,
) -> list[Stamped]:
    """The answer of either join."""
    low, high = bounds
    if latest:
        return asof_rows(left, right, meets, bounds, kind, widths[1])
    assert low is not None
    return interval_rows(left, right, meets, (low, high), kind, widths)


def _order(stamped: Stamped) -> tuple[Any, ...]:
    stamp, row = stamped
    return stamp, *((value is not None, 0 if value is None else value) for value in row)
