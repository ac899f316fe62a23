"""What an author allows of windows and granularities: ranges in a plan, and the plan that has one choice of each.

    WINDOW(RANGE MIN 1 HOUR, MAX 12 HOURS)      1h, 2h, ... 12h
    GRANULARITY(COARSEST 1 HOUR, FINEST 1 MINUTE)    1h, 30m, 10m, 2m, 1m

A plan of the algebra keeps the range beside the size that holds (:class:`Allowed`). What runs has none:
:func:`with_sizes` gives the plan of a choice, and everything below it knows sizes only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from cluster.operators import Aggregate, Granularity, Node, TimeWindow, WindowBounds
from cluster.operators.walks import from_below, rebuilt
from cluster.operators.window_shapes import Allowed, Span
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration

Kind = Literal["window", "granularity"]
FEWEST_STEPS = 4
"""A window without SLIDE changes by the largest unit of which its range has as many as this."""
_UNITS_US = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000)
_ROUND = {
    1: (1, 2, 5, 10, 20, 50, 100, 200, 500),
    1_000: (1, 2, 5, 10, 20, 50, 100, 200, 500),
    1_000_000: (1, 2, 5, 10, 15, 30),
    60_000_000: (1, 2, 5, 10, 15, 30),
    3_600_000_000: (1, 2, 3, 6, 12),
    86_400_000_000: (1, 7),
}
"""Granules that people use, by their unit in microseconds."""


class SizeRange(msgspec.Struct, frozen=True, order=True):
    """A range of a plan: what it is of, its ends, and how far apart the sizes in it are.

    Parameters
    ----------
    kind
        What it is of.
    worst_us, best_us
        The shortest and the longest window; the coarsest and the finest granule.
    step_us
        Windows change by multiples of it; 0 for granularities, whose sizes are divisors of one another.
    """

    kind: Kind
    worst_us: int
    best_us: int
    step_us: int = 0

    @property
    def words(self) -> str:
        """The range as it is written."""
        low, high = format_duration(self.worst_us), format_duration(self.best_us)
        return f"RANGE MIN {low}, MAX {high}" if self.kind == "window" else f"COARSEST {low}, FINEST {high}"

    def at(self, share: float) -> int:
        """Return the size closest to this share of the way from the worst (0) to the best (1), in microseconds.

        Of two that are equally close it is the worse one.
        """
        wanted = self.worst_us + share * (self.best_us - self.worst_us)
        if self.kind == "granularity":
            return min(granules(self.worst_us, self.best_us), key=lambda each: (abs(each - wanted), -each))
        if share >= 1:
            return self.best_us
        steps = math.ceil((wanted - self.worst_us) / self.step_us - 1 / 2)
        return min(self.worst_us + max(steps, 0) * self.step_us, self.best_us)

    def within(self, share: float) -> int:
        """Return the best size that is not better than this share of the way: at most what the share costs."""
        wanted = self.worst_us + share * (self.best_us - self.worst_us)
        if self.kind == "granularity":
            return min(each for each in granules(self.worst_us, self.best_us) if each >= wanted)
        if share >= 1:
            return self.best_us
        return self.worst_us + math.floor((wanted - self.worst_us) / self.step_us) * self.step_us


Sizes = Mapping[SizeRange, int]
"""By range: the size that holds, in microseconds."""
BEST: Sizes = {}


def granules(coarsest_us: int, finest_us: int) -> tuple[int, ...]:
    """Return the granules of a range, from the coarsest: each a multiple of the next, round where that is possible.

    >>> granules(3_600_000_000, 60_000_000)
    (3600000000, 1800000000, 600000000, 120000000, 60000000)
    """
    found = [finest_us]
    for unit_us, counts in _ROUND.items():
        for count in counts:
            each = unit_us * count
            if found[-1] < each < coarsest_us and each % found[-1] == 0 and coarsest_us % each == 0:
                found.append(each)
    return (*((coarsest_us,) if coarsest_us > finest_us else ()), *reversed(found))


def step_of_window(least_us: int, most_us: int, slide_us: int) -> int:
    """Return by which multiples a window changes: by its slide, or the largest unit that fits into its range.

    >>> step_of_window(3_600_000_000, 12 * 3_600_000_000, 1)
    3600000000
    >>> step_of_window(60_000_000, 120_000_000, 1)
    1000000
    """
    for unit_us in _UNITS_US:
        whole = least_us % unit_us == 0 and most_us % unit_us == 0 and unit_us % slide_us == 0
        if whole and most_us - least_us >= FEWEST_STEPS * unit_us:
            return unit_us
    return slide_us


def range_of(node: Node) -> SizeRange | None:
    """Return the range that the author of a window or granularity allows; None if there is none."""
    match node:
        case TimeWindow(allowed=Allowed() as allowed):
            step_us = step_of_window(allowed.worst_us, allowed.best_us, node.slide_us)
            return SizeRange("window", allowed.worst_us, allowed.best_us, step_us)
        case Granularity(allowed=Allowed() as allowed):
            return SizeRange("granularity", allowed.worst_us, allowed.best_us)
        case _:
            return None


@remembered
def ranges_of(node: Node) -> tuple[SizeRange, ...]:
    """Return the different ranges of a plan, in the order in which it reads its streams."""
    found = (range_of(each) for each in from_below(node))
    return tuple(dict.fromkeys(each for each in found if each is not None))


def with_sizes(node: Node, sizes: Sizes = BEST) -> Node:
    """Return the plan with one choice of each range, and without ranges; the best of those that are not chosen.

    Parameters
    ----------
    node
        A plan as it was translated: what is made of it may depend on sizes.
    sizes
        By range, in microseconds.
    """
    if not ranges_of(node):
        return node

    def chosen(current: Node) -> Node:
        found = range_of(current)
        if found is None:
            return current
        size_us = sizes.get(found, found.best_us)
        if isinstance(current, Granularity):
            return replace(current, granule_us=size_us, allowed=UNSET)
        assert isinstance(current, TimeWindow)  # noqa: S101 - nothing else has a range
        return replace(current, size_us=size_us, allowed=UNSET)

    def change(current: Node) -> Node:
        # A window is replaced with what is above it, which may show its bounds.
        if isinstance(current, WindowBounds) and (size_us := _size_shown(current, sizes)) is not None:
            return replace(current, grid=replace(current.grid, size=Span("us", size_us)))
        return current

    return rebuilt(rebuilt(node, change), chosen)


def _size_shown(node: WindowBounds, sizes: Sizes) -> int | None:
    """Return the size of the window whose bounds a node shows, if it has a range."""
    below = node.input.below_filters
    window = below.input.below_filters if isinstance(below, Aggregate) else below
    found = range_of(window)
    return None if found is None else sizes.get(found, found.best_us)
