"""Comparing proxies' clocks with the cluster's: a proxy with a wrong clock reports correct mote clocks as wrong.

Pure. A proxy sends the time on its clock every few seconds. The message always takes some time, so the least difference
of the last few is nearest to the clock's offset. A wrong clock is reported; nothing is rejected because of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from protocols.wire.catalog import ClockFault

MOST_PROXIES = 4_096
"""Clocks of further proxies are ignored."""
TOLERANCE_US = 60_000_000
"""By which a clock may be wrong, unless another tolerance is given."""
_READINGS = 3
"""So many are compared: a single message that came late does not make a clock wrong."""


@dataclass(slots=True)
class _Clock:
    behind_us: deque[int] = field(default_factory=lambda: deque(maxlen=_READINGS))
    fault: ClockFault | None = None


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A proxy's clock has become wrong, or right again; with how far it is behind."""

    proxy: str
    fault: ClockFault | None
    behind_us: int


class ProxyClocks:
    """The last known state of proxies' clocks.

    Parameters
    ----------
    tolerance_us
        A clock may be wrong by so much, in either direction.
    max_proxies
        How many are observed.
    """

    def __init__(self, tolerance_us: int = TOLERANCE_US, *, max_proxies: int = MOST_PROXIES) -> None:
        self.tolerance_us = tolerance_us
        self._most_proxies = max_proxies
        self._clocks: dict[str, _Clock] = {}

    def note(self, proxy: str, clock_us: int, now_us: int) -> ClockChange | None:
        """Note the time on a proxy's clock, received at `now_us`; return what has changed."""
        if proxy not in self._clocks and len(self._clocks) >= self._most_proxies:
            return None
        clock = self._clocks.setdefault(proxy, _Clock())
        clock.behind_us.append(now_us - clock_us)
        before, clock.fault = clock.fault, self._fault(clock)
        return None if clock.fault is before else ClockChange(proxy, clock.fault, min(clock.behind_us))

    def forget(self, proxy: str) -> None:
        """Forget the clock of a proxy that has gone."""
        self._clocks.pop(proxy, None)

    @property
    def behind_us(self) -> Mapping[str, int]:
        """By proxy: how far its clock is behind; negative if it is ahead."""
        return {proxy: min(clock.behind_us) for proxy, clock in self._clocks.items()}

    @property
    def faults(self) -> Mapping[str, ClockFault]:
        """The proxies whose clocks are wrong, and how; any thread may read it."""
        return {proxy: clock.fault for proxy, clock in list(self._clocks.items()) if clock.fault is not None}

    def _fault(self, clock: _Clock) -> ClockFault | None:
        behind_us = min(clock.behind_us)
        if behind_us < -self.tolerance_us:
            return ClockFault.AHEAD
        if behind_us > self.tolerance_us and len(clock.behind_us) == _READINGS:
            return ClockFault.BEHIND
        return None


def not_after(instant_us: int, now_us: int, tolerance_us: int) -> int:
    """Return an instant, but none after the present by the cluster's clock and its tolerance.

    A row that a wrong clock stamped in 2100 must not make versions of relations begin there: no tuple would meet them.
    """
    return min(instant_us, now_us + tolerance_us)
