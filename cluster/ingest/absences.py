"""How much of the time counts for proxies that are away: only what is certain.

Pure. A proxy that is away may have come back, and sent rows, of which nothing is known here: while the cluster has no
connection, while it was stopped, while messages wait to be handled. So time counts once a message that the cluster has
sent to itself is back (:mod:`protocols.presence.attention`); after anything else, proxies that are away have all their
time again::

    connected   |=====================|          |=================================
    messages to itself   1    2    3                 1    2    3    4
    counted              |----|----|                 |----|----|----|      anew, from the first
"""

from __future__ import annotations

from typing import NamedTuple

from protocols.presence.attention import Attention


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
