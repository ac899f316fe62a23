"""How much waits in the spools of proxies for the cluster, by their last reports.

Pure. The last report of a proxy that is away is from before it went; it may have spooled more since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocols.wire.catalog import ProxySpool

MOST_PROXIES = 4_096
"""Spools of further proxies are ignored."""


@dataclass(frozen=True, slots=True)
class ReportedSpool:
    """A proxy's last report of its spool, and when it was received, in microseconds since 1970."""

    report: ProxySpool
    received_us: int

    @property
    def waits_seconds(self) -> float | None:
        """For how long the oldest batch had waited then; None without any, or if it is unknown."""
        return None if self.report.waits_us is None else self.report.waits_us / 1e6


class ProxySpools:
    """What is known of the spools of proxies.

    Parameters
    ----------
    max_proxies
        How many are kept.
    """

    def __init__(self, *, max_proxies: int = MOST_PROXIES) -> None:
        self._most_proxies = max_proxies
        self._spools: dict[str, ReportedSpool] = {}

    def note(self, report: ProxySpool, now_us: int) -> None:
        """Note what a proxy has reported, received at `now_us`."""
        if report.proxy in self._spools or len(self._spools) < self._most_proxies:
            self._spools[report.proxy] = ReportedSpool(report, now_us)

    def all(self) -> Mapping[str, ReportedSpool]:
        """Return the last reports, by proxy; any thread may call it."""
        return dict(self._spools)
