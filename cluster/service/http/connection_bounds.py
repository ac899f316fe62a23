"""How many connections there may be to the API, and how long each waits for its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cluster.service.access.admission import Refusal

HEAD_SECONDS: Final = 10.0
"""Time for a TLS handshake, and for the head of each request, to arrive."""
ANSWER_SECONDS: Final = 10.0
"""Time for each piece of an answer to be taken by the client."""
MOST_CONNECTIONS: Final = 256
"""Each takes a file handle, and the cluster needs some for its tables."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """The bounds of all connections to an API.

    Parameters
    ----------
    count
        Counts a connection that is closed.
    head_seconds, answer_seconds, most_connections
        As the constants of this module.
    handshakes
        Those connections whose TLS handshake has not ended: the web server does not know them yet.
    """

    count: Callable[[Refusal], None]
    head_seconds: float = HEAD_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    most_connections: int = MOST_CONNECTIONS
    handshakes: set[asyncio.Protocol] = field(default_factory=set)

    def are_exceeded(self, known: int) -> bool:
        """Return whether there are too many connections, with these that the web server knows."""
        return known + len(self.handshakes) > self.most_connections


class Deadline:
    """A time until which something is waited for.

    Parameters
    ----------
    seconds
        How long, from each start.
    missed
        Called if it is not stopped before.
    """

    def __init__(self, seconds: float, missed: Callable[[], None]) -> None:
        self._seconds = seconds
        self._missed = missed
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to wait; where it is waited for already, the time stays."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end)

    def stop(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        self._missed()
