"""When a broker gets a ping, and when it has hung. Pure.

Looks are counted, not seconds, and the socket is read between them: a process that was stopped or busy for long reads
what the broker has sent meanwhile before it can consider it hung.
"""

from __future__ import annotations

from enum import Enum

KEEP_ALIVE_SECONDS = 60
LONGEST_KEEP_ALIVE_SECONDS = 0xFFFF
LOOKS = 6
"""Looks per silence; the broker gets a ping after a third of them."""
LOOKS_PER_KEEP_ALIVE = 4
"""At least; it gets a ping if nothing was sent during half of them."""


class Look(Enum):
    """What follows from a look."""

    FINE = "fine"
    PING = "ping"
    HUNG = "hung"


def keep_alive_for(silence_seconds: float) -> int:
    """Return the keep-alive to announce, in seconds, if silence is noticed after so many."""
    return min(max(KEEP_ALIVE_SECONDS, round(silence_seconds)), LONGEST_KEEP_ALIVE_SECONDS)


class SilenceWatch:
    """Looks at whether anything was sent and received.

    Parameters
    ----------
    silence_seconds
        A broker that sends nothing for this long, even after a ping, has hung.
    keep_alive_seconds
        The broker expects something at least so often; 0 if it does not.
    """

    def __init__(self, silence_seconds: float, keep_alive_seconds: float) -> None:
        longest = keep_alive_seconds / LOOKS_PER_KEEP_ALIVE if keep_alive_seconds else silence_seconds
        self.interval_seconds = min(silence_seconds / LOOKS, longest)
        """Between two looks."""
        self._most_silent = round(silence_seconds / self.interval_seconds)
        self._most_idle = round(keep_alive_seconds / 2 / self.interval_seconds) if keep_alive_seconds else None
        self._silent = self._idle = 0

    def received(self) -> None:
        """Note that the broker has sent something."""
        self._silent = 0

    def sent(self) -> None:
        """Note that something was sent to it."""
        self._idle = 0

    def look(self) -> Look:
        """Return what is to be done now."""
        self._silent += 1
        self._idle += 1
        if self._silent >= self._most_silent:
            return Look.HUNG
        if self._silent == self._most_silent // 3 or self._idle == self._most_idle:
            self._idle = 0
            return Look.PING
        return Look.FINE
