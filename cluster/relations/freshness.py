"""How fresh a relation is, and when to look again: decisions without any I/O."""

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
    """The source cannot be read, the last rows go on."""
    AWAY = "away"
    """It cannot be read, and there are no rows to go on with, or no longer."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """What is known of a relation's source. Times are seconds of a clock that is never set.

    Parameters
    ----------
    refresh_seconds
        Between two looks at it.
    stale_seconds
        How long its last rows may go on; None for ever.
    fresh_at
        When the rows were last known to be its; None if they never were.
    failures
        In a row.
    reason
        Why it could not be read the last time; empty if it could.
    """

    refresh_seconds: float
    stale_seconds: float | None = None
    fresh_at: float | None = None
    failures: int = 0
    reason: str = ""

    def succeeded(self, now: float) -> Freshness:
        """Return what is known after it has been read at `now`."""
        return replace(self, fresh_at=now, failures=0, reason="")

    def failed(self, reason: str) -> Freshness:
        """Return what is known after it could not be read."""
        return replace(self, failures=self.failures + 1, reason=reason)

    def pause(self, chance: float) -> float:
        """Return the seconds until it is looked at again.

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
        """Return whether its last rows must not go on any longer."""
        age = self.age(now)
        return bool(self.failures) and age is not None and self.stale_seconds is not None and age >= self.stale_seconds

    def state(self, now: float) -> State:
        """Return how it is."""
        if self.fresh_at is None or self.overdue(now):
            return State.AWAY
        return State.STALE if self.failures else State.FRESH
