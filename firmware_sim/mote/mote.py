"""A mote as a state machine: events in, instructions out. No radio, no clock of its own, no waiting.

It does what a real mote's firmware would do: boot, announce itself, sleep and ask for a program now and then; run the
sampling program that it received; send packets; listen for a moment after some of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from firmware_sim.execution.execution import Execution, Stamped
from firmware_sim.mote.mote_events import (
    Announce,
    ControlReceived,
    Event,
    Instruction,
    MoteCounters,
    MoteDescription,
    PowerOn,
    SendPacket,
    Wake,
    WakeAt,
)
from firmware_sim.mote.sample_clock import SampleClock, Schedule
from firmware_sim.power.meter import Meter
from protocols.errors import ProgramError
from protocols.power.costs import HEALTH_EVERY_PACKETS
from protocols.power.estimate import is_regular
from protocols.power.payload import check_program, payload_bits
from protocols.power.profiles import DeviceProfile, find_profile
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import (
    AS_RECORDED,
    AdjustClock,
    AnsweringControl,
    Control,
    Health,
    Packet,
    Record,
    RunProgram,
    SampleValue,
    SendAnnouncement,
)
from protocols.wire.programs import SLEEP, Panes, SamplingProgram, first_sample_at_or_after, program_number, reports_of
from protocols.wire.streams import FieldType

USUAL_PRESET = "telosb"
"""The preset of a mote by default."""
AFTER_THE_END_US = 86_400_000_000
"""A mote's low watermark moves so far beyond the end of its phenomenon, so that open windows can close."""


Sense = Callable[[int, tuple[str, ...]], tuple[SampleValue, ...]]


class Recording(Protocol):
    """What was recorded of one sensor, with the stamps that it has."""

    def next_us(self, from_us: int) -> int | None:
        """Return the instant of the first reading from one on; None if there is none."""
        ...

    def readings(self, instant_us: int, fields: tuple[str, ...]) -> Sequence[tuple[SampleValue, ...]]:
        """Return the values of the readings of an instant."""
        ...


@dataclass(slots=True)
class Mote:
    """One mote.

    Parameters
    ----------
    description
        The mote's kind, stream, properties and limits.
    clock
        The sample clock it shares with its fleet.
    sense
        Returns the values of fields at an instant.
    ends_us
        Instant from which there are no values; None for never.
    late_after_us
        A sample taken this much radio time after its instant is a late tick.
    meter
        Counts its energy. Once its battery is empty the mote does nothing any more.
    lifetime_us
        How long its battery should last; 0 for any time.
    replays
        Whether its clock is that of a recording; its announcement states this.
    recording
        The recording, if it replays that as it is, whatever the period of its program: it samples what was recorded,
        when it was. None for a mote that senses at the period of its program.
    sealed
        Whether it has a key: it obeys controls that answer a packet of its listen window only.
    """

    description: MoteDescription
    clock: SampleClock
    sense: Sense
    ends_us: int | None = None
    late_after_us: int = 1_000_000
    meter: Meter = field(default_factory=lambda: Meter(find_profile(USUAL_PRESET)))
    lifetime_us: int = 0
    replays: bool = False
    recording: Recording | None = None
    sealed: bool = False
    program: SamplingProgram = SLEEP
    boot: int = 0
    counters: MoteCounters = field(default_factory=MoteCounters)
    _sequence: int = 0
    _next_sample_us: int = 0
    _low_watermark_us: int = -(2**62)
    _execution: Execution | None = None
    _waiting: list[Stamped] = field(default_factory=list)
    _impatient_us: int | None = None
    _window_began_us: int = -(2**62)
    _window_sequence: int = 0
    _listens_until_us: int = -(2**62)
    _adjusted_in_us: int | None = None
    _sample_packets: int = 0
    _filtered_before: int = 0
    _suppressed_before: int = 0
    refusal: str = ""
    """Why the last program was rejected."""

    def handle(self, event: Event) -> list[Instruction]:
        """Return the mote's instructions for an event."""
        self.meter.pass_time(event.radio_us)
        if self.meter.dead:
            return []
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
    def low_watermark_us(self) -> int:
        """The mote will send no more samples stamped before this instant."""
        return self._low_watermark_us

    def transmitted(self, packet: Packet, ended_us: int) -> None:
        """Record when a packet had been sent, if that takes time: its listen window begins only then."""
        if packet.listen_us:
            self._listens_until_us = ended_us + packet.listen_us

    def _power_on(self, radio_us: int) -> list[Instruction]:
        self.boot += 1
        self._sequence, self._waiting, self._execution = 0, [], None
        self._filtered_before = self._suppressed_before = 0
        self._change_program(SLEEP, radio_us)
        self._window_began_us = self._listens_until_us = -(2**62)
        self._adjusted_in_us = None
        self.counters = MoteCounters()
        return [self._announce(), *self._work(radio_us)]

    def _work(self, radio_us: int) -> list[Instruction]:
        """Take due samples, send packets that are ready, ask for control if it is time, and set the next timer."""
        instructions: list[Instruction] = []
        if self.sampling and not self.clock.held:
            self._take_due_samples(radio_us)
            size = self.program.samples_per_packet
            over = self._ended(self._next_sample_us)
            while len(self._waiting) >= size or (over and self._waiting):
                batch, self._waiting = self._waiting[:size], self._waiting[size:]
                instructions.append(self._send(radio_us, batch))
            if self._waiting and self._impatient_us is not None and self.clock.at(radio_us) >= self._impatient_us:
                batch, self._waiting = self._waiting, []
                instructions.append(self._send(radio_us, batch))
            if not self._waiting:
                self._impatient_us = None
        if not instructions and radio_us >= self._schedule().asks_at(radio_us):
            # Where the next record may come at any time, waiting records are sent with it.
            along: list[Stamped] = []
            if self.sampling and not self._regular:
                along, self._waiting = self._waiting, []
                self._impatient_us = None
            instructions.append(self._send(radio_us, along, asks=True))
        instructions.append(WakeAt(self._schedule().wakes_at(radio_us)))
        return instructions

    def _take_due_samples(self, radio_us: int) -> None:
        now_us = self.clock.at(radio_us)
        while self._next_sample_us <= now_us and not self._ended(self._next_sample_us):
            instant_us = self._next_sample_us
            due_us = self.clock.radio_time_of(instant_us)
            if due_us is not None and radio_us - due_us > self.late_after_us:
                self.counters.late_ticks += 1
            self._next_sample_us = self._first_sample(instant_us + 1)
            for values in self._sensed(instant_us):
                self.meter.sampled()
                self.counters.samples += 1
                if self._execution is not None:
                    self._waiting += self._execution.take(instant_us, values)
            if self._execution is not None:
                if self._waiting and self._impatient_us is None and self.program.patience_us:
                    self._impatient_us = instant_us + self.program.patience_us
                self.counters.samples_filtered = self._execution.filtered + self._filtered_before
                self.counters.records_suppressed = self._execution.suppressed + self._suppressed_before
        if self._ended(self._next_sample_us):
            self._close_execution()

    def _first_sample(self, from_us: int) -> int:
        """Return when the first sample from an instant on is due; the end, where nothing is recorded any more."""
        if self.recording is None:
            return first_sample_at_or_after(from_us, self.program.period_us)
        found = self.recording.next_us(from_us)
        if found is not None:
            return found
        return from_us if self.ends_us is None else self.ends_us

    def _sensed(self, instant_us: int) -> Sequence[tuple[SampleValue, ...]]:
        if self.recording is None:
            return (self.sense(instant_us, self.program.fields),)
        return self.recording.readings(instant_us, self.program.fields)

    @property
    def _regular(self) -> bool:
        """Whether it is known when records come."""
        return self.recording is None and is_regular(self.program)

    def _close_execution(self) -> None:
        """Turn open panes and intervals into records, and count records that were left out."""
        if self._execution is not None:
            closed = self._execution.close(self._next_sample_us)
            # Records before the low watermark add nothing: it implies that nothing changed until then.
            self._waiting += [stamped for stamped in closed if stamped[0] >= self._low_watermark_us]
            self._filtered_before += self._execution.filtered
            self._suppressed_before += self._execution.suppressed
            self.counters.records_suppressed = self._suppressed_before
            self._execution = None

    def _send(self, radio_us: int, batch: list[Stamped], *, asks: bool = False) -> SendPacket:
        clock_us = max(self.clock.at(radio_us), *(stamp_us for stamp_us, _ in batch), -(2**62))
        records = [_aged(record, clock_us - stamp_us) for stamp_us, record in batch]
        if batch and not asks:
            self._sample_packets += 1
        if asks or not batch or self._sample_packets % HEALTH_EVERY_PACKETS == 0:
            counters, battery = self.counters, self.meter.battery_share
            records.append(
                Health(battery, counters.samples, counters.packets, counters.transmit_us, counters.listen_us)
            )
        listen_us = self.program.listen.for_us if self._may_listen(radio_us) else 0
        self._low_watermark_us = max(self._low_watermark_us, self._next_low_watermark(clock_us))
        packet = Packet(
            VERSION,
            self.description.name,
            self.boot,
            self._sequence,
            clock_us,
            self._low_watermark_us,
            listen_us,
            program_number(self.program),
            tuple(records),
        )
        bits = payload_bits(self.meter.profile, self.program, packet.records)
        self._sequence += 1
        self.counters.packets += 1
        self.counters.transmit_us += self.meter.sent(bits)
        if listen_us:
            self.meter.listened(listen_us)
            self._window_began_us, self._window_sequence = radio_us, packet.sequence
            self._listens_until_us = radio_us + listen_us
            self.counters.listen_us += listen_us
        return SendPacket(packet, bits)

    def _next_low_watermark(self, clock_us: int) -> int:
        if not self.sampling:
            return clock_us
        held = [stamp_us for stamp_us, _ in self._waiting]
        if self._execution is not None and self._execution.open_us is not None:
            held.append(self._execution.open_us)
        if self.recording is not None and self.clock.held:
            # Others may have earlier readings, and be known to the proxy only later.
            return min(clock_us, self._next_sample_us)
        if not held and self._ended(self._next_sample_us):
            return self._next_sample_us + AFTER_THE_END_US
        return min(*held, self._next_sample_us) if held else self._next_sample_us

    def _control(self, radio_us: int, control: Control) -> list[Instruction]:
        if control.mote != self.description.name or radio_us > self._listens_until_us:
            self.counters.control_missed += 1
            return []
        if self.sealed and not self._is_answer(control):
            self.counters.control_refused += 1
            return []
        self.counters.control_received += 1
        instructions: list[Instruction] = []
        for wanted in control.instructions:
            match wanted:
                case SendAnnouncement():
                    instructions.append(self._announce())
                case RunProgram():
                    instructions.extend(self._load(radio_us, wanted))
                case AdjustClock(by_us):
                    instructions.extend(self._adjust(radio_us, by_us))
        return instructions

    def _is_answer(self, control: Control) -> bool:
        """Return whether a control answers a packet of this listen window; one of another window is replayed."""
        window = range(self._window_sequence, self._sequence)
        return isinstance(control, AnsweringControl) and control.boot == self.boot and control.sequence in window

    def _adjust(self, radio_us: int, by_us: int) -> list[Instruction]:
        """Move the clock, once in a listen window: a repeated instruction would move it twice.

        If it is moved back, the next sample waits until the clock is there. If it is moved forward, a single instant
        that it jumps over is sampled at once, and several are not sampled.
        """
        if self.clock.held or self.recording is not None or self._adjusted_in_us == self._window_began_us:
            return []
        self._adjusted_in_us = self._window_began_us
        self.counters.clock_adjustments += 1
        self.clock = self.clock.adjusted(by_us, radio_us)
        now_us = self.clock.at(radio_us)
        if self.sampling and now_us - self._next_sample_us >= self.program.period_us:
            self._close_execution()
            self._next_sample_us = first_sample_at_or_after(now_us, self.program.period_us)
            self._execution = Execution(self.program, self._next_sample_us)
        return [WakeAt(self._schedule().wakes_at(radio_us))]

    def _load(self, radio_us: int, wanted: RunProgram) -> list[Instruction]:
        program = wanted.program
        try:
            check_acceptable(self.description, None if self.recording else self.meter.profile, program)
        except ProgramError as error:
            self.counters.programs_refused += 1
            self.refusal = str(error)
            return []
        if program == self.program:
            return []
        instructions: list[Instruction] = []
        if self.sampling and not self.clock.held:
            # The mote may wake a little late: samples that are due now still belong to the old program.
            self._take_due_samples(radio_us)
        self._close_execution()
        if self._waiting:
            # Their fields are those of the old program, so they are sent under its number.
            waiting, self._waiting = self._waiting, []
            instructions.append(self._send(radio_us, waiting))
        began = max(wanted.not_before_us, self._low_watermark_us, self.clock.at(radio_us))
        self._change_program(program, radio_us)
        if not program.sleeping:
            self._next_sample_us = self._first_sample(began)
            self._execution = Execution(program, self._next_sample_us)
        # An empty packet acknowledges the program at once.
        instructions.append(self._send(radio_us, []))
        instructions.append(WakeAt(self._schedule().wakes_at(radio_us)))
        return instructions

    def _change_program(self, program: SamplingProgram, radio_us: int) -> None:
        self.meter.settle(radio_us)
        paced = program
        if self.recording is not None and not program.sleeping:
            paced = msgspec.structs.replace(program, period_us=self.description.default_period_us)
        self.meter.run(paced)
        self.program = program
        self._impatient_us = None

    def _announce(self) -> Announce:
        self.counters.announcements += 1
        announcement = self.description.announcement(
            self.boot,
            self.meter.device,
            self.meter.usable_joules,
            self.lifetime_us,
            replays=self.replays if self.recording is None else AS_RECORDED,
            sequence=self._sequence if self.sealed else None,
        )
        most_bytes = self.meter.profile.radio.max_payload_bytes
        for _ in range(math.ceil(len(encode(announcement)) / most_bytes)):
            self.counters.transmit_us += self.meter.sent(most_bytes * 8)
        return Announce(announcement)

    def _may_listen(self, radio_us: int) -> bool:
        return radio_us - self._window_began_us >= self.program.listen.every_us

    def _ended(self, instant_us: int) -> bool:
        return self.ends_us is not None and instant_us >= self.ends_us

    def _schedule(self) -> Schedule:
        ended = self._ended(self._next_sample_us)
        return Schedule(
            self.program,
            self.clock,
            self._window_began_us,
            None if ended else self._next_sample_us,
            len(self._waiting),
            self._impatient_us,
            regular=self._regular,
        )


def _aged(record: Record, age_us: int) -> Record:
    return record if isinstance(record, Health) else msgspec.structs.replace(record, age_us=age_us)


def check_acceptable(mote: MoteDescription, profile: DeviceProfile | None, program: SamplingProgram) -> None:
    """Reject a program that a mote cannot run.

    Parameters
    ----------
    mote
        The mote.
    profile
        Of its hardware; None for what has no limits, as it replays a recording.
    program
        The program.

    Raises
    ------
    ProgramError
        Gives the reason, and the limit.
    """
    known = {each.name: each.type for each in mote.stream.sampled}
    for name in program.fields:
        if name not in known:
            raise ProgramError(f"mote {mote.name} does not sample {name!r}")
    for alone in reports_of(program):
        texts = [name for name in alone.fields if known[name] is FieldType.TEXT]
        if isinstance(alone.report, Panes) and alone.report.measures and texts:
            raise ProgramError(f"mote {mote.name} cannot add up {texts[0]!r}, which is text")
    if profile is None:
        return
    if not program.sleeping and program.period_us < mote.minimum_period_us:
        raise ProgramError(
            f"mote {mote.name} cannot sample every {program.period_us} us, only every {mote.minimum_period_us} us"
        )
    check_program(profile, program)
