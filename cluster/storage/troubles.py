"""What could not be written, counted: the process goes on, and reports what was lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from protocols.event_log import get_logger

log = get_logger(__name__)


class Troubles:
    """Counts failed writes by what was to be written. Threads may note at the same time: counts are approximate."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.last = ""
        """What went wrong last; it may be over."""

    def note(self, what: str, reason: str) -> None:
        """Note that something could not be written; the 1st, 2nd, 4th, 8th ... of its kind are logged."""
        self.counts[what] += 1
        self.last = reason
        times = self.counts[what]
        if times & (times - 1) == 0:
            log.warning("cannot be written", what=what, reason=reason, times=times)

    def as_json(self) -> dict[str, Any]:
        """Return what the API's status shows."""
        return {"failures": dict(self.counts), "last": self.last or None}
