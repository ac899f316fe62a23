"""The motes of benchmarks/endurance.py: their samples follow from the numbers of mote and sample, so they are known.

They run only programs that send every sample: they announce themselves, listen after a packet until they have a
program, and then sample in real time. One task sends for all of them, evenly spread.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from protocols.mqtt.link import LinkError, Message, MqttLink
from protocols.wire import topics
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Announcement, Packet, RunProgram, Sample, SendAnnouncement, decode_control
from protocols.wire.programs import SamplingProgram, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema

SEGMENTS, LANES, FLOWS = 20, 4, 1_000
LISTEN_US = 200_000
TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("lane", FieldType.INTEGER),
        Field("speed", FieldType.REAL),
        Field("flow", FieldType.INTEGER),
    ),
)
Numbers = npt.NDArray[np.int64]


def values_of(mote: Numbers, tick: Numbers) -> dict[str, Numbers | npt.NDArray[np.float64]]:
    """Return the values of motes with these numbers, so many periods after 1970."""
    mixed = (tick * 2_654_435_761 + mote * 40_503) % 4_294_967_291
    return {"lane": mixed % LANES, "speed": (mixed // 7 % 400) / 4.0, "flow": mixed // 11 % FLOWS}


@dataclass(frozen=True, slots=True)
class Fleet:
    """Motes that are alike.

    Parameters
    ----------
    count
        How many.
    period_us
        In which each samples once.
    samples_a_packet
        How many samples it sends at once.
    """

    count: int
    period_us: int = 50_000
    samples_a_packet: int = 10

    @property
    def packet_seconds(self) -> float:
        """The time from packet to packet."""
        return self.period_us * self.samples_a_packet / 1e6


@dataclass(slots=True)
class Mote:
    """One mote.

    Parameters
    ----------
    number
        Identifies it.
    first, following
        Ticks: the first one it sampled, and the next one.
    """

    number: int
    program: SamplingProgram | None = None
    first: int = 0
    following: int = 0
    sequence: int = 0

    @property
    def name(self) -> str:
        """Its name."""
        return f"m{self.number}"


@dataclass
class Motes:
    """All motes of a proxy.

    Parameters
    ----------
    link
        To the broker.
    proxy
        Its name.
    fleet
        How many they are, and how they sample.
    """

    link: MqttLink
    proxy: str
    fleet: Fleet
    sent: int = 0
    """Tuples that the broker has accepted."""
    late_seconds: float = 0.0
    """How far behind real time they are because the machine or the broker is too slow."""
    motes: list[Mote] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.motes = [Mote(number) for number in range(self.fleet.count)]

    async def receive(self, message: Message) -> None:
        """Carry out the proxy's instructions to one of them."""
        control = decode_control(message.payload)
        mote = self.motes[int(control.mote.removeprefix("m"))]
        for each in control.instructions:
            if isinstance(each, RunProgram):
                self._run(mote, each)
            elif isinstance(each, SendAnnouncement):
                await self._announce(mote)

    def _run(self, mote: Mote, order: RunProgram) -> None:
        program = order.program
        if program == mote.program:
            return
        period_us = self.fleet.period_us
        if program.period_us != period_us or program.bands or program.report is not None:
            raise SystemExit(f"{mote.name} is not to send every sample: {program}")
        if mote.program is None:
            mote.first = mote.following = -(-max(order.not_before_us, _now_us()) // period_us)
        mote.program = program

    async def _announce(self, mote: Mote) -> None:
        properties = {"sensor": mote.name, "segment": mote.number % SEGMENTS}
        period_us = self.fleet.period_us
        announcement = Announcement(VERSION, mote.name, 1, "loop", TRAFFIC, properties, period_us, period_us)
        await self.link.publish(Message(topics.announcement(self.proxy, mote.name), encode(announcement)))

    async def begin(self) -> None:
        """Announce all motes when the proxy asks, and send empty packets until all have a program."""
        while any(mote.program is None for mote in self.motes):
            for mote in self.motes:
                if mote.program is None:
                    await self._send(mote, _now_us(), (), listen_us=LISTEN_US)
            await asyncio.sleep(0.5)
        # The last has its program much later than the first: all sample from the same instant on, which is now.
        tick = -(-_now_us() // self.fleet.period_us)
        for mote in self.motes:
            mote.first = mote.following = max(mote.first, tick)
            await self._send(mote, mote.following * self.fleet.period_us, ())

    async def sample(self, seconds: float) -> None:
        """Sample in real time for so long."""
        count, packet_seconds = self.fleet.count, self.fleet.packet_seconds
        first_us = max(mote.first for mote in self.motes) * self.fleet.period_us
        # A mote sends its last sample of a packet as it takes it; the clocks of motes differ by up to a packet.
        began = first_us / 1e6 + packet_seconds - self.fleet.period_us / 1e6
        number, turns, pause = 0, round(seconds / packet_seconds), packet_seconds / count
        while number < turns * count:
            mote = self.motes[number % count]
            due = began + number * pause
            await asyncio.sleep(max(0.0, due - time.time()))
            self.late_seconds = time.time() - due
            await self._send_samples(mote)
            number += 1

    async def end(self, seconds: float) -> None:
        """Promise no samples for so long, so that windows end now."""
        for mote in self.motes:
            now_us = _now_us()
            await self._send(mote, now_us, (), promise_us=now_us + round(seconds * 1e6))

    async def _send_samples(self, mote: Mote) -> None:
        count, period_us = self.fleet.samples_a_packet, self.fleet.period_us
        ticks = np.arange(mote.following, mote.following + count)
        clock_us = int(ticks[-1]) * period_us
        found = values_of(np.full(count, mote.number), ticks)
        assert mote.program is not None  # noqa: S101 - all have one before they sample
        ages: list[int] = (clock_us - ticks * period_us).tolist()
        values = zip(*(found[name].tolist() for name in mote.program.fields), strict=True)
        records = tuple(Sample(age, sampled) for age, sampled in zip(ages, values, strict=True))
        mote.following += count
        await self._send(mote, clock_us, records, promise_us=clock_us + period_us)
        self.sent += count

    async def _send(
        self,
        mote: Mote,
        clock_us: int,
        records: tuple[Sample, ...],
        *,
        listen_us: int = 0,
        promise_us: int | None = None,
    ) -> None:
        number = 0 if mote.program is None else program_number(mote.program)
        promise_us = clock_us if promise_us is None else promise_us
        packet = Packet(VERSION, mote.name, 1, mote.sequence, clock_us, promise_us, listen_us, number, records)
        mote.sequence += 1
        message = Message(topics.packet(self.proxy, mote.name), encode(packet))
        while True:
            try:
                await self.link.publish(message)
            except LinkError:
                await self.link.connected.wait()
            else:
                return


def _now_us() -> int:
    return time.time_ns() // 1_000
