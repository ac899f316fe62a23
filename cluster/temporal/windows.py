"""Extents of windows over a stream, which samples belong to them and which go on with others. Pure.

time window of 10:  samples with a stamp in [newest - 10, newest]; both ends belong to it
count window of 4:  the 4 samples with the largest stamps

**Which samples of a batch come too late for a window by count: as many newer ones came before as it holds.**

One by one this takes a sorted window. For a batch, three steps decide, and most batches need only the first:

1. A sample whose rank is less than a window behind the largest rank before it is not late.
2. The edge of the window (its oldest sample) is found after each piece of half a window, and only moves up: what is
   older than the edge before a piece is late, what is newer than the edge after it is not.
3. Newer samples are counted, with a stable pass over the batch for each bit of their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cluster.errors import ClusterError

Key: TypeAlias = tuple[Any, ...]
"""Values of grouping attributes."""
Position: TypeAlias = tuple[int, Key]
"""Where a sample stands in the order of its stream: its stamp, then the rank of its key."""


class ExtentError(ClusterError):
    """An extent, a coalescing query or a sample that makes no sense."""


@dataclass(frozen=True)
class CountWindow:
    """The `samples` samples with the largest stamps, at least 1."""

    samples: int

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ExtentError(f"a window of {self.samples} samples", hint="keep at least 1")


@dataclass(frozen=True)
class TimeWindow:
    """Samples that are at most `length_us` microseconds older than the newest; 0 keeps those of the newest stamp."""

    length_us: int

    def __post_init__(self) -> None:
        if self.length_us < 0:
            raise ExtentError(f"a window of {self.length_us} us", hint="write a length of 0 or more")


Window: TypeAlias = CountWindow | TimeWindow


def rank(key: Key) -> Key:
    """Return what sorts as the key does, with NULLs last."""
    return tuple((each is None, each) for each in key)


Values: TypeAlias = tuple[Any, ...]
"""Values of coalescing attributes."""


@dataclass(frozen=True)
class Equal:
    """All values are equal: NULL equals NULL, NaN equals nothing."""

    transitive = True

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return earlier == later and all(each == each for each in later)  # noqa: PLR0124 - NaN alone differs from itself


@dataclass(frozen=True)
class Increasing:
    """Each value is larger than the one before; NULL follows only NULL."""

    transitive = False

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return all(_both_null(one, other) or _larger(one, other) for one, other in zip(earlier, later, strict=True))


@dataclass(frozen=True)
class Within:
    """Values differ from their neighbours by at most `tolerance`, or that share of the earlier one if `relative`."""

    tolerance: float
    relative: bool = False
    transitive = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise ExtentError(f"a tolerance of {self.tolerance}", hint="write a number of 0 or more")

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return all(_both_null(one, other) or self._near(one, other) for one, other in zip(earlier, later, strict=True))

    def _near(self, one: Any, other: Any) -> bool:
        if one is None or other is None:
            return False
        return bool(abs(other - one) <= self.tolerance * (abs(one) if self.relative else 1))


@dataclass(frozen=True)
class Satisfying:
    """A predicate of (earlier values, later values), which has to be deterministic; `name` distinguishes such links."""

    name: str
    predicate: Callable[[Values, Values], bool]
    transitive = False

    def __call__(self, earlier: Values, later: Values) -> bool:
        """Return whether the later values go on with the earlier ones."""
        return bool(self.predicate(earlier, later))


Link: TypeAlias = Equal | Increasing | Within | Satisfying
"""`transitive` links may keep one value for a whole run."""


def _both_null(one: Any, other: Any) -> bool:
    return one is None and other is None


def _larger(one: Any, other: Any) -> bool:
    return one is not None and other is not None and bool(other > one)


Whole: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

SMALLEST_PIECE = 100
"""Samples for which the edge is found at once."""


def overtaken(ranks: Whole, live: int, limit: int) -> Flags:
    """Return which samples of a batch come after at least `limit` different ones that are newer.

    Parameters
    ----------
    ranks
        Places in the order of stamps from 0, without gaps: first of the live samples, then of the batch as it came.
        Equal samples have equal ranks.
    live
        How many are live, at most `limit`.
    limit
        Samples of the window.
    """
    batch = ranks[live:]
    newest = np.maximum.accumulate(np.append([-1], ranks))[live:-1]
    late = np.zeros(len(batch), np.bool_)
    if (newest - batch).max() < limit:
        return late
    if int(ranks.max()) + 1 < len(ranks):
        return _late_by_counts(ranks, live, limit)  # some are equal
    window, size = ranks[:live], max(SMALLEST_PIECE, limit // 2)
    for begin in range(0, len(batch), size):
        piece = batch[begin : begin + size]
        passed = piece < newest[begin : begin + size]
        if len(window) == limit:
            late[begin : begin + size] = piece < window.min()
            passed &= piece >= window.min()
        window = np.concatenate((window, piece))
        if len(window) < limit:
            continue
        window = np.partition(window, len(window) - limit)[len(window) - limit :]
        if (passed & (piece <= window.min())).any():
            return _late_by_counts(ranks, live, limit)
    return late


def _late_by_counts(ranks: Whole, live: int, limit: int) -> Flags:
    # A sample that is there already counts once, where it first came.
    first = np.zeros(len(ranks), np.bool_)
    first[np.unique(ranks, return_index=True)[1]] = True
    return np.asarray(newer_before(ranks, first)[live:] >= limit, dtype=np.bool_)


def newer_before(ranks: Whole, counted: Flags) -> Whole:
    """Return, for each place, how many counted places before it have a larger rank.

    Places are divided by the highest bit of their ranks, those by the next, and so on, always in the order in which
    they came: two places differ first in one bit, and only there the smaller counts the larger if it came before.
    """
    places = np.arange(len(ranks))
    found = np.zeros(len(ranks), np.int64)
    for bit in range(int(ranks.max()).bit_length() - 1, -1, -1):
        high = ranks[places] >> bit
        ones = (high & 1) == 1
        counts = np.cumsum(ones & counted[places])
        block = high >> 1
        begins = np.flatnonzero(np.append([True], block[1:] != block[:-1]))
        before = np.where(begins > 0, counts[begins - 1], 0)
        inside = np.repeat(before, np.diff(np.append(begins, len(places))))
        found[places[~ones]] += (counts - inside)[~ones]
        places = places[np.lexsort((ones, block))]
    return found
