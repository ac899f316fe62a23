"""Which samples an extent accepts, and how far it reaches back: decided once for all extents of a window. Pure.

papers/coalescing.md section 2.1. The printed algorithms evict before they look whether a sample is too late, so that
a sample that is refused shrinks the window; here nothing changes for one that is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum, auto

from cluster.temporal.windows import CountWindow, Key, Position, Window, rank


class Verdict(Enum):
    """What becomes of a sample."""

    ACCEPTED = auto()
    LATE = auto()
    """It would have expired already."""
    DUPLICATE = auto()
    """There is one of this stamp and key."""


class Admission:
    """Positions of the live samples of a window.

    Parameters
    ----------
    window
        The extent.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._live: list[Position] = []
        self.clock_us: int | None = None
        """The largest stamp, or the instant to which time has advanced."""
        self.accepted = 0
        self.late = 0
        self.duplicates = 0

    def __len__(self) -> int:
        """Return how many samples are live."""
        return len(self._live)

    @property
    def oldest(self) -> Position | None:
        """The first live sample; what is before it has expired."""
        return self._live[0] if self._live else None

    def admit(self, stamp: int, key: Key) -> Verdict:
        """Decide about a sample, and let others expire if it is accepted."""
        position = (stamp, rank(key))
        if self._is_late(position):
            self.late += 1
            return Verdict.LATE
        place = bisect_left(self._live, position)
        if place < len(self._live) and self._live[place] == position:
            self.duplicates += 1
            return Verdict.DUPLICATE
        self._live.insert(place, position)
        self.accepted += 1
        self.clock_us = stamp if self.clock_us is None else max(self.clock_us, stamp)
        self._expire()
        return Verdict.ACCEPTED

    def advance(self, now_us: int) -> None:
        """Let time pass to an instant, so that samples of a window by time expire without a newer one."""
        self.clock_us = now_us if self.clock_us is None else max(self.clock_us, now_us)
        self._expire()

    def _is_late(self, position: Position) -> bool:
        if isinstance(self._window, CountWindow):
            return len(self._live) == self._window.samples and position < self._live[0]
        return self.clock_us is not None and position[0] < self.clock_us - self._window.length_us

    def _expire(self) -> None:
        if isinstance(self._window, CountWindow):
            del self._live[: max(0, len(self._live) - self._window.samples)]
        elif self.clock_us is not None:
            del self._live[: bisect_left(self._live, (self.clock_us - self._window.length_us, ()))]
