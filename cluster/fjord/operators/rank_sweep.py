"""Which rows have which places, and from when to when: a sweep over a span of time, in arrays.

Rows are numbered by group and, within their group, by order. Over a span, those that are valid throughout are *stable*:

    order  1   |=====================|      stable
           2        |----)                  comes and goes
           3   |=====================|      stable: second, third while 2 is valid, then second again
           4            |----------------   with most = 2 never among the first: two stable rows are before it

A row that enough stable rows of its group precede has no place in the span and is left out; a group without other rows
keeps its places without being cut. What is left is cut wherever one of its rows begins or ends; if that gives too many
pieces the span is halved, because shorter spans have more stable rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cluster.fjord.row_order import laid_out
from cluster.operators.columns import RankFunction

Numbers = NDArray[np.int64]
Truths = NDArray[np.bool_]

CLOSED = np.iinfo(np.int64).min
"""In place of an instant: the row has no place at present."""
MOST_PIECES = 20_000
"""Pieces of one span that are looked at together."""
PIECES_PER_ROW = 8
"""A span whose rows have fewer pieces than this on average is not halved: nothing would be gained."""


@dataclass(slots=True)
class RankedRows:
    """The rows of a sweep, ordered by group and place.

    Parameters
    ----------
    group
        The number of its group.
    value
        Equal for rows with equal places, else greater the later it comes; of another group greater than all before.
    start, end
        When it is valid.
    since
        From when on it has had its present place; :data:`CLOSED` if it has none.
    place
        That place.
    """

    group: Numbers
    value: Numbers
    start: Numbers
    end: Numbers
    since: Numbers
    place: Numbers


@dataclass(slots=True)
class Pieces:
    """Rows by number, each with a place from when to when."""

    row: list[Numbers] = field(default_factory=list)
    start: list[Numbers] = field(default_factory=list)
    end: list[Numbers] = field(default_factory=list)
    place: list[Numbers] = field(default_factory=list)

    def add(self, row: Numbers, start: Numbers, end: Numbers, place: Numbers) -> None:
        """Add pieces."""
        if len(row):
            self.row.append(row)
            self.start.append(start)
            self.end.append(end)
            self.place.append(place)

    def joined(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return all pieces."""
        if not self.row:
            nothing = np.empty(0, np.int64)
            return nothing, nothing, nothing, nothing
        row, start, end, place = map(np.concatenate, (self.row, self.start, self.end, self.place))
        return row, start, end, place


class RankSweep:
    """Finds the pieces of time in which rows keep their places.

    Parameters
    ----------
    rows
        The rows; their `since` and `place` change.
    function
        How places are counted.
    above, most
        Places are above the first and at most the second, if there is one.
    shown
        True if another place is another piece; else only having one counts.
    """

    def __init__(self, rows: RankedRows, function: RankFunction, above: int, most: int | None, *, shown: bool) -> None:
        self._rows = rows
        self._function = function
        self._above = above
        self._most = most
        self._shown = shown
        self._marked = np.zeros(int(rows.group[-1]) + 1 if len(rows.group) else 0, np.bool_)
        self._at_start = np.zeros(len(rows.group), np.int64)
        self.ended = Pieces()
        """Pieces that have ended."""

    def run(self, from_us: int, until_us: int) -> None:
        """Sweep over a span in which all rows are known."""
        self._sweep(from_us, until_us, np.arange(len(self._rows.group)))

    def close(self, rows: Numbers, at_us: int) -> None:
        """End the present pieces of some rows."""
        since = self._rows.since[rows]
        had = (since != CLOSED) & (since < at_us)
        done = rows[had]
        self.ended.add(done, since[had], np.full(len(done), at_us, np.int64), self._rows.place[done])
        self._rows.since[rows] = CLOSED

    def _sweep(self, from_us: int, until_us: int, rows: Numbers) -> None:
        start, end = self._rows.start, self._rows.end
        rows = rows[(start[rows] < until_us) & (end[rows] > from_us)]
        stable = (start[rows] <= from_us) & (end[rows] >= until_us)
        before = self._before(rows, stable)
        if self._most is not None:
            out = before >= self._most
            self.close(rows[out], from_us)
            rows, stable, before = rows[~out], stable[~out], before[~out]
        changing = self._rows.group[rows[~stable]]
        self._marked[changing] = True
        still = ~self._marked[self._rows.group[rows]]
        self._marked[changing] = False
        cut = self._cut(rows[~still], from_us, until_us)
        if isinstance(cut, int):
            self._sweep(from_us, cut, rows)
            self._sweep(cut, until_us, rows)
            return
        placed = still & (before >= self._above)
        steady = rows[placed]
        pieces = Pieces()
        pieces.add(
            steady, np.full(len(steady), from_us, np.int64), np.full(len(steady), until_us, np.int64),
            before[placed] + 1,
        )  # fmt: skip
        pieces.add(*cut)
        self._take(rows, pieces, from_us, until_us)

    def _before(self, rows: Numbers, counted: Truths) -> Numbers:
        """Return, for each of some rows, the number of places that the counted rows of its group before it take."""
        if not len(rows):
            return np.empty(0, np.int64)
        values, groups = self._rows.value[rows], self._rows.group[rows]
        first = np.flatnonzero(_begins(values))  # of each value
        many = np.add.reduceat(counted.astype(np.int64), first)
        if self._function == "dense_rank":
            many = np.minimum(many, 1)
        total = np.cumsum(many) - many
        of_value = np.cumsum(_begins(values)) - 1
        firsts = np.flatnonzero(_begins(groups))  # of each group
        of_group = np.cumsum(_begins(groups)) - 1
        found = total[of_value]
        relative: Numbers = found - found[firsts][of_group]
        return relative

    def _cut(
        self, rows: Numbers, from_us: int, until_us: int
    ) -> tuple[Numbers, Numbers, Numbers, Numbers] | int:  # fmt: skip
        """Return the pieces of rows that are cut where others of their group begin or end; or where to halve first."""
        nothing = np.empty(0, np.int64)
        if not len(rows):
            return nothing, nothing, nothing, nothing
        begin = np.maximum(self._rows.start[rows], from_us)
        end = np.minimum(self._rows.end[rows], until_us)
        times, edges = np.unique(np.concatenate((begin, end)), return_inverse=True)
        group = np.tile(np.cumsum(_begins(self._rows.group[rows])) - 1, 2)
        cuts, at = np.unique(group * len(times) + edges, return_inverse=True)
        first, last = at[: len(rows)], at[len(rows) :]
        many = last - first
        pieces = int(many.sum())
        if pieces > max(MOST_PIECES, PIECES_PER_ROW * len(rows)):
            half = _middle(times[edges], from_us, until_us)
            if half is not None:
                return half
        row, span = laid_out(first, many)
        by_span = np.argsort(span, kind="stable")  # rows stay in order
        row, span = row[by_span], span[by_span]
        place = self._places(self._rows.value[rows[row]], span)
        kept = place > self._above
        if self._most is not None:
            kept &= place <= self._most
        row, span, place = row[kept], span[kept], place[kept]
        by_row = np.argsort(row, kind="stable")  # spans stay in order
        row, span, place = row[by_row], span[by_row], place[by_row]
        new = _begins(row) | _steps(span)
        if self._shown:
            new |= _begins(place)
        firsts = np.flatnonzero(new)
        lasts = np.append(firsts[1:], len(row)) - 1 if len(row) else firsts
        at_us = times[cuts % len(times)]
        return rows[row[firsts]], at_us[span[firsts]], at_us[span[lasts] + 1], place[firsts]

    def _places(self, value: Numbers, span: Numbers) -> Numbers:
        """Return places within spans, given the rows of each in order."""
        number = np.arange(len(span))
        first = np.maximum.accumulate(np.where(_begins(span), number, 0))
        if self._function == "row_number":
            return number - first + 1
        new = _begins(span) | _begins(value)
        if self._function == "rank":
            return np.maximum.accumulate(np.where(new, number, 0)) - first + 1
        counted: Numbers = np.cumsum(new)
        return counted - counted[first] + 1

    def _take(self, rows: Numbers, found: Pieces, from_us: int, until_us: int) -> None:
        """Continue the present pieces of rows with those that were found; end those that do not go on."""
        since, place, end = self._rows.since, self._rows.place, self._rows.end
        row, begins, ends, places = found.joined()
        first = begins == from_us
        self._at_start[row[first]] = places[first]
        present = rows[since[rows] != CLOSED]
        now = self._at_start[present]
        goes_on = (now == place[present]) if self._shown else now > 0
        self.close(present[~goes_on], from_us)
        self._at_start[row[first]] = 0
        going = first & (since[row] != CLOSED)
        begins = np.where(going, since[row], begins)
        over = (ends < until_us) | (end[row] == until_us)
        since[row[going]] = CLOSED
        self.ended.add(row[over], begins[over], ends[over], places[over])
        lasting = row[~over]
        since[lasting], place[lasting] = begins[~over], places[~over]


def undominated(rows: RankedRows, most: int, passes: int) -> Truths:
    """Return which rows may still be among the first `most` of their group, when all have begun.

    A row never is if as many rows precede it that last at least as long. They are found in layers: the first are the
    rows that none precedes and outlasts, the second those that are so without the first, and so on. A row behind that
    many layers has a row of each before it (the k-skyband of Mouratidis et al., SIGMOD 2006, and some more).

    Parameters
    ----------
    rows
        The rows.
    most
        How many places there are.
    passes
        Most layers to look for: with more places, rows of equal groups and ends are counted only.
    """
    count = len(rows.group)
    by_end = np.lexsort((rows.value, -rows.end, rows.group))
    kept = np.zeros(count, np.bool_)
    if most > passes:
        new = _begins(rows.group[by_end]) | _begins(rows.end[by_end])
        # Only different values count: rows with equal ones may have equal places.
        value = np.cumsum(new | _begins(rows.value[by_end]))
        first = np.maximum.accumulate(np.where(new, value, 0))
        kept[by_end] = value - first < most
        return kept
    left = by_end
    for _ in range(most):
        if not len(left):
            break
        # Values grow from group to group: less so many times its number, they fall.
        falling = rows.value[left] - rows.group[left] * (count + 1)
        layer = falling == np.minimum.accumulate(falling)
        kept[left[layer]] = True
        left = left[~layer]
    return kept


def _begins(values: Numbers) -> Truths:
    """Return where a value differs from the one before."""
    found = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found


def _steps(values: Numbers) -> Truths:
    """Return where a value is not the one before and one."""
    found = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1] + 1, out=found[1:])
    return found


def _middle(edges: Numbers, from_us: int, until_us: int) -> int | None:
    """Return the median of the edges strictly within a span; None if there is none."""
    within = edges[(edges > from_us) & (edges < until_us)]
    return int(np.partition(within, len(within) // 2)[len(within) // 2]) if len(within) else None
