"""What the proxy needs of its link to the broker, and what the link has to know of the proxy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocols.mqtt.link import SILENCE_SECONDS, BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status
from protocols.wire.frames import VERSION, encode


class Publisher(Protocol):
    """What most parts need of a link."""

    async def publish(self, message: Message) -> None:
        """Publish; raises LinkError."""


class Link(Publisher, Protocol):
    """What the service needs of :class:`protocols.mqtt.link.MqttLink`."""

    connected: asyncio.Event
    hangs_total: int
    """Times the broker was given up because it sent nothing any more."""

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Receive until cancelled."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the time comes from, in microseconds: `radio` never goes back, `real` is the time of day."""

    radio: Callable[[], int] = lambda: time.monotonic_ns() // 1_000
    real: Callable[[], int] = lambda: time.time_ns() // 1_000


@dataclass(frozen=True, slots=True)
class ClientSession:
    """What a link has to know to connect for a proxy: who it is, what it hears, its birth and its death."""

    client_id: str
    subscriptions: tuple[Subscription, ...]
    birth: Message
    death: Message
    on_connect: Callable[[], Awaitable[None]]


LinkFactory = Callable[[ClientSession], Link]


def client_session(
    proxy: str,
    epoch: str,
    since_us: int,
    on_connect: Callable[[], Awaitable[None]],
    foreign: Iterable[str] = (),
) -> ClientSession:
    """Return the session of a proxy that began at `since_us`, and whose drivers want messages on `foreign` topics."""

    def status(presence: Presence) -> Message:
        payload = encode(Status(VERSION, proxy, presence, epoch, since_us))
        return Message(topics.proxy_status(proxy), payload, retain=True)

    return ClientSession(
        client_id=f"fjord-proxy-{proxy}",
        subscriptions=(
            # The demand first: retained, it comes before the packets it decides about.
            Subscription(topics.demand("+")),
            Subscription(topics.cluster_status("+")),
            Subscription(topics.acks(proxy)),
            # Whose motes are whose has to be known before they announce themselves.
            Subscription(topics.proxy_status("+")),
            Subscription(topics.mote_entry("+", "+")),
            Subscription(topics.announcement(proxy, "+")),
            Subscription(topics.packet(proxy, "+")),
            *map(Subscription, foreign),
        ),
        birth=status(Presence.ONLINE),
        death=status(Presence.OFFLINE),
        on_connect=on_connect,
    )


def mqtt_link(address: BrokerAddress, *, silence_seconds: float = SILENCE_SECONDS) -> LinkFactory:
    """Return what makes the real link, which gives up a broker that has been silent for so long."""

    def make(greet: ClientSession) -> Link:
        return MqttLink(
            address,
            client_id=greet.client_id,
            subscriptions=greet.subscriptions,
            births=(greet.birth,),
            will=greet.death,
            on_connect=greet.on_connect,
            silence_seconds=silence_seconds,
        )

    return make
