"""The proxy's side of its link to the broker: interfaces, clocks, and two connections that are used as one.

**Two connections that a proxy uses as one link: its own, and one of a session in which the broker keeps messages.**

The session is that of devices: what they publish while the proxy is away waits at the broker. The proxy's own
connection begins anew each time, as its frames have owners that send them again.

Messages of both are handed over one after another, in tasks of one name, so that a recorded run can be replayed. What
becomes of the session comes as a message, too::

    devices' connection    connected: SESSION_TOPIC "continued"    1 2 3 ...    lost    connected: "begun"    1 2 ...
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

from protocols.mqtt.link import SILENCE_SECONDS, BrokerAddress, Message, MqttLink, Subscription
from protocols.mqtt.messages import VERSIONS, LastingSession, Seals, Version
from protocols.presence.claiming import claimed
from protocols.presence.name_claim import claim_of_proxy
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status, decode_status
from protocols.wire.frames import VERSION, encode

SESSION_TOPIC: Final = "$fjord/device-session"
"""No client publishes on it: it is a message of this link."""
CONTINUED, BEGUN, NONE, LOST = b"continued", b"begun", b"none", b"lost"
"""The broker has kept the session, or begun one, or keeps none; the connection is lost."""

Take: TypeAlias = Callable[[Sequence[Message]], Awaitable[None]]
OnConnect: TypeAlias = Callable[[], Awaitable[None]]
_OWN_TOPICS: Final = topics.PREFIX + "/"


class PairedLink:
    """The two connections.

    Parameters
    ----------
    make_own, make_devices
        Make the links, given what they call after each connect, and that of devices after each loss.
    on_connect
        Called after each connect of the proxy's own link.
    """

    def __init__(
        self,
        make_own: Callable[[OnConnect], MqttLink],
        make_devices: Callable[[OnConnect, Callable[[], None]], MqttLink],
        on_connect: OnConnect,
    ) -> None:
        self._on_connect = on_connect
        self._own = make_own(self._own_connected)
        self._lost = asyncio.Event()
        self._devices = make_devices(self._devices_connected, self._lost.set)
        self._turn = asyncio.Lock()
        self._take: Take = _not_running

    @property
    def connected(self) -> asyncio.Event:
        """Whether the proxy's own link has a connection."""
        return self._own.connected

    @property
    def hangs_total(self) -> int:
        """Times a connection was dropped because the broker sent nothing any more."""
        return self._own.hangs_total + self._devices.hangs_total

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; None while there are both."""
        return self._own.trouble or self._devices.trouble

    async def publish(self, message: Message) -> None:
        """Publish on the proxy's own connection; raises LinkError."""
        await self._own.publish(message)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of devices, in the order in which they came."""
        self._devices.acknowledge(numbers)

    async def run_in_bursts(self, take: Take) -> None:
        """Receive on both until cancelled."""

        async def in_turn(messages: Sequence[Message]) -> None:
            async with self._turn:
                await take(messages)

        async def of_devices(messages: Sequence[Message]) -> None:
            found = [each for each in messages if each.number or not _own(each.topic)]
            if found:
                await in_turn(found)

        async def note_losses() -> None:
            while True:
                await self._lost.wait()
                self._lost.clear()
                await in_turn([Message(SESSION_TOPIC, LOST)])

        self._take = in_turn
        task = asyncio.current_task()
        name = None if task is None else task.get_name()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._own.run_in_bursts(in_turn), name=name)
            tasks.create_task(self._devices.run_in_bursts(of_devices), name=name)
            tasks.create_task(note_losses(), name=name)

    async def _own_connected(self) -> None:
        async with self._turn:
            await self._on_connect()

    async def _devices_connected(self) -> None:
        state = CONTINUED if self._devices.session_present else BEGUN if self._devices.session_lasts else NONE
        await self._take([Message(SESSION_TOPIC, state)])


def _own(topic: str) -> bool:
    """Return whether a topic is Fjord's: its messages come on the other connection, where their seals are opened."""
    return topic.startswith((_OWN_TOPICS, SESSION_TOPIC))


async def _not_running(_: Sequence[Message]) -> None:
    """Take nothing: the link does not run yet."""


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
