"""Spans of time, and how many samples of a period fall into them. Pure.

A span is half open: from its first instant up to, not including, its second.
"""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def united(spans: Iterable[Span]) -> list[Span]:
    """Return disjoint spans, ascending, that hold the same instants.

    Examples
    --------
    >>> united([(5, 9), (0, 2), (2, 3), (4, 4), (6, 7)])
    [(0, 3), (5, 9)]
    """
    found: list[Span] = []
    for begin, end in sorted(spans):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def within(spans: Iterable[Span], bounds: Span) -> list[Span]:
    """Return the part of spans that lies within another.

    Examples
    --------
    >>> within([(0, 3), (5, 9)], (2, 6))
    [(2, 3), (5, 6)]
    """
    low, high = bounds
    return [(max(begin, low), min(end, high)) for begin, end in spans if max(begin, low) < min(end, high)]


def without(spans: Iterable[Span], removed: Iterable[Span]) -> list[Span]:
    """Return the part of disjoint spans that is in none of `removed`.

    Examples
    --------
    >>> without([(0, 3), (5, 9)], [(2, 6), (8, 9)])
    [(0, 2), (6, 8)]
    """
    left = list(spans)
    for low, high in removed:
        left = [
            piece
            for begin, end in left
            for piece in ((begin, min(end, low)), (max(begin, high), end))
            if piece[0] < piece[1]
        ]
    return left


def multiples_in(spans: Iterable[Span], period_us: int) -> int:
    """Return how many whole multiples of a period lie in disjoint spans: at these instants samples are taken.

    Examples
    --------
    >>> multiples_in([(0, 10), (11, 21)], 10)
    2
    """
    return sum(-(-end // period_us) - -(-begin // period_us) for begin, end in spans)
