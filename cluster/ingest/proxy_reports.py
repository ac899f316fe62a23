"""Proxies' reports about themselves: presence, clocks, spools, and what their streams wait for. Pure.

**How much of the time counts for proxies that are away: only what is certain.**

A proxy that is away may have come back, and sent rows, of which nothing is known here: while the cluster has no
connection, while it was stopped, while messages wait to be handled. So time counts once a message that the cluster has
sent to itself is back (:mod:`protocols.presence.attention`); after anything else, proxies that are away have all their
time again::

    connected   |=====================|          |=================================
    messages to itself   1    2    3                 1    2    3    4
    counted              |----|----|                 |----|----|----|      anew, from the first

**Comparing proxies' clocks with the cluster's: a proxy with a wrong clock reports correct mote clocks as wrong.**

A proxy sends the time on its clock every few seconds. The message always takes some time, so the least difference
of the last few is nearest to the clock's offset. A wrong clock is reported; nothing is rejected because of it.

The last report of a proxy that is away is from before it went; it may have spooled more since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocols.errors import FrameError
from protocols.event_log import get_logger
from protocols.mqtt.link import Message
from protocols.presence.attention import Attention
from protocols.wire.catalog import (
    ClockFault,
    Presence,
    ProxySpool,
    ProxyWaits,
    StreamWait,
    decode_proxy_clock,
    decode_proxy_spool,
    decode_proxy_waits,
    decode_status,
)


class Counted(NamedTuple):
    """What the last tick of the clock adds.

    Parameters
    ----------
    seconds
        So much time counts.
    anew
        Whether what was counted before does not count any more.
    """

    seconds: float
    anew: bool


class Absences:
    """The time that counts for one cluster.

    Parameters
    ----------
    attention
        Of the cluster.
    """

    def __init__(self, attention: Attention) -> None:
        self._attention = attention
        self._since_us: int | None = None
        """Of the connection for which time was counted."""
        self._counted_us: int | None = None

    def time_passed(self, now_us: int, *, connected: bool) -> Counted:
        """Return what counts, up to now; to be called once a second.

        Parameters
        ----------
        now_us
            The present, of a clock that never goes back.
        connected
            Whether there is a connection to the broker.
        """
        attention = self._attention
        attention.time_passed(now_us, connected=connected)
        anew = self._since_us is None or attention.since_us != self._since_us
        if anew:
            self._since_us, self._counted_us = attention.since_us, None
        until_us, before_us = attention.until_us, self._counted_us
        self._counted_us = until_us
        return Counted(0.0 if until_us is None or before_us is None else (until_us - before_us) / 1e6, anew)


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


log = get_logger(__name__)

"""Spools of further proxies are ignored."""


@dataclass(frozen=True, slots=True)
class ReportedSpool:
    """A proxy's last report of its spool, and when it was received, in microseconds since 1970."""

    report: ProxySpool
    received_us: int

    @property
    def waits_seconds(self) -> float | None:
        """How long the oldest batch had waited at that time; None if there is none or it is unknown."""
        return None if self.report.waits_us is None else self.report.waits_us / 1e6


class ProxySpools:
    """The last known state of proxies' spools.

    Parameters
    ----------
    max_proxies
        How many are kept.
    """

    def __init__(self, *, max_proxies: int = MOST_PROXIES) -> None:
        self._most_proxies = max_proxies
        self._spools: dict[str, ReportedSpool] = {}

    def note(self, report: ProxySpool, now_us: int) -> None:
        """Record a proxy's report, received at `now_us`."""
        if report.proxy in self._spools or len(self._spools) < self._most_proxies:
            self._spools[report.proxy] = ReportedSpool(report, now_us)

    def all(self) -> Mapping[str, ReportedSpool]:
        """Return the last reports, by proxy; any thread may call it."""
        return dict(self._spools)


class StreamWaits:
    """What the streams of proxies wait for, as far as is known.

    Parameters
    ----------
    max_proxies
        Of how many proxies reports are kept.
    """

    def __init__(self, *, max_proxies: int = MOST_PROXIES) -> None:
        self._most_proxies = max_proxies
        self._waits: dict[str, tuple[ProxyWaits, int]] = {}

    def note(self, report: ProxyWaits, now_us: int) -> None:
        """Record a proxy's report, received at `now_us`."""
        if report.proxy in self._waits or len(self._waits) < self._most_proxies:
            self._waits[report.proxy] = report, now_us

    def of(self, proxy: str, stream: str) -> tuple[StreamWait, int] | None:
        """Return what a stream waits for at a proxy, and when that was reported; None if it is not known."""
        report, received_us = self._waits.get(proxy, (None, 0))
        for each in () if report is None else report.streams:
            if each.stream == stream:
                return each, received_us
        return None


class ProxyReports:
    """The last reports of proxies.

    Parameters
    ----------
    clocks
        The clocks of all proxies.
    """

    def __init__(self, clocks: ProxyClocks) -> None:
        self.clocks = clocks
        self.spools = ProxySpools()
        self.waits = StreamWaits()
        self.online: set[str] = set()

    def status(self, message: Message, proxy: str) -> None:
        """Handle the status of a proxy.

        Raises
        ------
        FrameError
            If it is garbled.
        """
        if message.payload and decode_status(message.payload).presence is Presence.ONLINE:
            self.online.add(proxy)
        else:
            self.online.discard(proxy)
            self.clocks.forget(proxy)

    def clock(self, message: Message, proxy: str, now_us: int) -> None:
        """Handle the time on a proxy's clock, received at `now_us`.

        Raises
        ------
        FrameError
            If it is garbled, retained by the broker, or of another proxy.
        """
        report = decode_proxy_clock(message.payload)
        check_proxy("clock", report.proxy, proxy)
        _check_present(message, "a time")
        change = self.clocks.note(proxy, report.clock_us, now_us)
        if change is not None and change.fault is not None:
            log.error("proxy's clock is wrong", proxy=proxy, fault=change.fault, behind_seconds=change.behind_us / 1e6)
        elif change is not None:
            log.info("proxy's clock is right again", proxy=proxy, behind_seconds=change.behind_us / 1e6)

    def spool(self, message: Message, proxy: str, now_us: int) -> None:
        """Handle a report of a proxy's spool, received at `now_us`.

        Raises
        ------
        FrameError
            If it is garbled, retained by the broker, or of another proxy.
        """
        report = decode_proxy_spool(message.payload)
        check_proxy("spool", report.proxy, proxy)
        _check_present(message, "a report of a spool")
        self.spools.note(report, now_us)

    def wait(self, message: Message, proxy: str, now_us: int) -> None:
        """Handle a report of what the streams of a proxy wait for, received at `now_us`.

        Raises
        ------
        FrameError
            If it is garbled, retained by the broker, or of another proxy.
        """
        report = decode_proxy_waits(message.payload)
        check_proxy("waits", report.proxy, proxy)
        _check_present(message, "a report of waits")
        self.waits.note(report, now_us)


def check_proxy(kind: str, named: str, proxy: str) -> None:
    """Raise unless a message names the proxy on whose topic it came.

    Raises
    ------
    FrameError
        If it is of another proxy.
    """
    if named != proxy:
        raise FrameError("identity", f"{kind} of proxy {named!r} came on the topic of {proxy!r}")


def _check_present(message: Message, content: str) -> None:
    if message.retain:
        raise FrameError("retained", f"{content} that the broker has retained is not the present one")
