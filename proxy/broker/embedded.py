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

from amqtt.broker import Broker
from amqtt.errors import AMQTTError
from amqtt.plugins.base import BaseAuthPlugin

from proxy.broker.errors import BrokerFailedError, PortInUseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from amqtt.session import Session

    from proxy.broker.choice import BrokerSettings

_MOST_CONNECTIONS: Final = 10_000


class AdmitEveryone(BaseAuthPlugin):  # type: ignore[misc] # amqtt ships no types
    """Admits every client.

    amqtt's own anonymous plugin marks its clients, and amqtt then forgets their sessions when they disconnect; a
    proxy or an ingest that reconnects would lose what was queued for it.
    """

    async def authenticate(self, *, session: Session) -> bool:
        """Return True."""
        _ = session
        return True


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
    broker = Broker(
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
