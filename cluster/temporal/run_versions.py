"""How the coalesced rows of samples change as samples enter a window and leave it. Pure.

sample       1  2  3     entered 1, 2, 3, left 4, 5, 6; the third begins another run
row of 1, 2  [1, 1)  from 1 on,  [1, 2)  from 2 on,  [1, 3)  from 3 on,  [2, 3)  from 4 to 5
row of 3                                 [3, 3)  from 3 to 6

A *version* is a row that stays the same for some time. Where the samples of a group leave in the order in which they
came, a run keeps its samples for ever, and each of its versions follows from two places: those of the first sample that
has not left and of the last one that has entered (:func:`of_runs`). Else, and where runs are not kept, what is there at
each instant is coalesced anew (:func:`of_snapshots`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cluster.temporal.windows import Flags, Whole

Linked: TypeAlias = Callable[[Whole, Whole], Flags]
"""Whether the samples at the second places go on with those at the first."""

NONE = -(2**63)
"""No instant."""


@dataclass(frozen=True)
class Samples:
    """Samples, sorted by group, stamp and what breaks ties.

    Parameters
    ----------
    groups
        A number for each group, ascending.
    enters, leaves
        From when until when each is in the window.
    stamps
        When it was sampled.
    since
        Of the first sample of each row that there was at the instant before: since when the row has been the same;
        :data:`NONE` of all others.
    """

    groups: Whole
    enters: Whole
    leaves: Whole
    stamps: Whole
    since: Whole

    def with_rows(self, since: Whole) -> Samples:
        """Return the samples with other rows of the instant before."""
        return Samples(self.groups, self.enters, self.leaves, self.stamps, since)

    @property
    def in_turn(self) -> bool:
        """Whether the samples of each group enter and leave in their order."""
        same = self.groups[1:] == self.groups[:-1]
        ordered = (np.diff(self.enters) >= 0) & (np.diff(self.leaves) >= 0)
        return bool((ordered | ~same).all())


@dataclass(frozen=True)
class Versions:
    """Rows that stay the same: the place of the first sample, the end of the interval, and the instants."""

    first: Whole
    ends: Whole
    since: Whole
    until: Whole
    """:data:`NONE` of rows that are still there at the last instant."""


def of_runs(samples: Samples, begins: Flags, before_us: int, until_us: int) -> Versions:
    """Return the versions from one instant until just before another, where samples leave in the order they came.

    Parameters
    ----------
    samples
        The samples that were there at the instant before the first, or have entered since.
    begins
        Which of them begin a run, if they are not linked with the one before; the first of each group does.
    before_us, until_us
        The instants.
    """
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(begins)) - 1
    runs = np.cumsum(begins) - 1
    follows = np.minimum(lasts + 1, len(begins) - 1)
    followed = (follows > lasts) & (samples.groups[follows] == samples.groups[firsts])
    open_ = samples.since[firsts] != NONE
    behind = np.flatnonzero(followed)
    of, at = _between(
        before_us,
        until_us,
        (runs, samples.enters),
        (runs, samples.leaves),
        (behind, samples.enters[follows[behind]]),
        (np.flatnonzero(open_), np.full(int(open_.sum()), before_us - 1)),
    )
    known = np.unique(np.concatenate((samples.enters, samples.leaves, at)))
    width = len(known) + 1
    asked = of * width + np.searchsorted(known, at)
    first = np.searchsorted(runs * width + np.searchsorted(known, samples.leaves), asked, side="right")
    last = np.searchsorted(runs * width + np.searchsorted(known, samples.enters), asked, side="right") - 1
    there = (first <= lasts[of]) & (last >= first)
    next_there = followed[of] & (samples.enters[follows[of]] <= at)
    ends = samples.stamps[np.where(next_there, follows[of], np.maximum(last, 0))]
    return _versions(samples, before_us, (of, at, np.where(there, first, -1), ends))


def of_snapshots(samples: Samples, linked: Linked, before_us: int, until_us: int) -> Versions:
    """Return the same by coalescing what is there at each instant at which something changes.

    Parameters
    ----------
    samples, before_us, until_us
        As of :func:`of_runs`.
    linked
        Compares neighbours.
    """
    groups, enters, leaves = samples.groups, samples.enters, samples.leaves
    open_ = np.unique(groups[samples.since != NONE])
    of, at = _between(
        before_us, until_us, (groups, enters), (groups, leaves), (open_, np.full(len(open_), before_us - 1))
    )
    known = np.unique(np.concatenate((enters, leaves, at)))
    width = len(known) + 1
    asked = of * width + np.searchsorted(known, at)
    entered, left = (groups * width + np.searchsorted(known, times) for times in (enters, leaves))
    if samples.in_turn:  # those that are there at an instant stand beside each other
        snapshot, place = _ranges(np.searchsorted(left, asked, "right"), np.searchsorted(entered, asked, "right"))
    else:
        place, snapshot = _ranges(np.searchsorted(asked, entered), np.searchsorted(asked, left))
        order = np.argsort(snapshot, kind="stable")
        place, snapshot = place[order], snapshot[order]
    if not len(place):
        nothing = np.empty(0, np.int64)
        return Versions(nothing, nothing, nothing, nothing)
    begins = np.ones(len(place), np.bool_)
    neighbours = np.flatnonzero(snapshot[1:] == snapshot[:-1])
    begins[1:][neighbours] = ~_linked_once(linked, place[neighbours], place[neighbours + 1])
    heads = np.flatnonzero(begins)
    after = np.append(heads[1:], len(place))
    following = np.minimum(after, len(place) - 1)
    goes_on = (after < len(place)) & (snapshot[following] == snapshot[heads])
    ends = samples.stamps[place[np.where(goes_on, following, after - 1)]]
    # By first sample, and then as they were: by instant. A row is another one where there was none at the one before.
    first, number = place[heads], snapshot[heads]
    order = np.argsort(first, kind="stable")
    first, number, ends = first[order], number[order], ends[order]
    new = np.ones(len(first), np.bool_)
    new[1:] = (np.diff(first) != 0) | (np.diff(ends) != 0) | (np.diff(number) != 1)
    begun = np.flatnonzero(new)
    gone = number[np.append(begun[1:], len(first)) - 1] + 1
    next_ = np.minimum(gone, len(of) - 1)
    ended = (gone < len(of)) & (of[next_] == of[gone - 1])
    first, ends, since = first[begun], ends[begun], at[number[begun]]
    since = np.where(since < before_us, samples.since[first], since)
    return Versions(first, ends, since, np.where(ended, at[next_], NONE))


def _ranges(first: Whole, after: Whole) -> tuple[Whole, Whole]:
    """Return the numbers of ranges from one number until just before another, and all numbers that are in them."""
    counts = np.maximum(after - first, 0)
    of = np.repeat(np.arange(len(first)), counts)
    return of, np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(of))


def pairs_of_snapshots(samples: Samples, before_us: int, until_us: int) -> int:
    """Return how many samples there are at the instants at which something changes, all together, at most."""
    instants = ((times >= before_us) & (times < until_us) for times in (samples.enters, samples.leaves))
    size = int(samples.groups.max(initial=-1)) + 1
    changes = sum(np.bincount(samples.groups[each], minlength=size) for each in instants) + 1
    return int((np.bincount(samples.groups, minlength=size) * changes).sum())


def _linked_once(linked: Linked, earlier: Whole, later: Whole) -> Flags:
    """Compare each pair of neighbours once, however often they stand beside each other."""
    if (later - earlier == 1).all():
        at = np.zeros(int(later.max(initial=0)) + 1, np.bool_)
        at[later] = True
        places = np.flatnonzero(at)
        at[places] = linked(places - 1, places)
        return at[later]
    width = max(int(later.max(initial=0)) + 1, 1)
    pairs, inverse = np.unique(earlier * width + later, return_inverse=True)
    return linked(pairs // width, pairs % width)[inverse]


def _between(before_us: int, until_us: int, *changes: tuple[Whole, Whole]) -> tuple[Whole, Whole]:
    """Return what changes when, each once, by what and when; of instants, those from the one before the first."""
    of = np.concatenate([each for each, _ in changes])
    at = np.concatenate([times for _, times in changes])
    # At the instant before the first there are only rows that have been there before.
    opened = np.zeros(len(at), np.bool_)
    opened[len(at) - len(changes[-1][1]) :] = True
    within = ((at >= before_us) & (at < until_us)) | opened
    of, at = of[within], at[within]
    order = np.lexsort((at, of))
    of, at = of[order], at[order]
    new = np.ones(len(at), np.bool_)
    new[1:] = (of[1:] != of[:-1]) | (at[1:] != at[:-1])
    return of[new], at[new]


def _versions(samples: Samples, before_us: int, rows: tuple[Whole, Whole, Whole, Whole]) -> Versions:
    """Return rows that are the same for some time.

    Given are, by what they are of and when, rows at instants: both, the place of the first sample or -1, and the end.
    """
    of, at, first, ends = rows
    new = np.ones(len(of), np.bool_)
    new[1:] = (of[1:] != of[:-1]) | (first[1:] != first[:-1]) | ((ends[1:] != ends[:-1]) & (first[1:] >= 0))
    of, at, first, ends = of[new], at[new], first[new], ends[new]
    until = np.full(len(of), NONE)
    same = of[1:] == of[:-1]
    until[:-1][same] = at[1:][same]
    since = np.where(at < before_us, samples.since[np.maximum(first, 0)], at)
    shown = first >= 0
    return Versions(first[shown], ends[shown], since[shown], until[shown])
