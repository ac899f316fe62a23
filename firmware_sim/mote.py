"""A mote as a state machine: events in, instructions out. No radio, no clock of its own, no waiting.

What a real mote's firmware would do: boot, announce itself, sleep and ask now and then; run the sampling program it was
given; send packets; listen for a moment after some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from firmware_sim.sample_clock import SampleClock
from protocols.errors import ProgramError
from protocols.frames import VERSION, encode
from protocols.packets import (
    Announcement,
    Control,
    Health,
    Packet,
    Record,
    RunProgram,
    Sample,
    SampleValue,
    SendAnnouncement,
)
from protocols.programs import SLEEP, SamplingProgram, first_sample_at_or_after, program_number
from protocols.streams import StreamSchema

HEALTH_EVERY_PACKETS = 16
"""A packet with samples carries the mote's health this often; packets that only ask always do."""
RADIO_BITS_PER_SECOND = 19_200
"""Mica2's CC1000: 38.4 kBaud, two of which make a bit (Manchester code)."""
AFTER_THE_END_US = 86_400_000_000
"""A mote whose phenomenon has ended promises not to sample for this much longer, so that open windows can close."""

Sense = Callable[[int, tuple[str, ...]], tuple[SampleValue, ...]]


@dataclass(frozen=True, slots=True)
class MoteDescription:
    """What a mote is; see :class:`protocols.packets.Announcement`."""

    name: str
    kind: str
    stream: StreamSchema
    properties: dict[str, SampleValue]
    default_period_us: int
    minimum_period_us: int


@dataclass(slots=True)
class MoteCounters:
    """What a mote has done since it booted. Times are radio time."""

    samples: int = 0
    packets: int = 0
    announcements: int = 0
    transmit_us: int = 0
    listen_us: int = 0
    wake_ups: int = 0
    late_ticks: int = 0
    control_received: int = 0
    control_missed: int = 0
    programs_refused: int = 0


@dataclass(frozen=True, slots=True)
class PowerOn:
    """The battery is connected, or the mote rebooted."""

    radio_us: int


@dataclass(frozen=True, slots=True)
class Wake:
    """The time has come that the mote asked for."""

    radio_us: int


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """Control is on the air; only a mote that listens hears it."""

    radio_us: int
    control: Control


Event = PowerOn | Wake | ControlReceived


@dataclass(frozen=True, slots=True)
class SendPacket:
    """Put a packet on the air."""

    packet: Packet


@dataclass(frozen=True, slots=True)
class Announce:
    """Put an announcement on the air."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Wake the mote at this radio time; replaces an earlier wish."""

    radio_us: int


Instruction = SendPacket | Announce | WakeAt


@dataclass(slots=True)
class Mote:
    """One mote.

    Parameters
    ----------
    description
        What it is.
    clock
        The sample clock it shares with its fleet.
    sense
        Returns the values of fields at an instant.
    ends_us
        Instant from which there is nothing to sense; None for never.
    late_after_us
        A sample taken this much radio time after its instant is a late tick.
    """

    description: MoteDescription
    clock: SampleClock
    sense: Sense
    ends_us: int | None = None
    late_after_us: int = 1_000_000
    program: SamplingProgram = SLEEP
    boot: int = 0
    counters: MoteCounters = field(default_factory=MoteCounters)
    _sequence: int = 0
    _next_sample_us: int = 0
    _promised_us: int = -(2**62)
    _waiting: list[tuple[int, tuple[SampleValue, ...]]] = field(default_factory=list)
    _window_began_us: int = -(2**62)
    _listens_until_us: int = -(2**62)
    _sample_packets: int = 0

    def handle(self, event: Event) -> list[Instruction]:
        """Return what the mote does on an event."""
        match event:
            case PowerOn():
                return self._power_on(event.radio_us)
            case Wake():
                self.counters.wake_ups += 1
                return self._work(event.radio_us)
            case ControlReceived():
                return self._control(event.radio_us, event.control)

    @property
    def sampling(self) -> bool:
        """True if it has a program that samples."""
        return not self.program.sleeping

    @property
    def promised_us(self) -> int:
        """It will send no sample stamped before this instant any more."""
        return self._promised_us

    def _power_on(self, radio_us: int) -> list[Instruction]:
        self.boot += 1
        self.program, self._sequence, self._waiting = SLEEP, 0, []
        self._window_began_us = self._listens_until_us = -(2**62)
        self.counters = MoteCounters()
        return [self._announce(), *self._work(radio_us)]

    def _work(self, radio_us: int) -> list[Instruction]:
        """Take the samples that are due, send what is ready, ask if it is time, and say when to wake again."""
        instructions: list[Instruction] = []
        if self.sampling and not self.clock.held:
            self._take_due_samples(radio_us)
            size = self.program.samples_per_packet
            over = self._ended(self._next_sample_us)
            while len(self._waiting) >= size or (over and self._waiting):
                batch, self._waiting = self._waiting[:size], self._waiting[size:]
                instructions.append(self._send(radio_us, batch))
        if not instructions and radio_us >= self._asks_at(radio_us):
            instructions.append(self._send(radio_us, []))
        instructions.append(WakeAt(self._next_wake(radio_us)))
        return instructions

    def _take_due_samples(self, radio_us: int) -> None:
        now_us = self.clock.at(radio_us)
        while self._next_sample_us <= now_us and not self._ended(self._next_sample_us):
            instant_us = self._next_sample_us
            due_us = self.clock.radio_time_of(instant_us)
            if due_us is not None and radio_us - due_us > self.late_after_us:
                self.counters.late_ticks += 1
            self._waiting.append((instant_us, self.sense(instant_us, self.program.fields)))
            self.counters.samples += 1
            self._next_sample_us += self.program.period_us

    def _send(self, radio_us: int, samples: list[tuple[int, tuple[SampleValue, ...]]]) -> SendPacket:
        clock_us = max(self.clock.at(radio_us), samples[-1][0] if samples else -(2**62))
        records: list[Record] = [Sample(clock_us - instant_us, values) for instant_us, values in samples]
        self._sample_packets += bool(samples)
        if not samples or self._sample_packets % HEALTH_EVERY_PACKETS == 0:
            counters = self.counters
            records.append(Health(None, counters.samples, counters.packets, counters.transmit_us, counters.listen_us))
        listen_us = self.program.listen.for_us if self._may_listen(radio_us) else 0
        self._promised_us = max(self._promised_us, self._promise(clock_us))
        packet = Packet(
            VERSION,
            self.description.name,
            self.boot,
            self._sequence,
            clock_us,
            self._promised_us,
            listen_us,
            program_number(self.program),
            tuple(records),
        )
        transmit_us = len(encode(packet)) * 8 * 1_000_000 // RADIO_BITS_PER_SECOND
        self._sequence += 1
        self.counters.packets += 1
        self.counters.transmit_us += transmit_us
        if listen_us:
            self._window_began_us = radio_us
            self._listens_until_us = radio_us + listen_us
            self.counters.listen_us += listen_us
        return SendPacket(packet)

    def _promise(self, clock_us: int) -> int:
        if not self.sampling:
            return clock_us
        if self._waiting:
            return self._waiting[0][0]
        if self._ended(self._next_sample_us):
            return self._next_sample_us + AFTER_THE_END_US
        return self._next_sample_us

    def _control(self, radio_us: int, control: Control) -> list[Instruction]:
        if control.mote != self.description.name or radio_us > self._listens_until_us:
            self.counters.control_missed += 1
            return []
        self.counters.control_received += 1
        instructions: list[Instruction] = []
        for wanted in control.instructions:
            match wanted:
                case SendAnnouncement():
                    instructions.append(self._announce())
                case RunProgram():
                    instructions.extend(self._load(radio_us, wanted))
        return instructions

    def _load(self, radio_us: int, wanted: RunProgram) -> list[Instruction]:
        program = wanted.program
        try:
            self._check(program)
        except ProgramError:
            self.counters.programs_refused += 1
            return []
        if program == self.program:
            return []
        instructions: list[Instruction] = []
        if self._waiting:
            # Their fields are those of the old program: they leave under its number.
            waiting, self._waiting = self._waiting, []
            instructions.append(self._send(radio_us, waiting))
        began = max(wanted.not_before_us, self._promised_us, self.clock.at(radio_us))
        self.program = program
        if not program.sleeping:
            self._next_sample_us = first_sample_at_or_after(began, program.period_us)
        # An empty packet acknowledges the program at once.
        instructions.append(self._send(radio_us, []))
        instructions.append(WakeAt(self._next_wake(radio_us)))
        return instructions

    def _check(self, program: SamplingProgram) -> None:
        known = {each.name for each in self.description.stream.sampled}
        for name in program.fields:
            if name not in known:
                raise ProgramError(f"mote {self.description.name} does not sample {name!r}")
        if not program.sleeping and program.period_us < self.description.minimum_period_us:
            raise ProgramError(
                f"mote {self.description.name} cannot sample every {program.period_us} us, "
                f"only every {self.description.minimum_period_us} us"
            )

    def _announce(self) -> Announce:
        about = self.description
        self.counters.announcements += 1
        return Announce(
            Announcement(
                VERSION,
                about.name,
                self.boot,
                about.kind,
                about.stream,
                about.properties,
                about.default_period_us,
                about.minimum_period_us,
            )
        )

    def _may_listen(self, radio_us: int) -> bool:
        return radio_us - self._window_began_us >= self.program.listen.every_us

    def _ended(self, instant_us: int) -> bool:
        return self.ends_us is not None and instant_us >= self.ends_us

    def _asks_at(self, radio_us: int) -> int:
        """Return when to send a packet only to listen after it.

        A packet with samples that is due soon will do as well, and costs nothing more.
        """
        ask_us = self._window_began_us + self.program.listen.every_us
        packet_us = self._next_packet_at()
        if packet_us is not None and packet_us <= max(ask_us, radio_us) + self.program.listen.every_us:
            return packet_us + 1
        return ask_us

    def _next_packet_at(self) -> int | None:
        """Return when the next packet with samples is due; None if none is."""
        if not self.sampling or self._ended(self._next_sample_us):
            return None
        missing = max(0, self.program.samples_per_packet - len(self._waiting) - 1)
        return self.clock.radio_time_of(self._next_sample_us + missing * self.program.period_us)

    def _next_wake(self, radio_us: int) -> int:
        ask_us = self._asks_at(radio_us)
        if not self.sampling or self._ended(self._next_sample_us):
            return max(ask_us, radio_us + 1)
        sample_us = self.clock.radio_time_of(self._next_sample_us)
        return max(min(ask_us, sample_us) if sample_us is not None else ask_us, radio_us + 1)
