"""While a broker is away: how long to wait before each attempt, and which attempts are logged.

Logged are the first that fails, one with another reason, and one a minute.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 15.0
REPEATED_SECONDS = 60.0
"""An outage is logged again after so long, however often the broker is tried."""


def pauses(random_source: random.Random) -> Iterator[float]:
    """Yield the seconds to wait before each new attempt: doubling, bounded, each with up to half of it as jitter."""
    longest = FIRST_PAUSE_SECONDS
    while True:
        yield longest * (0.5 + random_source.random() / 2)
        longest = min(2 * longest, LONGEST_PAUSE_SECONDS)


class Outage:
    """The attempts to reach a broker since it was reached last."""

    def __init__(self) -> None:
        self.attempts = 0
        """How many have failed."""
        self._began = 0.0
        self._logged: tuple[str, float] | None = None

    def failed(self, reason: str, now: float) -> bool:
        """Count an attempt that failed at `now`, in seconds of any clock; return whether it is to be logged."""
        if not self.attempts:
            self._began = now
        self.attempts += 1
        if self._logged is not None:
            known, at = self._logged
            if reason == known and now - at < REPEATED_SECONDS:
                return False
        self._logged = (reason, now)
        return True

    def seconds(self, now: float) -> float:
        """Return how long it has lasted."""
        return now - self._began if self.attempts else 0.0
