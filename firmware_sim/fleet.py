"""Many live motes in one process, over one connection: carries out the instructions of the mote machines."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

from firmware_sim.mote.mote import USUAL_PRESET, Mote
from firmware_sim.mote.mote_events import Announce, ControlReceived, Instruction, PowerOn, SendPacket, Wake, WakeAt
from firmware_sim.mote.sample_clock import SampleClock
from firmware_sim.phenomena.trace import Trace
from firmware_sim.phenomena.worlds import Phenomenon
from firmware_sim.power.battery import Battery
from firmware_sim.power.meter import Meter
from firmware_sim.radio.channel import Channel, RadioFaults
from protocols.errors import ProtocolError
from protocols.event_log import get_logger
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription
from protocols.mqtt.messages import Seals
from protocols.power.profiles import find_profile, with_seals
from protocols.stimulus import HANDLED
from protocols.wire import topics
from protocols.wire.frames import encode
from protocols.wire.packets import Packet, decode_control

MOST_WAITING = 20_000
"""Most messages that may wait for the broker before motes have to wait as well."""


class Publishes(Protocol):
    """A link to the broker."""

    async def publish(self, message: Message) -> None:
        """Publish a message; raises LinkError."""


@dataclass(frozen=True, slots=True)
class _Outgoing:
    message: Message
    mote: Mote | None = None
    packet: Packet | None = None


class Air:
    """Carries packets from motes to the broker, through a bad channel if there is one.

    Parameters
    ----------
    link
        To the broker.
    channel
        The radio channel with its faults; None for a perfect one.
    clock
        Radio time in microseconds.
    """

    def __init__(self, link: Publishes, channel: Channel | None, clock: Callable[[], int]) -> None:
        self._link = link
        self._channel = channel
        self._clock = clock
        self._outgoing: deque[_Outgoing] = deque()
        self._on_air: list[tuple[int, int, Message]] = []
        self._deliveries = 0
        self._something = asyncio.Event()
        self._less = asyncio.Event()
        self.lost = 0
        """Messages that were lost because there was no broker."""

    @property
    def next_delivery_us(self) -> int | None:
        """The arrival time of the next delayed packet; None if there is none."""
        return self._on_air[0][0] if self._on_air else None

    def send(self, mote: Mote, topic: str, sent: SendPacket) -> None:
        """Send a packet, at once or through the channel. A listen window begins when the packet has been sent."""
        message = Message(topic, encode(sent.packet), qos=0)
        if self._channel is None:
            self._put(_Outgoing(message, mote, sent.packet))
            return
        radio = mote.meter.profile.radio
        carried = self._channel.carry(
            mote.description.name,
            message.payload,
            at_us=self._clock(),
            airtime_us=radio.airtime_us(sent.payload_bits),
            maximum_attempts=round(radio.maximum_attempts),
        )
        mote.meter.repeated(sent.payload_bits, carried.attempts - 1)
        for delivery in carried.deliveries:
            self._deliveries += 1
            held_up = Message(topic, delivery.payload, qos=0)
            heapq.heappush(self._on_air, (delivery.at_us, self._deliveries, held_up))

    def announce(self, topic: str, payload: bytes) -> None:
        """Send an announcement."""
        self._put(_Outgoing(Message(topic, payload, qos=0)))

    def deliver_due(self) -> None:
        """Deliver packets whose time has come."""
        while self._on_air and self._on_air[0][0] <= self._clock():
            self._put(_Outgoing(heapq.heappop(self._on_air)[2]))

    async def room(self) -> None:
        """Wait while too many messages wait for the broker."""
        while len(self._outgoing) > MOST_WAITING:
            self._less.clear()
            await self._less.wait()

    async def drain(self) -> None:
        """Wait until all due messages have been passed to the broker."""
        while self._outgoing:
            self._less.clear()
            await self._less.wait()

    async def run(self) -> None:
        """Pass messages to the broker, in order, until cancelled."""
        while True:
            await self._something.wait()
            self._something.clear()
            while self._outgoing:
                each = self._outgoing[0]
                try:
                    await self._link.publish(each.message)
                except LinkError:
                    self.lost += 1  # no receiver was in range, as happens with real radios
                if each.mote is not None and each.packet is not None:
                    each.mote.transmitted(each.packet, self._clock())
                self._outgoing.popleft()
                self._less.set()

    def _put(self, outgoing: _Outgoing) -> None:
        self._outgoing.append(outgoing)
        self._something.set()


log = get_logger(__name__)

START_SPREAD_US = 1_500_000
"""Motes are switched on one after another over this long, as they would be."""
LINGER_US = 5_000_000
"""A fleet that exits at the end of its phenomenon stays this much longer."""
BACKOFF_US = 20_000
"""A packet waits up to this long at random, so that motes that sample together do not all send together."""


def radio_clock_us() -> int:
    """Return real time in microseconds since 1970, which never steps back within a process."""
    return _EPOCH_US + time.monotonic_ns() // 1000


_EPOCH_US = time.time_ns() // 1000 - time.monotonic_ns() // 1000


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """How a fleet runs.

    Parameters
    ----------
    proxy
        The proxy that owns the motes.
    broker
        The address of the broker.
    speed
        Sample time per real time, for a replay.
    hold_us
        A replay begins when every mote has a program, or this long after the first one got one.
    exit_at_end
        Stop when the phenomenon has ended and every mote has announced it.
    seed
        Seed of start-up, backoff and radio.
    preset, battery, temperature_c
        Device profile of the motes, their battery (None for an endless supply), and its temperature.
    lifetime_us
        How long each battery should last; 0 for any time.
    sealed, seals
        Whether the motes have keys, and what seals their frames with them on a link that the fleet makes itself.
    faults
        Faults of their packets on the way to the broker.
    """

    proxy: str = "roadside"
    broker: BrokerAddress = field(default_factory=BrokerAddress)
    speed: float = 1.0
    hold_us: int = 30_000_000
    exit_at_end: bool = False
    seed: int = 1
    preset: str = USUAL_PRESET
    battery: Battery | None = None
    temperature_c: float = 20.0
    lifetime_us: int = 0
    sealed: bool = False
    seals: Seals | None = None
    faults: RadioFaults | None = None


class FleetLink(Protocol):
    """A link to a broker."""

    connected: asyncio.Event

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Receive until cancelled."""

    async def publish(self, message: Message) -> None:
        """Publish; raises LinkError."""


MakeFleetLink = Callable[[str, Sequence[Subscription]], FleetLink]
"""Makes a link, given the name of the client and what it subscribes to."""


class Fleet:
    """Motes in a phenomenon.

    Parameters
    ----------
    phenomenon
        Their world; in a world with a beginning (a trace) motes wait there until a query demands samples.
    settings
        The settings of the fleet.
    clock
        Real time in microseconds.
    make_link
        Makes the link to the broker; None for one to that of the settings.
    """

    def __init__(
        self,
        phenomenon: Phenomenon,
        settings: FleetSettings,
        *,
        clock: Callable[[], int] = radio_clock_us,
        make_link: MakeFleetLink | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        now_us = clock()
        begins_us = phenomenon.begins_us
        self.sample_clock = SampleClock(
            now_us if begins_us is None else begins_us,
            begins_radio_us=now_us if begins_us is None else None,
            speed=settings.speed,
        )
        profile = find_profile(settings.preset)
        sealed = settings.sealed
        if sealed:
            profile = with_seals(profile)
        self.motes = [
            Mote(
                each,
                self.sample_clock,
                partial(phenomenon.sense, place),
                phenomenon.ends_us,
                meter=Meter(profile, settings.battery, temperature_c=settings.temperature_c),
                lifetime_us=settings.lifetime_us,
                replays=begins_us is not None,
                recording=phenomenon.recording(place) if isinstance(phenomenon, Trace) else None,
                sealed=sealed,
                # A real mote keeps this counter; here each run continues after all before it.
                boot=now_us // 1_000_000 if sealed else 0,
            )
            for place, each in enumerate(phenomenon.motes)
        ]
        self.ends_us = phenomenon.ends_us
        self.begins_us = begins_us
        self._by_name = {mote.description.name: place for place, mote in enumerate(self.motes)}
        self._random = random.Random(settings.seed)  # noqa: S311 - a simulation, not a secret
        self._wakes_us: list[int | None] = [None] * len(self.motes)
        self._wake_ups: list[tuple[int, int]] = []
        self._changed = asyncio.Event()
        self._first_program_us: int | None = None
        self._random.getrandbits(32)  # as when logs were recorded that are replayed
        # Not from the seed: a broker ends the connection of a client whose name another one uses.
        self._link = (make_link or self._broker_link)(
            f"fjord-motes-{settings.proxy}-{uuid4().hex[:12]}",
            [Subscription(topics.control(settings.proxy, "+"), qos=0)],
        )
        channel = None if settings.faults is None else Channel(settings.faults, seed=settings.seed)
        self._air = Air(self._link, channel, clock)

    @property
    def ended(self) -> bool:
        """True when the phenomenon has ended and every mote has taken its last sample."""
        return self.ends_us is not None and all(
            mote.sampling and mote.low_watermark_us > self.ends_us for mote in self.motes
        )

    @property
    def packets_lost(self) -> int:
        """Packets that were lost because there was no broker."""
        return self._air.lost

    @property
    def progress(self) -> float | None:
        """Share of the phenomenon that is over; None if it does not end."""
        if self.ends_us is None or self.begins_us is None:
            return None
        share = (self.sample_clock.at(self._clock()) - self.begins_us) / (self.ends_us - self.begins_us)
        return min(max(share, 0.0), 1.0)

    def counters(self) -> dict[str, dict[str, Any]]:
        """Return the counters and the energy of every mote, by name."""
        now_us = self._clock()
        for mote in self.motes:
            mote.meter.settle(now_us)
        return {
            mote.description.name: {
                **asdict(mote.counters),
                "boot": mote.boot,
                "period_us": mote.program.period_us,
                "refusal": mote.refusal,
                "battery": mote.meter.battery_share,
                "joules": mote.meter.by_name(),
            }
            for mote in self.motes
        }

    async def run(self) -> None:
        """Run the motes until cancelled, or to the phenomenon's end if the settings demand it."""
        async with asyncio.TaskGroup() as tasks:
            link = tasks.create_task(self._link.run_in_bursts(self._receive), name="link")
            await self._link.connected.wait()
            now_us = self._clock()
            spread = START_SPREAD_US // max(1, len(self.motes))
            for place in range(len(self.motes)):
                self._wish(place, now_us + place * spread)
            air = tasks.create_task(self._air.run(), name="air")
            await self._wake_motes()
            await self._air.drain()
            air.cancel()
            link.cancel()

    async def _wake_motes(self) -> None:
        started = [False] * len(self.motes)
        ended_us: int | None = None
        while True:
            now_us = self._clock()
            if self._settings.exit_at_end and self.ended:
                # Each mote announces its end once more, in case its last packet was lost.
                ended_us = ended_us or now_us
                if now_us - ended_us >= LINGER_US:
                    return
            self._release_if_ready(now_us)
            while self._wake_ups and self._wake_ups[0][0] <= now_us:
                wanted_us, place = heapq.heappop(self._wake_ups)
                if self._wakes_us[place] != wanted_us:
                    continue  # the mote has set another timer since
                self._wakes_us[place] = None
                woken_us = self._clock()
                event = Wake(woken_us) if started[place] else PowerOn(woken_us)
                started[place] = True
                self._carry_out(place, self.motes[place].handle(event))
            self._air.deliver_due()
            await self._air.room()
            due = [self._wake_ups[0][0]] if self._wake_ups else []
            if self._air.next_delivery_us is not None:
                due.append(self._air.next_delivery_us)
            pause = (min(due) - self._clock()) / 1e6 if due else 1.0
            try:
                async with asyncio.timeout(min(max(pause, 0.0), 1.0)):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._changed.clear()

    def _broker_link(self, client_id: str, subscriptions: Sequence[Subscription]) -> FleetLink:
        settings = self._settings
        return MqttLink(settings.broker, client_id=client_id, subscriptions=subscriptions, seals=settings.seals)

    async def _receive(self, messages: Sequence[Message]) -> None:
        for message in messages:
            HANDLED.set(message)
            self._handle(message)
        HANDLED.set(None)

    def _handle(self, message: Message) -> None:
        try:
            topic = topics.parse(message.topic)
            if message.refusal:
                self._refuse(topic.names[1], message)
                return
            control = decode_control(message.payload)
        except ProtocolError as error:
            log.warning("control rejected", topic=message.topic, error=str(error))
            return
        place = self._by_name.get(topic.names[1])
        if place is None:
            return
        now_us = self._clock()
        self._carry_out(place, self.motes[place].handle(ControlReceived(now_us, control)))
        if self._first_program_us is None and self.motes[place].sampling:
            self._first_program_us = now_us
        self._changed.set()

    def _refuse(self, mote: str, message: Message) -> None:
        log.warning("control rejected", topic=message.topic, reason=message.refusal)
        if mote in self._by_name:
            self.motes[self._by_name[mote]].counters.control_refused += 1

    def _release_if_ready(self, now_us: int) -> None:
        """Start a held replay once all motes are ready, or have had enough time."""
        if not self.sample_clock.held or self._first_program_us is None:
            return
        waited_us = now_us - self._first_program_us
        if all(mote.sampling for mote in self.motes) or waited_us >= self._settings.hold_us:
            self.sample_clock.release(now_us)
            log.info("replay begins", motes=len(self.motes), waited_seconds=round(waited_us / 1e6, 1))
            for place in range(len(self.motes)):
                self._wish(place, now_us)

    def _carry_out(self, place: int, instructions: Iterable[Instruction]) -> None:
        proxy, name = self._settings.proxy, self.motes[place].description.name
        for instruction in instructions:
            match instruction:
                case SendPacket():
                    self._air.send(self.motes[place], topics.packet(proxy, name), instruction)
                case Announce():
                    self._air.announce(topics.announcement(proxy, name), encode(instruction.announcement))
                case WakeAt():
                    self._wish(place, instruction.radio_us + self._random.randrange(BACKOFF_US))

    def _wish(self, place: int, radio_us: int) -> None:
        self._wakes_us[place] = radio_us
        heapq.heappush(self._wake_ups, (radio_us, place))


LOOK_SECONDS = 1.0
"""Between two looks at a fleet that runs."""


async def run_until(fleet: Fleet, stop: asyncio.Event, seconds: float | None, look: Callable[[], None]) -> None:
    """Run a fleet until it ends.

    Parameters
    ----------
    fleet
        The motes.
    stop
        Set when they are to stop.
    seconds
        How long they run at most; None for ever.
    look
        Called every second, to show how far they are.
    """
    running = asyncio.create_task(fleet.run(), name="fleet")
    others = [
        asyncio.create_task(_look_regularly(look), name="watch"),
        stopping := asyncio.create_task(stop.wait(), name="stop"),
    ]
    try:
        await asyncio.wait([running, stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (running, *others):
            each.cancel()
        await asyncio.wait(others)
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def _look_regularly(look: Callable[[], None]) -> None:
    while True:
        look()
        await asyncio.sleep(LOOK_SECONDS)
