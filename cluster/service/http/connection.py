"""A connection to the API: how many there may be, and how long the head of a request may take.

The web server bounds the size of a head (:data:`MOST_HEAD_BYTES`) and closes connections that are idle between two
requests. It waits without end for the first byte, or for the rest of a head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cluster.service.access.admission import Refusal
from protocols.security.tls import TlsFiles, server_context

MOST_HEAD_BYTES: Final = 64 * 1024
"""The longest request line with headers; a query string of the catalog of sensors has at most some 40,000 bytes."""
HEAD_SECONDS: Final = 10.0
MOST_CONNECTIONS: Final = 256
"""Each takes a file handle, and the cluster needs some for its tables."""


def api_config(
    app: Any, count: Callable[[Refusal], None], *, head_seconds: float = HEAD_SECONDS, tls: TlsFiles | None = None
) -> uvicorn.Config:
    """Return the settings of the web server.

    Parameters
    ----------
    app
        The API.
    count
        Counts a connection that is closed.
    head_seconds
        Time for the head of a request to arrive.
    tls
        Its certificate and key, and the authority of clients' certificates; None for no TLS.
    """

    class Connection(BoundedConnection):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.bound(count, head_seconds)

    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if tls is None else lambda _, __: server_context(tls),
    )


class BoundedConnection(H11Protocol):
    """A connection that is closed if the head of a request does not arrive in time, or if there are too many."""

    def bound(self, count: Callable[[Refusal], None], head_seconds: float) -> None:
        """Set the bounds; before anything arrives."""
        self._count = count
        self._head_seconds = head_seconds
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > MOST_CONNECTIONS:
            self._count(Refusal.CONNECTIONS)
            self.transport.abort()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end_waiting()
        elif self._timeout is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._end_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._timeout = self.loop.call_later(self._head_seconds, self._give_up)

    def _end_waiting(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _give_up(self) -> None:
        self._timeout = None
        if not self.transport.is_closing():
            self._count(Refusal.SLOW)
            self.transport.abort()
