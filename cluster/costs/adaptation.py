"""Which sizes of windows and granules fit into a budget (papers/pipes_adaptation.md section 1). Pure.

    share  0 ------------- 0.35 --- 0.4 ------- 1
           worst            |        |          best
           coarsest         |        does not fit
                            the largest that fits

One share for all: every range is at the size closest to this share of its way from the worst to the best. Shares are
tried in a few steps from the best; below the first step that does not fit, that of windows alone is bisected, as
granularities have few sizes.

What was in force when is a history of changes.

Two rules of the thesis are kept as the reference, and nothing uses them (decision 0065): bounds that queries could
share (:func:`shared_bounds`), and where granularities become finer within one plan (:func:`instant_for`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

T = TypeVar("T")
RESERVE = 0.2
"""The share of a budget that stays free of queries with ranges: changes take effect late, and rates rise in bursts."""
STEPS = 10
"""In so many steps shares are tried."""
FINENESS = 2.0**-20
"""How far a bisection is from the largest share that fits, at most."""
WORTHWHILE = 0.1
"""Sizes grow only where the share becomes larger by as much as this: each change keeps state twice for a while."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What queries take.

    Parameters
    ----------
    state_bytes
        The state that they keep.
    busy
        The share of a processor's time that they take; more than 1 with several.
    """

    state_bytes: float = 0.0
    busy: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """Return what both take together."""
        return Cost(self.state_bytes + other.state_bytes, self.busy + other.busy)

    def fits(self, budget: Cost) -> bool:
        """Return whether it is within a budget."""
        return self.state_bytes <= budget.state_bytes and self.busy <= budget.busy

    def less_reserve(self) -> Cost:
        """Return what of a budget queries with ranges may be adapted to."""
        return Cost(self.state_bytes * (1 - RESERVE), self.busy * (1 - RESERVE))


UNLIMITED = Cost(math.inf, math.inf)
CostAt = Callable[[float, float], Cost]
"""Returns what everything costs with windows and granularities at a share each; more with a larger share."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Shares that fit.

    Parameters
    ----------
    windows, granularities
        The shares, from 0 for the worst to 1 for the best.
    cost
        What is estimated with them.
    """

    windows: float
    granularities: float
    cost: Cost


def adapt(cost_at: CostAt, budget: Cost, steps: int = STEPS, fineness: float = FINENESS) -> Fit | None:
    """Return the largest shares that fit; None if even the worst sizes do not.

    Parameters
    ----------
    cost_at
        The costs.
    budget
        What they may be.
    steps
        How many steps there are from the best to the worst.
    fineness
        How exact the share of windows is.
    """
    for step in range(steps, -1, -1):
        share = step / steps
        cost = cost_at(share, share)
        if cost.fits(budget):
            break
    else:
        return None
    fit, above = Fit(share, share, cost), min((step + 1) / steps, 1.0)
    if share < above and (cost := cost_at(above, share)).fits(budget):  # coarser granules made room for it
        return Fit(above, share, cost)
    while above - fit.windows > fineness:
        middle = (fit.windows + above) / 2
        cost = cost_at(middle, share)
        if cost.fits(budget):
            fit = Fit(middle, share, cost)
        else:
            above = middle
    return fit


@dataclass(frozen=True, slots=True)
class Bounds:
    """The sizes that one query allows of a window: all from `least` to `most`."""

    least: int
    most: int

    def shared_with(self, other: Bounds) -> Bounds | None:
        """Return the sizes that both allow; None if there are none, and each needs a window of its own."""
        least, most = max(self.least, other.least), min(self.most, other.most)
        return Bounds(least, most) if least <= most else None


@dataclass(frozen=True, slots=True)
class Granules:
    """The granules that one query allows."""

    sizes: frozenset[int]

    def shared_with(self, other: Granules) -> Granules | None:
        """Return the granules that both allow; None if there are none."""
        both = self.sizes & other.sizes
        return Granules(both) if both else None


class Shareable(Protocol):
    """What queries can share, if they agree on it."""

    def shared_with(self, other: Self, /) -> Self | None:
        """Return what both allow; None if nothing."""


A = TypeVar("A", bound=Shareable)


def shared_bounds(asked: Iterable[A]) -> list[tuple[A, tuple[int, ...]]]:
    """Return which queries can share a window or granularity: bounds that all of a group allow, and their places.

    Parameters
    ----------
    asked
        What queries allow that differ in nothing else, oldest first: a query joins the first group that it fits into,
        and none is left without a size for it. When a query ends this is computed anew.
    """
    common: list[A] = []
    places: list[tuple[int, ...]] = []
    for place, bounds in enumerate(asked):
        for number, each in enumerate(common):
            if (both := each.shared_with(bounds)) is not None:
                common[number], places[number] = both, (*places[number], place)
                break
        else:
            common.append(bounds)
            places.append((place,))
    return list(zip(common, places, strict=True))


@dataclass(frozen=True)
class History(Generic[T]):
    """What was in force from which instant on.

    Parameters
    ----------
    changes
        Instants, ascending, and what is in force from each of them on; microseconds since 1970.
    """

    changes: tuple[tuple[int, T], ...] = ()

    def changed(self, at_us: int, value: T) -> History[T]:
        """Return the history with a change; changes that were planned for this instant or later never happen."""
        kept = tuple(each for each in self.changes if each[0] < at_us)
        return History((*kept, (at_us, value)))

    def pruned(self, oldest_us: int) -> History[T]:
        """Return what explains instants from `oldest_us` on: what is in force then, and all later changes."""
        return History(self.changes[max(self._place(oldest_us), 0) :])

    def at(self, at_us: int) -> T | None:
        """Return what is in force at an instant; None before the first change."""
        place = self._place(at_us)
        return self.changes[place][1] if place >= 0 else None

    def during(self, start_us: int, end_us: int) -> Sequence[tuple[int, T]]:
        """Return what is in force in an interval: at its start, and what begins within it."""
        first = max(self._place(start_us), 0)
        return [each for each in self.changes[first:] if each[0] < end_us]

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """Return the changes."""
        return iter(self.changes)

    def _place(self, at_us: int) -> int:
        return bisect_right(self.changes, at_us, key=lambda each: each[0]) - 1


def instant_for(earliest_us: int, grids: Iterable[int]) -> int:
    """Return the first instant from `earliest_us` on that is a multiple of all of some steps.

    A granularity becomes finer only there, where the coarser one has an instant, too: else a row of the coarser one
    would reach into the finer one, and be ordered behind rows that begin later (section 3).

    Parameters
    ----------
    earliest_us
        The earliest instant that will do.
    grids
        Granules and slides, before and after the change, in microseconds.
    """
    step_us = math.lcm(1, *grids)
    return -(-earliest_us // step_us) * step_us
