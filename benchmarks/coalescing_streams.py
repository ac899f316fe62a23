"""Streams for the benchmarks of coalescing, and the paper's own structure: one array of runs, searched from its end.

The generator hits a probability that a sample coalesces with the one before in its group, and one that it comes out of
order within its group (papers/coalescing.md section 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

VALUES = 4

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Columns of samples, in the order in which they come."""

    stamps: Whole
    groups: Whole
    values: Whole

    def __len__(self) -> int:
        return len(self.stamps)

    def tuples(self) -> list[tuple[int, int, int]]:
        """Return (stamp, group, value) of each sample."""
        columns = (self.stamps, self.groups, self.values)
        return list(zip(*(each.tolist() for each in columns), strict=True))


def drawn(count: int, *, groups: int, coalescing: float, disorder: float, window: int, seed: int) -> Samples:
    """Draw a stream of a probability to coalesce and one to come out of order, of which no sample is too late."""
    random = np.random.default_rng(seed)
    group = random.integers(0, groups, count)
    fresh = random.random(count) >= coalescing
    values = np.empty(count, np.int64)
    places: list[Whole] = []
    longest = max(1, window // (2 * groups))
    order = np.arange(count)
    for each in range(groups):
        own = np.flatnonzero(group == each)
        # A fresh value differs from the one before, but is one of few: late samples may cut runs.
        values[own] = np.cumsum(fresh[own] * random.integers(1, VALUES, len(own))) % VALUES
        places.append(own)
        late = random.random(len(own)) < disorder
        begin = 0
        while begin < len(own):
            end = begin + 1
            while end < len(own) and late[end] and end - begin < longest:
                end += 1
            order[own[begin:end]] = own[begin:end][::-1]
            begin = end
    return Samples(order, group[order], values[order])


class ArrayExtent:
    """All runs of a window in one list by start, found by looking at one after the other from the end, as in the paper.

    With the corrections of papers/coalescing.md section 2.3. Runs are lists of start, end, later stamps, group, value.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._runs: list[list[Any]] = []
        self._samples = 0
        self.done = ""
        """What the last update was: merge, split or insert."""

    def insert(self, stamp: int, group: int, value: int) -> None:
        """Add a sample that is not too late."""
        runs = self._runs
        place = len(runs)
        while place and runs[place - 1][0] > stamp:
            place -= 1
        before, after = place - 1, place
        while before >= 0 and runs[before][3] != group:
            before -= 1
        while after < len(runs) and runs[after][3] != group:
            after += 1
        known = runs[before] if before >= 0 else None
        following = runs[after] if after < len(runs) else None
        self._samples += 1
        if known is not None and known[4] == value:
            self.done = "merge"
            _add_sorted(known[2], stamp)
            known[1] = following[0] if following is not None else known[2][-1]
        elif known is not None and known[2] and stamp < known[2][-1]:
            self.done = "split"
            later = [each for each in known[2] if each > stamp]
            half = [later[0], known[1], later[1:], group, known[4]]
            known[1], known[2] = stamp, [each for each in known[2] if each < stamp]
            runs.insert(place, [stamp, half[0], [], group, value])
            at = place + 1
            while at < len(runs) and runs[at][0] < half[0]:
                at += 1
            runs.insert(at, half)
        elif following is not None and following[4] == value:
            self.done = "merge"
            del runs[after]
            runs.insert(place, [stamp, following[1], [following[0], *following[2]], group, value])
            if known is not None:
                known[1] = stamp
        else:
            self.done = "insert"
            runs.insert(place, [stamp, following[0] if following is not None else stamp, [], group, value])
            if known is not None:
                known[1] = stamp

    def expire(self) -> str:
        """Drop the oldest sample of a window that is too full: "detach" from a run, or "delete" it; "" if it is not."""
        if self._samples <= self._window:
            return ""
        self._samples -= 1
        run = self._runs[0]
        if not run[2]:
            del self._runs[0]
            return "delete"
        run[0] = run[2].pop(0)
        place = 1
        while place < len(self._runs) and self._runs[place][0] < run[0]:
            place += 1
        self._runs.insert(place, run)
        del self._runs[0]
        return "detach"

    def scan(self) -> list[tuple[int, int, int, int]]:
        """Return group, start, end and value of each run."""
        return [(group, start, end, value) for start, end, _, group, value in self._runs]


def _add_sorted(stamps: list[int], stamp: int) -> None:
    place = len(stamps)
    while place and stamps[place - 1] > stamp:
        place -= 1
    stamps.insert(place, stamp)
