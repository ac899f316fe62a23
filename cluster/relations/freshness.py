"""The freshness of a relation, and when to read it again: decisions without any I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
JITTER = 0.1
"""Share by which times between two reads vary, so that many relations are not read at once."""


class State(StrEnum):
    """The state of a relation."""

    FRESH = "fresh"
    STALE = "stale"
    """The source cannot be read, and the last rows stay in use."""
    AWAY = "away"
    """The source cannot be read, and there are no rows that may stay in use."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """The state of reading a relation's source. Times are seconds of a monotonic clock.

    Parameters
    ----------
    refresh_seconds
        Time between two reads.
    stale_seconds
        How long its last rows may stay in use; None for ever.
    fresh_at
        When the rows were last known to be current; None if they never were.
    failures
        Failed reads in a row.
    reason
        Why the last read failed; empty if it succeeded.
    """

    refresh_seconds: float
    stale_seconds: float | None = None
    fresh_at: float | None = None
    failures: int = 0
    reason: str = ""

    def succeeded(self, now: float) -> Freshness:
        """Return the state after a successful read at `now`."""
        return replace(self, fresh_at=now, failures=0, reason="")

    def failed(self, reason: str) -> Freshness:
        """Return the state after a failed read."""
        return replace(self, failures=self.failures + 1, reason=reason)

    def pause(self, chance: float) -> float:
        """Return the seconds until the next read.

        Parameters
        ----------
        chance
            A random number from 0 to 1.
        """
        if self.failures:
            seconds = min(FIRST_RETRY_SECONDS * 2.0 ** min(self.failures - 1, 16), LONGEST_RETRY_SECONDS)
            seconds = min(seconds, self.refresh_seconds)
        else:
            seconds = self.refresh_seconds
        return seconds * (1 + JITTER * (2 * chance - 1))

    def age(self, now: float) -> float | None:
        """Return how long ago the rows were surely current; None if there are none."""
        return None if self.fresh_at is None else max(now - self.fresh_at, 0.0)

    def overdue(self, now: float) -> bool:
        """Return whether its last rows may no longer be used."""
        age = self.age(now)
        return bool(self.failures) and age is not None and self.stale_seconds is not None and age >= self.stale_seconds

    def state(self, now: float) -> State:
        """Return the state of the relation."""
        if self.fresh_at is None or self.overdue(now):
            return State.AWAY
        return State.STALE if self.failures else State.FRESH
