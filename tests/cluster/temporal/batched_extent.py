"""An eager extent that is updated by whole batches of columns (papers/coalescing.md section 2.3).

Pure. The coalesced state is a function of the live samples alone, so a batch is added at once: what has expired is cut
off, what is left is sorted by group and stamp, and runs begin where a neighbour does not link. Merging, cutting and
bridging of runs by late samples need no cases. State and counters are those of samples that are added one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cluster.temporal.windows import CountWindow, ExtentError, Flags, Whole, Window, overtaken

Numbers: TypeAlias = npt.NDArray[np.generic]
Links: TypeAlias = Callable[[Numbers, Numbers], Flags]
"""Which of the second values go on with the first ones beside them."""


def equal(earlier: Numbers, later: Numbers) -> Flags:
    """Link equal values; NaN equals nothing."""
    return np.asarray(earlier == later, dtype=np.bool_)


class BatchedExtent:
    """The live samples of a window, sorted by group and stamp, and where runs begin.

    Parameters
    ----------
    window
        The extent.
    links
        Which value goes on with the one before, for arrays. Values of several attributes are coded as one number.
    dtype
        Type of values.

    No two samples of one group have equal stamps; of equal stamps, the smaller group is the older sample.
    """

    def __init__(self, window: Window, links: Links = equal, dtype: npt.DTypeLike = np.int64) -> None:
        self._window = window
        self._links = links
        self._clock_us: int | None = None
        self.groups: Whole = np.empty(0, np.int64)
        self.stamps: Whole = np.empty(0, np.int64)
        self.values: Numbers = np.empty(0, dtype)
        self.begins: Flags = np.empty(0, np.bool_)
        """Which live samples begin a run."""
        self.late = 0
        self.duplicates = 0

    def insert(self, stamps: Whole, groups: Whole, values: Numbers) -> None:
        """Take a batch of samples, in the order in which they came."""
        if not len(stamps) == len(groups) == len(values):
            raise ExtentError(f"{len(stamps)} stamps, {len(groups)} groups and {len(values)} values")
        if not len(stamps):
            return
        clock_before, newest = self._clock_us, int(stamps.max())
        self._clock_us = newest if clock_before is None else max(newest, clock_before)
        live = len(self.stamps)
        self.stamps = np.concatenate((self.stamps, stamps))
        self.groups = np.concatenate((self.groups, groups))
        self.values = np.concatenate((self.values, values))
        order, known = _in_order(self.stamps, self.groups)
        if isinstance(self._window, CountWindow):
            ranks = np.empty(len(order), np.int64)
            ranks[order] = np.cumsum(~known) - 1 if known.any() else np.arange(len(order))
            late = overtaken(ranks, live, self._window.samples)
        else:
            late = _late_by(clock_before, stamps, self._window.length_us)
        self.late += int(late.sum())
        if known.any():
            self.duplicates += int((~late[order[known] - live]).sum())
            order = order[~known]
        # What is late is older than all that stays: it goes with what has expired.
        self._keep(order)

    def advance(self, now_us: int) -> None:
        """Let time pass to an instant: what expires by then goes."""
        self._clock_us = now_us if self._clock_us is None else max(self._clock_us, now_us)
        self._keep(_in_order(self.stamps, self.groups)[0])

    def runs(self) -> tuple[Whole, Whole, Whole, Numbers]:
        """Return group, start, end and first value of each run, by group and start."""
        first = np.flatnonzero(self.begins)
        if not len(first):
            return self.groups[:0], self.stamps[:0], self.stamps[:0], self.values[:0]
        after = np.append(first[1:], len(self.stamps))
        last = after - 1
        following = np.minimum(after, len(self.stamps) - 1)
        goes_on = (after < len(self.stamps)) & (self.groups[following] == self.groups[first])
        ends = np.where(goes_on, self.stamps[following], self.stamps[last])
        return self.groups[first], self.stamps[first], ends, self.values[first]

    def _keep(self, order: Whole) -> None:
        """Keep what is live of places in the order of stamps, and find where runs begin."""
        if isinstance(self._window, CountWindow):
            order = order[-self._window.samples :]
        elif self._clock_us is not None:
            order = order[np.searchsorted(self.stamps[order], self._clock_us - self._window.length_us) :]
        kept = order[np.argsort(_narrow(self.groups[order]), kind="stable")]
        self.stamps, self.groups, self.values = self.stamps[kept], self.groups[kept], self.values[kept]
        self.begins = np.ones(len(self.stamps), np.bool_)
        same = self.groups[1:] == self.groups[:-1]
        self.begins[1:] = ~(same & self._links(self.values[:-1], self.values[1:]))


def _in_order(stamps: Whole, groups: Whole) -> tuple[Whole, Flags]:
    """Return places by stamp, group and place, and which of them have the stamp and group of the one before."""
    order = np.argsort(stamps, kind="stable")
    known = np.zeros(len(order), np.bool_)
    known[1:] = stamps[order][1:] == stamps[order][:-1]
    if known.any():
        order = np.lexsort((groups, stamps))
        known[1:] = stamps[order][1:] == stamps[order][:-1]
        known[1:] &= groups[order][1:] == groups[order][:-1]
    return order, known


def _narrow(groups: Whole) -> npt.NDArray[np.signedinteger[Any]]:
    """Return few groups as 16 bits, which are sorted by radix."""
    return groups.astype(np.int16) if len(groups) and groups.min() >= 0 and groups.max() < 2**15 else groups


def _late_by(clock_us: int | None, stamps: Whole, length_us: int) -> Flags:
    """Return which samples are older than the newest one before them by more than a length."""
    first = int(stamps[0]) if clock_us is None else clock_us
    before = np.maximum(first, np.append(first, np.maximum.accumulate(stamps)[:-1]))
    return np.asarray(stamps < before - length_us, dtype=np.bool_)
