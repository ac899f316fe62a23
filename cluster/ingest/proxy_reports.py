"""Proxies' reports about themselves: whether they are online, their clocks, their spools, what their streams wait for.

The last report of a proxy that is away is from before it went; it may have spooled more since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.ingest.proxy_clocks import ProxyClocks
from protocols.errors import FrameError
from protocols.event_log import get_logger
from protocols.mqtt.link import Message
from protocols.wire.catalog import (
    Presence,
    ProxySpool,
    ProxyWaits,
    StreamWait,
    decode_proxy_clock,
    decode_proxy_spool,
    decode_proxy_waits,
    decode_status,
)

log = get_logger(__name__)

MOST_PROXIES = 4_096
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
