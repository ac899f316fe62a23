"""Half-open intervals of validity: relations, durations, and coalescing of stored rows. Pure.

papers/coalescing.md section 4.3.

a  |-----)
b     |-----)      a and b overlap, their intersection is what both cover
c        |-----)   a meets c: they share no instant
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

FOREVER = 2**63 - 1
"""The end of what still holds: after every instant."""


class Interval(NamedTuple):
    """From `start`, up to `end` exclusively."""

    start: int
    end: int


def overlaps(one: Interval, other: Interval) -> bool:
    """Return whether the intervals share an instant.

    An empty interval overlaps one that begins before it and ends after it, but not itself.
    """
    return one.start < other.end and other.start < one.end


def intersection(one: Interval, other: Interval) -> Interval | None:
    """Return what both cover; None if there is a gap between them."""
    start, end = max(one.start, other.start), min(one.end, other.end)
    return Interval(start, end) if start <= end else None


def duration_in(interval: Interval | None, unit: int) -> int | None:
    """Return how many whole units an interval lasts; None if there is none."""
    return None if interval is None else (interval.end - interval.start) // unit


def coalesced_rows(rows: Iterable[tuple[Any, Interval]]) -> list[tuple[Any, Interval]]:
    """Merge intervals of equal keys that meet or overlap (papers/coalescing.md section 2.8).

    Keys have to sort; the result is sorted by key and start.
    """
    found: list[tuple[Any, Interval]] = []
    for key, interval in sorted(rows):
        if found and found[-1][0] == key and interval.start <= found[-1][1].end:
            known = found[-1][1]
            found[-1] = (key, Interval(known.start, max(known.end, interval.end)))
        else:
            found.append((key, interval))
    return found
