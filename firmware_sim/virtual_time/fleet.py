"""Many motes in virtual time and the other end of their radio, driven by a queue of events instead of a clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from firmware_sim.mote.mote import Mote, Sense
from firmware_sim.mote.mote_events import (
    Announce,
    ControlReceived,
    Event,
    Instruction,
    PowerOn,
    SendPacket,
    Wake,
    WakeAt,
)
from firmware_sim.mote.sample_clock import Drift, DriftingClock, SampleClock
from firmware_sim.phenomena.worlds import Phenomenon
from firmware_sim.power.battery import Battery
from firmware_sim.power.meter import Meter
from firmware_sim.radio.channel import Channel, RadioFaults
from protocols.errors import FrameError
from protocols.power.profiles import DeviceProfile
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import Control, Packet, RunProgram, SampleValue, decode_packet
from protocols.wire.programs import SLEEP, SamplingProgram, program_number

LOWEST_US = -(2**62)


@dataclass(slots=True)
class Received:
    """The packets from one mote. A missing sequence number is a loss; a repeated one, a repeat."""

    packets: int = 0
    repeated: int = 0
    highest_sequence: int = -1
    seen: set[int] = field(default_factory=set)

    @property
    def missing(self) -> int:
        """How many packets before the latest never arrived."""
        return self.highest_sequence + 1 - len(self.seen)


class Gateway:
    """Answers motes like a proxy with constant demands.

    Parameters
    ----------
    wanted
        The program of each mote, by name; others sleep.
    listener
        Called with every new packet that can be read, and the time of its arrival.
    """

    def __init__(
        self, wanted: Mapping[str, SamplingProgram], listener: Callable[[int, Packet], None] | None = None
    ) -> None:
        self._wanted = dict(wanted)
        self._listener = listener
        self.rejected = 0
        """Packets that could not be read."""
        self.received: dict[str, Received] = {}

    def receive(self, at_us: int, payload: bytes) -> Control | None:
        """Process a packet; return control, if the mote listens and runs another program than it should."""
        try:
            packet = decode_packet(payload)
        except FrameError:
            self.rejected += 1
            return None
        received = self.received.setdefault(packet.mote, Received())
        if packet.sequence in received.seen:
            received.repeated += 1
            return None
        received.seen.add(packet.sequence)
        received.packets += 1
        received.highest_sequence = max(received.highest_sequence, packet.sequence)
        if self._listener is not None:
            self._listener(at_us, packet)
        wanted = self._wanted.get(packet.mote, SLEEP)
        if packet.listen_us == 0 or packet.program == program_number(wanted):
            return None
        return Control(VERSION, packet.mote, (RunProgram(wanted, LOWEST_US),))


ANSWER_US = 2_000
"""A proxy's control is sent this long after the packet that announced the listen window."""
START_SPREAD_US = 1_500_000
BACKOFF_US = 20_000
"""As live motes do; see :mod:`firmware_sim.fleet`."""


@dataclass(frozen=True, slots=True)
class VirtualSettings:
    """The settings of a fleet in virtual time.

    Parameters
    ----------
    profile, battery, temperature_c
        The device and the battery of the motes.
    faults
        Faults of the radio.
    drifting
        Whether their clocks have the error of the profile.
    begins_us
        The beginning of the run, in a world without a beginning.
    seed
        The seed of all random values.
    """

    profile: DeviceProfile
    battery: Battery | None = None
    temperature_c: float = 20.0
    faults: RadioFaults = field(default_factory=RadioFaults)
    drifting: bool = False
    begins_us: int = 0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class _Arrival:
    payload: bytes


class VirtualFleet:
    """Motes in a phenomenon, in virtual time.

    Parameters
    ----------
    phenomenon
        Their world.
    programs
        The program of each mote, by name.
    settings
        The settings of the fleet.
    listener
        Called with every packet that arrives, and the time.
    """

    def __init__(
        self,
        phenomenon: Phenomenon,
        programs: Mapping[str, SamplingProgram],
        settings: VirtualSettings,
        listener: Callable[[int, Packet], None] | None = None,
    ) -> None:
        begins_us = settings.begins_us if phenomenon.begins_us is None else phenomenon.begins_us
        self._now_us = begins_us
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)
        self._clock = SampleClock(begins_us, begins_radio_us=begins_us)
        self.channel = Channel(settings.faults, seed=settings.seed)
        self.gateway = Gateway(programs, listener)
        self.motes = [self._mote(phenomenon, place) for place in range(len(phenomenon.motes))]
        self._order = 0
        self._queue: list[tuple[int, int, int, Event | _Arrival]] = []
        self._wakes_us: list[int | None] = [None] * len(self.motes)
        self._free_at_us = [begins_us] * len(self.motes)
        spread = START_SPREAD_US // max(1, len(self.motes))
        for place in range(len(self.motes)):
            self._put(begins_us + place * spread, place, PowerOn(begins_us + place * spread))

    def run(self, until_us: int, progress: Callable[[int], None] | None = None) -> None:
        """Run up to an instant; may be called again to continue."""
        while self._queue and self._queue[0][0] <= until_us:
            at_us, _, place, event = heapq.heappop(self._queue)
            if progress is not None and at_us // 3_600_000_000 != self._now_us // 3_600_000_000:
                progress(at_us)
            self._now_us = at_us
            match event:
                case Wake() if self._wakes_us[place] != at_us:
                    continue  # the mote has set another timer since
                case _Arrival():
                    self._arrive(at_us, place, event.payload)
                case _:
                    self._carry_out(place, at_us, self.motes[place].handle(event))
        self._now_us = until_us
        for mote in self.motes:
            mote.meter.settle(until_us)

    def _mote(self, phenomenon: Phenomenon, place: int) -> Mote:
        settings, clock = self._settings, self._clock
        sense: Sense = partial(phenomenon.sense, place)
        if settings.drifting:
            own = DriftingClock(clock, self._draw_drift(), begins_radio_us=clock.origin_us)
            clock, sense = own, _sensing_truly(sense, own)
        meter = Meter(settings.profile, settings.battery, temperature_c=settings.temperature_c)
        return Mote(phenomenon.motes[place], clock, sense, phenomenon.ends_us, meter=meter)

    def _draw_drift(self) -> Drift:
        clock = self._settings.profile.clock
        rate = float(self._random.uniform(-clock.drift_ppm, clock.drift_ppm))
        return Drift(rate, round(clock.synchronise_every_seconds * 1e6))

    def _carry_out(self, place: int, now_us: int, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendPacket():
                    self._transmit(place, now_us, instruction)
                case WakeAt():
                    wake_us = max(instruction.radio_us, now_us) + int(self._random.integers(BACKOFF_US))
                    self._wakes_us[place] = wake_us
                    self._put(wake_us, place, Wake(wake_us))
                case Announce():
                    pass  # this gateway knows its motes

    def _transmit(self, place: int, now_us: int, sent: SendPacket) -> None:
        mote = self.motes[place]
        radio, bits = mote.meter.profile.radio, sent.payload_bits
        # A radio sends one packet after the other.
        now_us = max(now_us, self._free_at_us[place])
        carried = self.channel.carry(
            mote.description.name,
            encode(sent.packet),
            at_us=now_us,
            airtime_us=radio.airtime_us(bits),
            maximum_attempts=round(radio.maximum_attempts),
        )
        mote.meter.repeated(bits, carried.attempts - 1)
        self._free_at_us[place] = now_us + math.ceil(radio.airtime_us(bits) * carried.attempts)
        mote.transmitted(sent.packet, self._free_at_us[place])
        for delivery in carried.deliveries:
            self._put(delivery.at_us, place, _Arrival(delivery.payload))

    def _arrive(self, at_us: int, place: int, payload: bytes) -> None:
        control = self.gateway.receive(at_us, payload)
        if control is not None:
            when_us = at_us + ANSWER_US
            self._put(when_us, place, ControlReceived(when_us, control))

    def _put(self, at_us: int, place: int, event: Event | _Arrival) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at_us, self._order, place, event))


def _sensing_truly(sense: Sense, clock: DriftingClock) -> Sense:
    def sense_then(instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        return sense(clock.true_time_of(instant_us), fields)

    return sense_then
