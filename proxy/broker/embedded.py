"""amqtt inside this process: a broker for a machine where nothing can be installed.

MQTT 3.1.1 only, some thousand messages per second, queues without a bound, nothing kept over a restart. Good for
demonstrations and tests; Mosquitto is for deployment.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from typing import TYPE_CHECKING, Final

from amqtt.adapters import ReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.errors import AMQTTError
from amqtt.plugins.base import BaseAuthPlugin

from protocols.mqtt.frames import MalformedFrameError, frame_bounds
from proxy.broker.errors import BrokerFailedError, PortInUseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from amqtt.session import Session

    from proxy.broker.choice import BrokerSettings

_MOST_CONNECTIONS: Final = 10_000
_LARGEST_CONNECT_BYTES: Final = 256 * 1024
"""Client id, user name, password and a will of the greatest length."""
_NAME_BYTES: Final = 6
_NEWEST_LEVEL: Final = 4
"""MQTT 3.1.1."""
_UNSUPPORTED_VERSION: Final = b"\x20\x03\x00\x84\x00"
"""A CONNACK of MQTT 5."""


class AdmitEveryone(BaseAuthPlugin):  # type: ignore[misc] # amqtt ships no types
    """Admits every client.

    amqtt's own anonymous plugin marks its clients, and amqtt then forgets their sessions when they disconnect; a
    proxy or an ingest that reconnects would lose what was queued for it.
    """

    async def authenticate(self, *, session: Session) -> bool:
        """Return True."""
        _ = session
        return True


class Rereading(ReaderAdapter):  # type: ignore[misc] # as above
    """Reads bytes that were read before, and then what follows them.

    Parameters
    ----------
    begin
        The bytes.
    reader
        Reads what follows.
    """

    def __init__(self, begin: bytes, reader: asyncio.StreamReader) -> None:
        self._begin = begin
        self._reader = reader

    async def read(self, n: int = -1) -> bytes:
        """Return `n` bytes; as many as there are if it is -1."""
        if not self._begin:
            return await (self._reader.read(n) if n < 0 else self._reader.readexactly(n))
        if n < 0:
            n = len(self._begin)
        begin, self._begin = self._begin[:n], self._begin[n:]
        return begin + await self._reader.readexactly(n - len(begin))

    def feed_eof(self) -> None:
        """Mark the end."""
        self._reader.feed_eof()


class OldBroker(Broker):  # type: ignore[misc] # as above
    """amqtt that refuses MQTT 5 at once: it would take properties for a length, and wait for bytes that never come."""

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        """Serve a client, which has just connected."""
        try:
            begin = await reader.readexactly(2)
            while (bounds := frame_bounds(begin, 0, _LARGEST_CONNECT_BYTES)) is None:
                begin += await reader.readexactly(1)
            begin += await reader.readexactly(_NAME_BYTES + 1)
            if begin[-1] > _NEWEST_LEVEL and begin[-1 - _NAME_BYTES : -1] == b"\0\4MQTT":
                # All of it is read, or the client might lose the answer with the rest of what it sends.
                await reader.readexactly(max(0, bounds.end - len(begin)))
                writer.write(_UNSUPPORTED_VERSION)
                await writer.drain()
                writer.close()
                return
        except (asyncio.IncompleteReadError, ConnectionError, MalformedFrameError):
            writer.close()
            return
        try:
            await self.external_connected(Rereading(begin, reader), StreamWriterAdapter(writer), listener_name)
        finally:
            writer.close()  # amqtt leaves it open if the first frame is malformed or not complete


class EmbeddedBroker:
    """amqtt, running in the present event loop."""

    async def wait_ended(self) -> str:
        """Wait for ever: the broker ends only with this process."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never


@contextlib.asynccontextmanager
async def running_amqtt(settings: BrokerSettings) -> AsyncIterator[EmbeddedBroker]:
    """Run amqtt for the duration of the context; on entry it accepts connections.

    Raises
    ------
    PortInUseError
        Something already listens there.
    BrokerFailedError
        amqtt did not start.
    """
    for library in ("amqtt", "transitions"):
        logger = logging.getLogger(library)
        logger.setLevel(max(logger.level, logging.WARNING))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    broker = OldBroker(
        {
            "listeners": {
                "default": {
                    "type": "tcp",
                    "bind": f"{host}:{settings.port}",
                    "max_connections": _MOST_CONNECTIONS,
                }
            },
            "plugins": {f"{AdmitEveryone.__module__}.{AdmitEveryone.__qualname__}": {}},
        }
    )
    with _quiet("amqtt.broker"):  # a failure to start is raised; amqtt would log its traceback as well
        try:
            await broker.start()
        except AMQTTError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
                raise PortInUseError(settings.host, settings.port) from error
            raise BrokerFailedError(str(cause or error)) from error
    try:
        yield EmbeddedBroker()
    finally:
        await broker.shutdown()


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
