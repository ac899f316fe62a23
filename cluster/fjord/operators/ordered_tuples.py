"""Tuples in the order of their keys and stamps, as arrays: where the tuples of a key begin, and frames of them.

place      0  1  2  3  4        a key is a run of places; the frame of a tuple is a range of places within it
key        a  a  a  b  b
stamp      3  3  7  1  9        frame of place 2, 4 us back: [0, 3)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cluster.fjord.ranges import Places

Stamps = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class OrderedTuples:
    """Tuples, sorted by key, stamp and values.

    Parameters
    ----------
    keys
        A number for each key: equal ones lie together.
    stamps
        Their stamps.
    carried
        Those that were there before, whose running results are known.
    """

    keys: Places
    stamps: Stamps
    carried: Flags

    @cached_property
    def begins(self) -> Places:
        """By key: the place of its first tuple."""
        changes = np.diff(self.keys) != 0
        return np.flatnonzero(np.concatenate((np.ones(min(len(self.keys), 1), np.bool_), changes)))

    @cached_property
    def counts(self) -> Places:
        """By key: how many tuples it has."""
        return np.diff(np.append(self.begins, len(self.keys)))

    @cached_property
    def begin(self) -> Places:
        """By tuple: where its key begins."""
        return np.repeat(self.begins, self.counts)

    @cached_property
    def end(self) -> Places:
        """By tuple: where its key ends."""
        return np.repeat(self.begins + self.counts, self.counts)

    @cached_property
    def fresh(self) -> Places:
        """By tuple: where the tuples begin that the running result of its key does not contain yet.

        The result of the first tuple of a key that was there before stands for all before, and for itself.
        """
        return self.begin + self.carried[self.begin]

    @cached_property
    def peers_end(self) -> Places:
        """By tuple: the place behind the last tuple of its key with its stamp."""
        last = np.ones(len(self.keys), np.bool_)
        last[:-1] = (np.diff(self.keys) != 0) | (np.diff(self.stamps) != 0)
        ends = np.flatnonzero(last) + 1
        return np.repeat(ends, np.diff(np.concatenate(([0], ends))))

    @cached_property
    def carried_begins(self) -> Places:
        """Where the keys begin that were there before: the result of these places contains their own values."""
        return self.begins[self.carried[self.begins]]

    @cached_property
    def _numbered(self) -> tuple[Stamps, Places, Places]:
        """The stamps, each once; by tuple: a number of its key, and one of key and stamp, which rises."""
        known, ranks = np.unique(self.stamps, return_inverse=True)
        keys = np.repeat(np.arange(len(self.begins)), self.counts) * (len(known) + 1)
        return known, keys, keys + ranks

    def since(self, places: Places, range_us: int) -> Places:
        """Return, for each of some tuples, the first tuple of its key that is at most so much older."""
        return self._first(places, range_us, "left")

    def until(self, places: Places, older_us: int) -> Places:
        """Return, for each of some tuples, the place behind the last of its key that is at least so much older."""
        return self._first(places, older_us, "right") if older_us else self.peers_end[places]

    def _first(self, places: Places, older_us: int, side: Literal["left", "right"]) -> Places:
        """Return the first tuple of the same key that is at most so much older; on the right, that is less old."""
        known, keys, both = self._numbered
        wanted = np.searchsorted(known, self.stamps[places] - older_us, side=side)
        return np.searchsorted(both, keys[places] + wanted).astype(np.int64)

    def folded(self, values: NDArray[np.generic], combine: np.ufunc) -> NDArray[np.generic]:
        """Return the running result of each key, one value after the other: it depends on nothing but their order."""
        found = values.copy()
        several = self.counts > 1
        begins, counts = self.begins[several], self.counts[several]
        if len(begins) <= counts.max(initial=0):
            for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
                found[begin : begin + count] = combine.accumulate(values[begin : begin + count])
            return found
        for place in range(1, int(counts.max(initial=0))):
            at = begins[counts > place] + place
            found[at] = combine(found[at - 1], values[at])
        return found


def following(flags: Flags) -> Places:
    """Return, by place, the first place from there on that is marked; the length where there is none."""
    places = np.where(flags, np.arange(len(flags)), len(flags))
    return np.minimum.accumulate(places[::-1])[::-1]


def preceding(flags: Flags) -> Places:
    """Return, by place, the last place up to there that is marked; -1 where there is none."""
    return np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))
