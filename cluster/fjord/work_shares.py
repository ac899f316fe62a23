"""Which query takes so much of the workers' time that all others fall behind.

A micro-batch is as long for all queries as for the one that takes longest. So a query that never overruns its limit can
still hold up all others, and takes more than its share if all of this holds for a whole window:

    it is computed for most of the time
    answers are late, at every look, and not less so than before: after an outage they become less so
    there are other queries

Pure: what workers have noted, lags and times are given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

WINDOW_SECONDS: Final = 60.0
LATE_SECONDS: Final = 2.0
"""Answers that are later than this are late."""
SHRINKS_SECONDS: Final = 1.0
"""While what has waited is worked off, the least lag shrinks by more than this in half a window."""
NOTED_SECONDS: Final = 0.2
"""A part of a micro-batch in which a fragment takes less is not worth a note."""


class Worked(msgspec.Struct, frozen=True):
    """What a fragment has taken of one part of a micro-batch.

    Parameters
    ----------
    micro_batch
        The micro-batch.
    process
        The worker: its parts follow each other, those of others run beside them.
    fragments
        The fragment, or those that share what was computed.
    seconds
        How long it was computed.
    """

    micro_batch: str
    process: int
    fragments: tuple[str, ...]
    seconds: float


class WorkShares:
    """Adds up what fragments take.

    Parameters
    ----------
    most
        The share of the time for which a fragment may be computed while all answers are late; 0 for no limit.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._worked: deque[tuple[float, Worked]] = deque()
        self._lags: deque[tuple[float, float]] = deque()
        """When it was looked, and how far the queries were behind."""

    def idle(self, now_seconds: float) -> bool:
        """Return whether nothing has taken much for a whole window: then there is nothing to look at."""
        self._forget(now_seconds - WINDOW_SECONDS)
        if not self._worked:
            self._lags.clear()
        return not self._worked

    def noted(
        self, worked: Iterable[Worked], *, lag_seconds: float, fragments: int, now_seconds: float
    ) -> tuple[str, str] | None:
        """Return the fragment that takes more than its share, and why it does; None if none does.

        Parameters
        ----------
        worked
            What workers have noted since the last look.
        lag_seconds
            How far the queries are behind that are behind most.
        fragments
            How many there are in the plan.
        now_seconds
            A time that only goes forward.
        """
        self._worked += ((now_seconds, each) for each in worked)
        self._lags.append((now_seconds, lag_seconds))
        begin = now_seconds - WINDOW_SECONDS
        self._forget(begin)
        while len(self._lags) > 1 and self._lags[1][0] <= begin:
            self._lags.popleft()
        if not self._most or fragments < 2 or self._lags[0][0] > begin or not self._all_late(begin):  # noqa: PLR2004
            return None
        taken = self._taken()
        if not taken:
            return None
        fragment, seconds = max(taken.items(), key=lambda each: each[1])
        if seconds < self._most * WINDOW_SECONDS:
            return None
        least = min(lag for _, lag in self._lags)
        self._worked.clear()
        self._lags.clear()
        return fragment, (
            f"it was computed for {min(seconds, WINDOW_SECONDS):.0f} of {WINDOW_SECONDS:.0f} s, in which queries were "
            f"{least:.0f} s behind or more"
        )

    def _forget(self, before: float) -> None:
        while self._worked and self._worked[0][0] < before:
            self._worked.popleft()

    def _all_late(self, begin: float) -> bool:
        middle = begin + WINDOW_SECONDS / 2
        first = min((lag for at, lag in self._lags if at < middle), default=0.0)
        then = min((lag for at, lag in self._lags if at >= middle), default=0.0)
        return first >= LATE_SECONDS and then >= max(LATE_SECONDS, first - SHRINKS_SECONDS)

    def _taken(self) -> dict[str, float]:
        """Return for how long each fragment was computed; workers side by side count once."""
        by_worker: dict[tuple[str, str], dict[int, float]] = {}
        for _, each in self._worked:
            for fragment in each.fragments:
                workers = by_worker.setdefault((fragment, each.micro_batch), {})
                workers[each.process] = workers.get(each.process, 0.0) + each.seconds
        found: dict[str, float] = {}
        for (fragment, _), workers in by_worker.items():
            found[fragment] = found.get(fragment, 0.0) + max(workers.values())
        return found
