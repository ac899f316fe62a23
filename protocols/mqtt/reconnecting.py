"""A broker that is silent or away: pings, when to try again, and with which version of MQTT.

**When a broker gets a ping, and when it has hung.**

Looks are counted, not seconds, and the socket is read between them: a process that was stopped or busy for long reads
what the broker has sent meanwhile before it can consider it hung.

**Which version of MQTT is offered first: the best one, unless the broker took a lesser one shortly before.**

offered     5  3.1.1              3.1.1            5  3.1.1
answered    -  yes                yes              yes
            | a connect that failed by chance, or an older broker
            | ------ not offered for ten minutes --|

**While a broker is away: how long to wait before each attempt, and which attempts are logged.**

Logged are the first that fails, one with another reason, and one a minute.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import Enum

from protocols.mqtt.messages import Version

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
    """Looks at whether anything was sent and received. Pure.

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


AGAIN_SECONDS = 600.0
"""A broker that did not take a version is offered it again after this time, with the next connection."""


class VersionChoice:
    """The versions of MQTT that a link may speak. Pure.

    Parameters
    ----------
    versions
        The best first.
    """

    def __init__(self, versions: Sequence[Version]) -> None:
        self._versions = tuple(versions)
        self._lesser: Version | None = None
        self._until = 0.0

    def order(self, now: float) -> tuple[Version, ...]:
        """Return the versions in the order in which they are offered, given the time in seconds."""
        if self._lesser is None or now >= self._until:
            return self._versions
        return (self._lesser, *(each for each in self._versions if each is not self._lesser))

    def note(self, accepted: Version, now: float) -> None:
        """Note which version the broker has accepted."""
        if accepted is self._versions[0]:
            self._lesser = None
        elif accepted is not self._lesser or now >= self._until:
            self._lesser, self._until = accepted, now + AGAIN_SECONDS


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
