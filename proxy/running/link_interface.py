"""The proxy's side of its link to the broker: interfaces, clocks, and the session that the link opens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from protocols.mqtt.link import SILENCE_SECONDS, BrokerAddress, Message, MqttLink, Subscription
from protocols.mqtt.messages import VERSIONS, LastingSession, Seals, Version
from protocols.presence.claiming import claimed
from protocols.presence.name_claim import claim_of_proxy
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status, decode_status
from protocols.wire.frames import VERSION, encode
from proxy.running.paired_link import OnConnect, PairedLink


class Publisher(Protocol):
    """A link that publishes messages."""

    async def publish(self, message: Message) -> None:
        """Publish; raises LinkError."""


class Link(Publisher, Protocol):
    """The part of :class:`protocols.mqtt.link.MqttLink` that the service uses."""

    @property
    def connected(self) -> asyncio.Event:
        """Set while there is a connection."""
        ...

    @property
    def hangs_total(self) -> int:
        """Times the connection was dropped because the broker sent nothing any more."""
        ...

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Receive until cancelled."""

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of the devices' session, in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the time comes from, in microseconds: `radio` never goes back, `real` is the time of day."""

    radio: Callable[[], int] = lambda: time.monotonic_ns() // 1_000
    real: Callable[[], int] = lambda: time.time_ns() // 1_000


@dataclass(frozen=True, slots=True)
class DeviceSession:
    """The session in which the broker keeps messages of devices while the proxy is away; always of one client id."""

    client_id: str
    subscriptions: tuple[Subscription, ...]
    session: LastingSession


@dataclass(frozen=True, slots=True)
class ClientSession:
    """The MQTT session of a proxy: client id, subscriptions, birth message and last will; what the link calls.

    `devices` is the session of its devices, which has a connection of its own; None for none.
    """

    client_id: str
    subscriptions: tuple[Subscription, ...]
    birth: Message
    will: Message
    on_connect: Callable[[], Awaitable[None]]
    on_disconnect: Callable[[], None] | None = None
    devices: DeviceSession | None = None


LinkFactory = Callable[[ClientSession], Link]


def client_session(
    proxy: str,
    epoch: str,
    since_us: int,
    on_connect: Callable[[], Awaitable[None]],
    device_topics: Iterable[str] = (),
    *,
    lasting: LastingSession | None = None,
) -> ClientSession:
    """Return the session of a proxy that began at `since_us`, and whose drivers subscribe to `device_topics`.

    Their messages come in a `lasting` session, if there is to be one.
    """
    of_devices = tuple(map(Subscription, device_topics))

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
            *(of_devices if lasting is None else ()),
        ),
        birth=status(Presence.ONLINE),
        will=status(Presence.OFFLINE),
        on_connect=on_connect,
        devices=None
        if lasting is None or not of_devices
        else DeviceSession(
            f"fjord-devices-{proxy}-{epoch}", (Subscription(topics.proxy_backlog(proxy, "+")), *of_devices), lasting
        ),
    )


def echo_of(session: ClientSession) -> Message:
    """Return a message that comes back to the proxy itself, and to no other: the claim of its name, which it has."""
    proxy = decode_status(session.birth.payload).name
    return Message(topics.proxy_claim(proxy), session.birth.payload)


def lasting_session(choice: str, expiry_us: int, *, has_one: bool, former: Iterable[str] = ()) -> LastingSession | None:
    """Return how messages of devices are kept by the broker, given the settings; None if they are not.

    Parameters
    ----------
    choice, expiry_us
        ``auto``, ``always`` or ``never``; and for how long.
    has_one
        Whether the broker may have a session already. Then it goes on in any version of MQTT: else it was discarded.
    former
        Topic filters to which it may be subscribed from before, and that no driver has any more.
    """
    if choice == "never":
        # One that there may be is ended by a clean start, or it would send later what has come otherwise.
        return LastingSession(-(-expiry_us // 1_000_000), versions=()) if has_one else None
    # The embedded amqtt speaks 3.1.1 only: it ends connections over messages that waited for an absent client.
    versions = VERSIONS if has_one or choice == "always" else (Version.V5,)
    return LastingSession(-(-expiry_us // 1_000_000), versions=versions, former=tuple(former))


def mqtt_link(
    address: BrokerAddress, *, silence_seconds: float = SILENCE_SECONDS, seals: Seals | None = None
) -> LinkFactory:
    """Return the factory of the real link, which drops a broker that has been silent for this long.

    With `seals` all frames are sealed.
    """

    def own_link(session: ClientSession, on_connect: OnConnect) -> MqttLink:
        return MqttLink(
            address,
            client_id=session.client_id,
            subscriptions=session.subscriptions,
            births=(session.birth,),
            will=session.will,
            on_connect=on_connect,
            on_disconnect=session.on_disconnect,
            silence_seconds=silence_seconds,
            seals=seals,
        )

    def link_of_devices(devices: DeviceSession, on_connect: OnConnect, on_loss: Callable[[], None]) -> MqttLink:
        return MqttLink(
            address,
            client_id=devices.client_id,
            subscriptions=devices.subscriptions,
            on_connect=on_connect,
            on_disconnect=on_loss,
            silence_seconds=silence_seconds,
            session=devices.session,
        )

    def make(session: ClientSession) -> Link:
        if session.devices is None:
            return own_link(session, session.on_connect)
        return PairedLink(
            partial(own_link, session), partial(link_of_devices, session.devices), on_connect=session.on_connect
        )

    return make


def status_of(proxy: str, epoch: str) -> Status:
    """Return the status of a proxy that begins now."""
    return Status(VERSION, proxy, Presence.ONLINE, epoch, time.time_ns() // 1_000)


def claim_of(
    own: Status, address: BrokerAddress, stop: Callable[[], None], seals: Seals | None = None
) -> AbstractAsyncContextManager[None]:
    """Have the name of a proxy while the context lasts; `stop` is called if it turns out later that it is taken.

    The status that it claims with is the one that it is born with, by which it knows its claim.

    Raises
    ------
    NameTakenError
        If another proxy has it.
    """

    def make_link(client_id: str, subscriptions: Sequence[Subscription], births: Sequence[Message]) -> MqttLink:
        return MqttLink(address, client_id=client_id, subscriptions=subscriptions, births=births, seals=seals)

    return claimed(claim_of_proxy(own), "proxy", make_link, stop=stop)
