"""A socket to a broker: bytes come by calls, and what is written in one turn of the event loop leaves together."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

WRITTEN_LATER_BYTES = 64 * 1024
"""More than this is written at once."""


class BrokerSocket(asyncio.Protocol):
    """A socket.

    Parameters
    ----------
    on_bytes
        Called with what has come.
    on_lost
        Called once when the connection is gone, whichever side ended it.
    """

    def __init__(self, *, on_bytes: Callable[[bytes], None], on_lost: Callable[[], None]) -> None:
        self._on_bytes = on_bytes
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes | memoryview] = []
        self._outgoing_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self.fault: Exception | None = None
        """What ended the connection, if it was an error of the socket."""

    @property
    def open(self) -> bool:
        """Whether there is a connection."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, octets: bytes | memoryview) -> None:
        """Write, together with what else is written before other tasks run; without a connection do nothing."""
        if octets and self.open:
            if not self._outgoing:
                self._loop.call_soon(self.flush)
            self._outgoing.append(octets)
            self._outgoing_bytes += len(octets)
            if self._outgoing_bytes > WRITTEN_LATER_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write now."""
        outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if outgoing and self._transport is not None and self.open:
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    async def drain(self) -> None:
        """Wait while too much is on its way to the broker, or until the connection is gone."""
        await self._room.wait()

    def tls_session(self) -> ssl.SSLObject | None:
        """Return the session of TLS; None without."""
        found: ssl.SSLObject | None = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return found

    def pause_reading(self) -> None:
        """Leave what comes to the kernel until :meth:`resume_reading`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Write what is left, and close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio calls this and the following."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on what has come."""
        self._on_bytes(data)

    def pause_writing(self) -> None:
        """Let :meth:`drain` wait."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Let :meth:`drain` return."""
        self._room.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Report it; nothing waits any more."""
        self.fault = error
        self._room.set()
        self._on_lost()
