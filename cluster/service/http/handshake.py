"""The TLS handshake of a connection to the API, which is waited for only so long.

By itself, asyncio shows a connection once its handshake has ended: before, it is neither counted nor bounded.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from cluster.service.access.admission import Refusal
from cluster.service.http.connection import BoundedConnection
from cluster.service.http.connection_bounds import address_of


class Handshake(asyncio.Protocol):
    """A connection before its handshake has ended; another one takes its place then.

    Parameters
    ----------
    connection
        The one that takes its place.
    context
        Certificate and key.
    """

    def __init__(self, connection: BoundedConnection, context: ssl.SSLContext) -> None:
        self._connection = connection
        self._context = context
        self._bounds = connection.bounds
        self._received = b""
        self._is_lost = False
        self._has_ended = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        raw = cast("asyncio.Transport", transport)
        self._raw = raw
        if not self._bounds.begin(self, address_of(raw)):
            raw.abort()
            return
        raw.pause_reading()
        # What is encrypted waits with the connection, where it is noticed, and not below it.
        raw.set_write_buffer_limits(high=1, low=0)
        self._task = self._connection.loop.create_task(self._run(raw))
        # The server waits for tasks when it stops, and cancels them.
        self._connection.tasks.add(self._task)
        self._task.add_done_callback(self._forget)

    def data_received(self, data: bytes) -> None:
        """Keep what comes together with the end of the handshake."""
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        """End; what was lost in the moment of the change is lost for the other connection."""
        self._is_lost = True
        if self._has_ended:
            self._connection.connection_lost(exc)

    def give_way(self) -> None:
        """End at once, for another one."""
        self._raw.abort()
        # A handshake that begins on a connection that has ended holds its buffers until its time is over.
        if self._task is not None:
            self._task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connection.tasks.discard(task)
        self._task = None  # it holds this, too: both would stay until garbage is looked for

    async def _run(self, raw: asyncio.Transport) -> None:
        secured: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(self._bounds.head_seconds):
                secured = await self._connection.loop.start_tls(
                    raw, self, self._context, server_side=True, ssl_shutdown_timeout=self._bounds.answer_seconds
                )
        except TimeoutError:
            self._bounds.count(Refusal.SLOW)
        except OSError:
            pass  # it speaks no TLS, shows no certificate that counts, or has gone
        finally:
            self._bounds.end(self)
            if secured is None:
                raw.abort()
        if secured is not None and not self._is_lost:
            self._hand_over(secured)

    def _hand_over(self, secured: asyncio.Transport) -> None:
        self._has_ended = True
        secured.set_protocol(self._connection)
        self._connection.connection_made(secured)
        if self._received:
            self._connection.data_received(self._received)
