"""gmqtt's client, wrapped so that Fjord decides when to acknowledge and when to connect again.

MQTT 3.1.1, which both Mosquitto and the embedded broker support. Everything that depends on gmqtt's inner workings
is in this file; tests/protocols/test_mqtt.py holds it to that.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

import gmqtt
from gmqtt.mqtt.constants import MQTTCommands, MQTTv311
from gmqtt.mqtt.handler import MQTTError

from protocols.mqtt.frames import frame_end, take_messages
from protocols.mqtt.in_flight import FIRST, InFlight
from protocols.mqtt.messages import BrokerAddress, Message, Subscription
from protocols.mqtt.octets import MalformedFrameError

KEEP_ALIVE_SECONDS = 60
PUBLISH_ACKNOWLEDGED = struct.Struct("!BBH")
"""PUBACK of MQTT 3.1.1: its kind, the length of the rest, the number of the message."""

# The link logs what gmqtt would warn of, such as a lost connection.
logging.getLogger("gmqtt").setLevel(logging.ERROR)


class Outgoing:
    """Messages the broker has not acknowledged yet, by number; gmqtt uses this as its store of them."""

    is_empty = True
    """gmqtt sends nothing again: callers that publish get an error when the connection breaks, and decide."""

    def __init__(self) -> None:
        self.latest: asyncio.Future[bool] | None = None
        self._waiting: dict[int, asyncio.Future[bool]] = {}

    def push_message(self, number: int, _packet: bytes) -> None:
        """Note that a message has been written to the socket."""
        self.latest = self._waiting.setdefault(number, asyncio.get_running_loop().create_future())

    def remove_message_by_mid(self, number: int) -> None:
        """Note that the broker has acknowledged a message."""
        self._end(self._waiting.pop(number, None), acknowledged=True)

    def give_up(self) -> None:
        """Fail all waiting messages: the connection is gone."""
        while self._waiting:
            self._end(self._waiting.popitem()[1], acknowledged=False)

    def clear(self) -> None:
        """Forget the messages of earlier sessions: there are none."""

    def get_all(self) -> list[tuple[int, bytes]]:
        """Return the messages to send again."""
        return []

    async def wait_empty(self) -> None:
        """Wait until nothing is to be sent again."""

    @staticmethod
    def _end(waiting: asyncio.Future[bool] | None, *, acknowledged: bool) -> None:
        if waiting is not None and not waiting.done():
            waiting.set_result(acknowledged)


class Client(gmqtt.Client):  # type: ignore[misc]  # gmqtt has no types
    """One connection.

    Parameters
    ----------
    address, client_id, will
        As in :class:`protocols.mqtt.link.MqttLink`.
    on_messages
        Called with messages that arrived together, and the numbers to acknowledge them by, 0 for no acknowledgement.
    on_bytes
        Called whenever the broker has sent anything.
    on_acknowledged
        Called when the broker has acknowledged messages of :attr:`in_flight`.
    on_lost
        Called when the connection is gone, whichever side ended it.
    on_subscribed
        Called with the number of a subscription and the quality of service granted for each filter; 128 is a refusal.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        will: Message | None,
        *,
        on_messages: Callable[[list[Message], list[int]], None],
        on_bytes: Callable[[], None],
        on_acknowledged: Callable[[], None],
        on_lost: Callable[[], None],
        on_subscribed: Callable[[int, tuple[int, ...]], None],
    ) -> None:
        self.outgoing = Outgoing()
        self.in_flight = InFlight()
        """The messages that were written as frames."""
        self._address = address
        self._writer: asyncio.StreamWriter | None = None
        self._hand_over = on_messages
        self._heard = on_bytes
        self._acknowledged = on_acknowledged
        self._incomplete = b""
        testament = gmqtt.Message(will.topic, will.payload, qos=will.qos, retain=will.retain) if will else None
        super().__init__(client_id, clean_session=True, will_message=testament, persistent_storage=self.outgoing)
        self._package_handler.id_generator._max = FIRST  # noqa: SLF001 - not public in gmqtt; the other numbers are ours
        if address.username is not None:
            self.set_auth_credentials(address.username, address.password)
        self.on_disconnect = lambda *_: on_lost()
        self.on_subscribe = lambda _, number, granted, __: on_subscribed(number, granted)

    async def open(self) -> None:
        """Connect; raises OSError or MQTTError. It does not return when the broker never answers."""
        await self.connect(
            self._address.host, self._address.port, keepalive=KEEP_ALIVE_SECONDS, version=MQTTv311, raise_exc=True
        )

    @property
    def transport(self) -> asyncio.Transport | None:
        """The socket; None before there is one."""
        return None if self._connection is None else self._connection._transport  # noqa: SLF001 - not public in gmqtt

    def write(self, message: Message) -> asyncio.Future[bool] | None:
        """Write a message to the socket.

        Returns
        -------
        asyncio.Future
            With a quality of service of 1: whether the broker acknowledged it, once that is known.
        """
        self.publish(message.topic, message.payload, qos=message.qos, retain=message.retain)
        return self.outgoing.latest if message.qos else None

    def write_frames(self, frames: memoryview) -> None:
        """Write frames of messages, numbered as :attr:`in_flight` counts them, to the socket."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            self._connection._last_data_out = time.monotonic()  # noqa: SLF001 - else gmqtt would ping
            transport.write(frames)

    def request(self, subscriptions: Iterable[Subscription]) -> int:
        """Ask for subscriptions, with a quality of service of 1 at most; return the number the answer will have."""
        number: int = self.subscribe([gmqtt.Subscription(each.filter, qos=min(each.qos, 1)) for each in subscriptions])
        return number

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge the messages with these numbers to the broker, in one write."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            packets = [PUBLISH_ACKNOWLEDGED.pack(MQTTCommands.PUBACK, 2, number) for number in numbers if number]
            if packets:
                self._connection.send_package(b"".join(packets))

    def ping(self) -> None:
        """Send the broker a ping."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            self._connection._send_ping_request()  # noqa: SLF001 - not public in gmqtt

    async def drain(self) -> None:
        """Wait while the buffer of the socket is too full; raises ConnectionError."""
        transport = self.transport
        if transport is not None:
            if self._writer is None:
                protocol: Any = transport.get_protocol()
                self._writer = asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())
            await self._writer.drain()

    def reconnect(self, delay: bool = False) -> asyncio.Future[None]:  # noqa: ARG002, FBT001, FBT002 - gmqtt calls it so
        """Do nothing instead of reconnecting as gmqtt would: the link reconnects with a new client."""
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def _create_connection(self, *arguments: Any, **options: Any) -> Any:
        connection = await super()._create_connection(*arguments, **options)
        connection._protocol.data_received = self._received  # noqa: SLF001 - there is no public way
        return connection

    def _received(self, data: bytes) -> None:
        """Read messages from the socket in place of gmqtt, and leave all other frames to it.

        gmqtt would acknowledge messages before it hands them over, and take several times as long.
        """
        self._heard()
        received = self._incomplete + data
        messages: list[Message] = []
        numbers: list[int] = []
        acknowledged = self.in_flight.acknowledged
        try:
            start = self._take(received, 0, messages, numbers)
            while (end := frame_end(received, start)) is not None:
                self._connection._protocol._read_packet(received[start:end])  # noqa: SLF001 - not public in gmqtt
                start = self._take(received, end, messages, numbers)
            self._incomplete = received[start:]
        except MalformedFrameError:
            self._connection._transport.abort()  # noqa: SLF001 - not public in gmqtt
        if messages:
            self._hand_over(messages, numbers)
        if self.in_flight.acknowledged > acknowledged:
            self._acknowledged()

    def _take(self, received: bytes, start: int, messages: list[Message], numbers: list[int]) -> int:
        """Read messages and acknowledgements of frames; return where the first other frame begins."""
        while (end := take_messages(received, self.in_flight.take(received, start), messages, numbers)) > start:
            start = end
        return start


__all__ = ["Client", "MQTTError"]
