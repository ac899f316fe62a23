"""Start the chosen broker and keep it for the duration of a context."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import socket
from typing import TYPE_CHECKING, Final, Protocol

from proxy.broker.choice import BrokerSettings, LocalBroker, choose_engine
from proxy.broker.errors import AddressError, PortInUseError
from proxy.broker.mosquitto import find_mosquitto, running_mosquitto

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxy.broker.choice import Choice, WantedEngine

_ATTEMPTS_TO_GET_A_FREE_PORT: Final = 5


class RunningBroker(Protocol):
    """A broker that accepts connections."""

    async def wait_ended(self) -> str:
        """Wait until it ends by itself and return why."""


@contextlib.asynccontextmanager
async def running_broker(
    port: int | None = None, engine: WantedEngine = "auto", *, host: str = "127.0.0.1"
) -> AsyncIterator[LocalBroker]:
    """Run a broker for the duration of the context; on entry it accepts connections.

    Parameters
    ----------
    port
        TCP port; None or 0 for a free one.
    engine
        "auto" chooses Mosquitto where it is installed, amqtt where it is not.
    host
        Address to listen on; one that only this machine can reach.

    Raises
    ------
    BrokerError
        One of its kinds, with a hint.

    Examples
    --------
    ``async with running_broker() as broker: await connect(broker.host, broker.port)``
    """
    async with broker_by_settings(BrokerSettings(host=host, port=port or 0), engine) as (address, _):
        yield address


@contextlib.asynccontextmanager
async def broker_by_settings(
    settings: BrokerSettings, engine: WantedEngine = "auto"
) -> AsyncIterator[tuple[LocalBroker, RunningBroker]]:
    """Run a broker with all settings; as :func:`running_broker`, and gives the broker itself as well."""
    choice = choose_engine(engine, settings, find_mosquitto())
    async with contextlib.AsyncExitStack() as stack:
        for attempt in range(_ATTEMPTS_TO_GET_A_FREE_PORT):
            actual = dataclasses.replace(settings, port=_available_port(settings.host, settings.port))
            try:
                broker = await stack.enter_async_context(_running(choice, actual))
            except PortInUseError:
                # Between our check and the broker's start another program may open the port that we chose.
                if settings.port != 0 or attempt == _ATTEMPTS_TO_GET_A_FREE_PORT - 1:
                    raise
            else:
                break
        address = LocalBroker(host=actual.host, port=actual.port, engine=choice.engine, reason=choice.reason)
        yield address, broker


def _running(choice: Choice, settings: BrokerSettings) -> contextlib.AbstractAsyncContextManager[RunningBroker]:
    if choice.program is not None:
        return running_mosquitto(choice.program, settings)
    from proxy.broker.embedded import running_amqtt  # noqa: PLC0415 (importing amqtt is slow)

    return running_amqtt(settings)


def _available_port(host: str, port: int) -> int:
    """Return ``port``, or a free one for 0, after a check that it can be opened."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as brokers do: skip closing connections
            listener.bind(place)
            found: int = listener.getsockname()[1]
            return found
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(host, port) from error
        raise AddressError(host, port, error.strerror or str(error)) from error
