"""How much waits in the spools of proxies for the cluster, as they have said last.

Pure. A proxy that is away has said so before it went, and may have spooled more since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocols.wire.catalog import ProxySpool

MOST_PROXIES = 4_096
"""Spools of further proxies are not looked at."""


@dataclass(frozen=True, slots=True)
class HeardSpool:
    """What a proxy has said of its spool, and when it was heard, in microseconds since 1970."""

    said: ProxySpool
    heard_us: int

    @property
    def waits_seconds(self) -> float | None:
        """For how long the batch had waited then that has waited longest; None for none, or if nobody knows."""
        return None if self.said.waits_us is None else self.said.waits_us / 1e6


class ProxySpools:
    """What is known of the spools of proxies.

    Parameters
    ----------
    most_proxies
        How many are looked at.
    """

    def __init__(self, *, most_proxies: int = MOST_PROXIES) -> None:
        self._most_proxies = most_proxies
        self._spools: dict[str, HeardSpool] = {}

    def heard(self, said: ProxySpool, now_us: int) -> None:
        """Take note of what a proxy says, heard at `now_us`."""
        if said.proxy in self._spools or len(self._spools) < self._most_proxies:
            self._spools[said.proxy] = HeardSpool(said, now_us)

    def all(self) -> Mapping[str, HeardSpool]:
        """Return what proxies have said last; any thread may ask."""
        return dict(self._spools)
