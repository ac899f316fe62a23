"""The proxy's side of its link to the broker: interfaces, clocks, and the session that the link opens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from protocols.mqtt.link import SILENCE_SECONDS, BrokerAddress, Message, MqttLink, Subscription
from protocols.mqtt.messages import Seals
from protocols.presence.claiming import claimed
from protocols.presence.name_claim import claim_of_proxy
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status, decode_status
from protocols.wire.frames import VERSION, encode


class Publisher(Protocol):
    """A link that publishes messages."""

    async def publish(self, message: Message) -> None:
        """Publish; raises LinkError."""


class Link(Publisher, Protocol):
    """The part of :class:`protocols.mqtt.link.MqttLink` that the service uses."""

    connected: asyncio.Event
    hangs_total: int
    """Times the connection was dropped because the broker sent nothing any more."""

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Receive until cancelled."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the time comes from, in microseconds: `radio` never goes back, `real` is the time of day."""

    radio: Callable[[], int] = lambda: time.monotonic_ns() // 1_000
    real: Callable[[], int] = lambda: time.time_ns() // 1_000


@dataclass(frozen=True, slots=True)
class ClientSession:
    """The MQTT session of a proxy: client id, subscriptions, birth message and last will; what the link calls."""

    client_id: str
    subscriptions: tuple[Subscription, ...]
    birth: Message
    will: Message
    on_connect: Callable[[], Awaitable[None]]
    on_disconnect: Callable[[], None] | None = None


LinkFactory = Callable[[ClientSession], Link]


def client_session(
    proxy: str,
    epoch: str,
    since_us: int,
    on_connect: Callable[[], Awaitable[None]],
    device_topics: Iterable[str] = (),
) -> ClientSession:
    """Return the session of a proxy that began at `since_us`, and whose drivers subscribe to `device_topics`."""

    def status(presence: Presence) -> Message:
        payload = encode(Status(VERSION, proxy, presence, epoch, since_us))
        return Message(topics.proxy_status(proxy), payload, retain=True)

    return ClientSession(
        # Two of the same name must not take the connection from each other for ever.
        client_id=f"fjord-proxy-{proxy}-{epoch}",
        subscriptions=(
            # The demand first: retained, it arrives before the packets that depend on it.
            Subscription(topics.demand("+")),
            Subscription(topics.demand_piece("+", "+")),
            Subscription(topics.cluster_status("+")),
            Subscription(topics.acks(proxy)),
            Subscription(topics.proxy_claim(proxy)),
            # The motes of other proxies have to be known before motes announce themselves.
            Subscription(topics.proxy_status("+")),
            Subscription(topics.mote_entry("+", "+")),
            Subscription(topics.announcement(proxy, "+")),
            Subscription(topics.packet(proxy, "+")),
            *map(Subscription, device_topics),
        ),
        birth=status(Presence.ONLINE),
        will=status(Presence.OFFLINE),
        on_connect=on_connect,
    )


def echo_of(session: ClientSession) -> Message:
    """Return a message that comes back to the proxy itself, and to no other: the claim of its name, which it has."""
    proxy = decode_status(session.birth.payload).name
    return Message(topics.proxy_claim(proxy), session.birth.payload)


def mqtt_link(
    address: BrokerAddress, *, silence_seconds: float = SILENCE_SECONDS, seals: Seals | None = None
) -> LinkFactory:
    """Return the factory of the real link, which drops a broker that has been silent for this long.

    With `seals` all frames are sealed.
    """

    def make(session: ClientSession) -> Link:
        return MqttLink(
            address,
            client_id=session.client_id,
            subscriptions=session.subscriptions,
            births=(session.birth,),
            will=session.will,
            on_connect=session.on_connect,
            on_disconnect=session.on_disconnect,
            silence_seconds=silence_seconds,
            seals=seals,
        )

    return make


def claim_of(
    proxy: str, epoch: str, address: BrokerAddress, stop: Callable[[], None], seals: Seals | None = None
) -> AbstractAsyncContextManager[None]:
    """Have the name of a proxy while the context lasts; `stop` is called if it turns out later that it is taken.

    Raises
    ------
    NameTakenError
        If another proxy has it.
    """

    def make_link(client_id: str, subscriptions: Sequence[Subscription], births: Sequence[Message]) -> MqttLink:
        return MqttLink(address, client_id=client_id, subscriptions=subscriptions, births=births, seals=seals)

    own = Status(VERSION, proxy, Presence.ONLINE, epoch, time.time_ns() // 1_000)
    return claimed(claim_of_proxy(own), "proxy", make_link, stop=stop)
