"""Whether the engine hangs: rows wait for an answer, and no micro-batch has ended for a long time.

    micro-batches   ... 7 ]  [ 8 ..................................
    rows wait                      |---------------- patience ---->| hung

A micro-batch that is only slow would never end if it were begun again and again at the same age: patience doubles with
each restart, until one ends. Pure: time, micro-batches and lags are given.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.physical.nodes import Host
from cluster.service.publishing.lag import LagBy

MOST_DOUBLINGS = 4


class HangWatch:
    """Tells when the engine hangs.

    Parameters
    ----------
    seconds
        For how long no micro-batch may end while rows wait.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._doublings = 0
        self._ended: dict[Host, int] = {}
        self._since: dict[Host, float] = {}
        """When a micro-batch ended last or, if none has, the engine was started."""

    @property
    def patience_seconds(self) -> float:
        """For how long no micro-batch may end now."""
        return self._seconds * float(1 << self._doublings)

    def started(self, now: float) -> None:
        """Note that the engine was started, at a time in seconds of a monotonic clock."""
        self._ended.clear()
        self._since = dict.fromkeys(Host, now)

    def silent(self, now: float, ended: Mapping[Host, int]) -> frozenset[Host]:
        """Return the Spark queries of which no micro-batch has ended for too long, whether there are rows or not.

        Parameters
        ----------
        now
            Seconds of a monotonic clock.
        ended
            The number of the last micro-batch that has ended, by Spark query; missing if none has.
        """
        for host, number in ended.items():
            if self._ended.get(host) != number:
                self._ended[host], self._since[host] = number, now
                self._doublings = 0
        return frozenset(host for host, since in self._since.items() if now - since >= self.patience_seconds)

    def hung(self, silent: frozenset[Host], lags: LagBy) -> str:
        """Return, in words, which Spark query hangs, and give the next start more time; empty if none does.

        Parameters
        ----------
        silent
            Those of which no micro-batch has ended.
        lags
            How far queries are behind.
        """
        for (stream, host), lag in sorted(lags.items()):
            if host in silent and lag.rows and lag.seconds >= self.patience_seconds:
                found = (
                    f"no micro-batch of the {host.value} queries has ended for {self.patience_seconds:,.0f} s, "
                    f"while {lag.rows:,} rows of stream {stream} wait"
                )
                self._doublings = min(self._doublings + 1, MOST_DOUBLINGS)
                return found
        return ""
