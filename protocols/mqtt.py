"""The one seam between Fjord and its MQTT client library.

:class:`MqttLink` keeps one connection: it connects, says its birth, subscribes, hands over messages, and does all of it
again, with growing jittered pauses, whenever the broker goes away. Nothing else in Fjord imports an MQTT library, so
that a faster client can take this one's place.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiomqtt
import structlog

from protocols.errors import FjordError

log = structlog.get_logger(__name__)

DEFAULT_PORT = 1883
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 15.0
MANY_CALLS = 1_000
"""Publishes under way at once before the client library warns of them; ours bound their own."""


class LinkError(FjordError):
    """A message could not be handed to the broker."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is, and as whom to connect. The password never appears in a representation or a log."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish or that has been received."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic filter and its quality of service."""

    filter: str
    qos: int = 1


def pauses(random_source: random.Random) -> Iterator[float]:
    """Yield the seconds to wait before each new attempt: doubling, bounded, each with up to half of it as jitter."""
    longest = FIRST_PAUSE_SECONDS
    while True:
        yield longest * (0.5 + random_source.random() / 2)
        longest = min(2 * longest, LONGEST_PAUSE_SECONDS)


class MqttLink:
    """A connection that outlives the broker.

    Parameters
    ----------
    address
        The broker.
    client_id
        Stable name of this client at the broker.
    subscriptions
        Subscribed to after each connect.
    births
        Published after each connect, once subscriptions stand.
    will
        Left with the broker, which publishes it when this client vanishes.
    on_connect
        Called after each connect, once subscriptions stand; publish there what the broker may have forgotten.
    max_queued
        Received messages that may wait for the handler. When full, further ones are dropped by the client library,
        which logs it; sequence numbers above this layer find what is missing.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str,
        subscriptions: Sequence[Subscription] = (),
        births: Sequence[Message] = (),
        will: Message | None = None,
        on_connect: Callable[[], Awaitable[None]] | None = None,
        max_queued: int = 65_536,
        random_source: random.Random | None = None,
    ) -> None:
        self.address = address
        self.connected = asyncio.Event()
        self.connects_total = 0
        self._client_id = client_id
        self._subscriptions = list(subscriptions)
        self._births = tuple(births)
        self._will = will
        self._on_connect = on_connect
        self._max_queued = max_queued
        self._random = random_source or random.Random()  # noqa: S311 - jitter is no secret
        self._client: aiomqtt.Client | None = None

    async def run(self, handle: Callable[[Message], Awaitable[None]]) -> None:
        """Keep the connection and call `handle` for each message, one after another, until cancelled."""
        waiting = pauses(self._random)
        while True:
            try:
                await self._connect_and_receive(handle)
            except (aiomqtt.MqttError, LinkError) as error:
                if self.connected.is_set():
                    waiting = pauses(self._random)
                self.connected.clear()
                self._client = None
                pause = next(waiting)
                log.warning(
                    "broker is away", broker=str(self.address), error=str(error), next_try_seconds=round(pause, 2)
                )
                await asyncio.sleep(pause)
            finally:
                self.connected.clear()
                self._client = None

    async def publish(self, message: Message) -> None:
        """Publish, and with a quality of service of 1 wait until the broker has it.

        Raises
        ------
        LinkError
            If there is no connection, or it breaks first.
        """
        client = self._client
        if client is None:
            raise LinkError(f"not connected to the broker at {self.address}")
        try:
            await client.publish(message.topic, message.payload, qos=message.qos, retain=message.retain)
        except aiomqtt.MqttError as error:
            raise LinkError(
                f"the broker at {self.address} did not take a message on {message.topic}: {error}"
            ) from error

    async def subscribe(self, subscription: Subscription) -> None:
        """Subscribe now (when connected) and after every later connect."""
        self._subscriptions.append(subscription)
        if self._client is not None:
            try:
                await self._client.subscribe(subscription.filter, qos=subscription.qos)
            except aiomqtt.MqttError as error:
                raise LinkError(f"could not subscribe to {subscription.filter}: {error}") from error

    async def _connect_and_receive(self, handle: Callable[[Message], Awaitable[None]]) -> None:
        will = self._will
        async with aiomqtt.Client(
            hostname=self.address.host,
            port=self.address.port,
            username=self.address.username,
            password=self.address.password,
            identifier=self._client_id,
            will=aiomqtt.Will(will.topic, will.payload, will.qos, will.retain) if will else None,
            max_queued_incoming_messages=self._max_queued,
            max_inflight_messages=1_000,
        ) as client:
            self._client = client
            client.pending_calls_threshold = MANY_CALLS
            # Who answers a birth must find us listening.
            if self._subscriptions:
                await client.subscribe([(wanted.filter, wanted.qos) for wanted in self._subscriptions])
            for birth in self._births:
                await client.publish(birth.topic, birth.payload, qos=birth.qos, retain=birth.retain)
            self.connects_total += 1
            self.connected.set()
            log.info("connected to the broker", broker=str(self.address), client=self._client_id)
            if self._on_connect is not None:
                await self._on_connect()
            async for message in client.messages:
                payload = message.payload
                await handle(
                    Message(
                        str(message.topic),
                        payload if isinstance(payload, bytes) else str(payload or "").encode(),
                        message.qos,
                        bool(message.retain),
                    )
                )
