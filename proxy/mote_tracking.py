"""One mote as its proxy sees it: a state machine, events in, instructions out (papers/fjords.md section 3).

Pure. It decides which samples are taken over, when the mote is told what to do (only in a listen window it announced),
and what the mote's part in the stream's low watermark is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.sensor_traits import SensorTraits
from protocols.errors import SchemaError
from protocols.wire.catalog import ClockFault, MoteEntry, MoteState
from protocols.wire.frames import VERSION
from protocols.wire.packets import (
    AdjustClock,
    Announcement,
    Control,
    Health,
    Instruction,
    Packet,
    RunProgram,
    SendAnnouncement,
)
from protocols.wire.programs import SECOND_US, SLEEP, SamplingProgram, SendOnChange
from proxy.clock_bounds import UNBOUNDED, Slack, WrongClock, oldest_stamp_us, slack_of, wrong_clock
from proxy.clock_offset import ClockOffset
from proxy.mote_entries import MoteDoings, make_entry
from proxy.mote_events import (
    AnnouncementReceived,
    AnnouncementRefused,
    ClockRight,
    ClockWrong,
    DemandChanged,
    HeardAgain,
    MoteEvent,
    MoteInstruction,
    NeverAcknowledged,
    PacketReceived,
    PacketsLost,
    PublishEntry,
    Rebooted,
    Refusal,
    Refused,
    SendControl,
    TimePassed,
    TuplesAccepted,
    WentSilent,
)
from proxy.packet_numbers import NEXT, PacketNumbers
from proxy.program_records import ProgramRecords
from proxy.reordering import Reordering
from proxy.sample_entries import Before, enter
from proxy.sample_ledger import MoteNow, SampleLedger, tuples_of
from proxy.tracking_limits import MoteCounters, TrackingLimits, drop_late, drop_older
from proxy.waiting_tuples import MotePosition, PacketTuples
from proxy.watermarks import LOWEST_US, Promise

if TYPE_CHECKING:
    from proxy.program_book import ProgramBook


CLOCK_EVERY_US = 500_000
"""A mote's clock is looked at no more often than this."""


class MoteTracking:
    """The state of one mote.

    Parameters
    ----------
    mote, proxy
        Which mote, and whose.
    book
        Programs the proxy knows, shared by all its motes.
    limits
        With how much patience it is treated.
    started_us
        Radio clock now; a mote known from before counts as heard now.
    position
        How far its packets were taken over before a restart.
    """

    def __init__(
        self,
        mote: str,
        *,
        proxy: str,
        book: ProgramBook,
        limits: TrackingLimits,
        started_us: int,
        position: MotePosition | None = None,
    ) -> None:
        self.mote = mote
        self.announcement: Announcement | None = None
        self.desired: SamplingProgram = SLEEP
        self.running: int | None = None
        self.promise_us: int | None = None
        self.silent = False
        self.clock_fault: ClockFault | None = None
        """How its clock is wrong: until a packet shows that it is right again, it holds back nobody."""
        self.counters = MoteCounters()
        self.numbers = PacketNumbers(mote, position)
        self._proxy = proxy
        self._book = book
        self._limits = limits
        self._desired_number = 0
        self._heard_radio_us = started_us
        self._heard_us = 0
        self._health: Health | None = None
        self._refused_boot: int | None = None
        self._wanted_since_us: int | None = None
        self._told_not_before_us: int | None = None
        self._unanswered = 0
        self._records = ProgramRecords(book)
        self._merged: MergedProgram | None = None
        self._traits: SensorTraits | None = None
        self._clock = ClockOffset()
        self._bounds = limits.clock
        self._set_aside_before = False
        self.reordering = Reordering(limits.reorder_within_us)
        self._clock_us = LOWEST_US
        self.ledger = SampleLedger()

    def restore(self, announcement: Announcement) -> None:
        """Take over what the mote announced before the proxy's restart."""
        self.announcement = announcement
        self._bounds = UNBOUNDED if announcement.replays else self._limits.clock
        self._records.announced(announcement)

    def handle(self, event: MoteEvent) -> list[MoteInstruction]:
        """Return what to do after `event`."""
        match event:
            case PacketReceived():
                usual = self._take_usual(event)
                return self._take_any(event) if usual is None else [usual]
            case AnnouncementReceived():
                return self._announced(event)
            case AnnouncementRefused(boot, radio_us):
                self._refused_boot = boot
                self.announcement = None
                self._heard_radio_us = radio_us
                return []
            case DemandChanged():
                return self._desire(event)
            case TimePassed(radio_us):
                return self._wait(radio_us)

    @property
    def sends_all(self) -> bool:
        """Whether its samples say what its values are like: nothing is left out of them."""
        program = self._book.get(self.running or 0) or SLEEP
        return not program.bands and (program.report is None or isinstance(program.report, SendOnChange))

    @property
    def keeps_time(self) -> bool:
        """Whether it was heard, and its clock is the time of day."""
        told = self.announcement
        heard = self.running is not None and not self.silent and self.clock_fault is None
        return heard and told is not None and not told.replays

    @property
    def state(self) -> MoteState:
        """What the mote is doing."""
        if self.silent:
            return MoteState.SILENT
        if self.running != self._desired_number:
            return MoteState.CHANGING
        return MoteState.SLEEPING if self.desired.sleeping else MoteState.SAMPLING

    @property
    def promise(self) -> Promise | None:
        """What the mote contributes to the stream's low watermark; None if it does not hold it.

        A mote that samples holds it at its own promise, and one not heard since the proxy's restart at wherever it is.
        One that should sample and has not begun holds it too, for a bounded time: the first sample is stamped
        no earlier than the watermark it was told, and must not find that gone on meanwhile.
        """
        if self.announcement is None or self.silent or self.clock_fault is not None:
            return None
        if self.running is None:
            return Promise(None)
        program = self._book.get(self.running)
        if program is not None and not program.sleeping:
            return Promise(self._records.held_back(self.running, self.promise_us))
        if self._wanted_since_us is None:
            return None
        if self.promise_us is None:
            # New to the proxy, and its clock not heard yet; after a reboot what it promised before is of no use.
            return None if self.numbers.heard else Promise(None)
        return Promise(max(self.promise_us, self._told_not_before_us or LOWEST_US))

    @property
    def silence_after_us(self) -> int:
        """How long the mote may be unheard, in real time."""
        running = self._book.get(self.running or 0) or SLEEP
        return self._limits.silent_after_us((running, self.desired))

    def waits(self, radio_us: int) -> bool:
        """Return whether that time passes may change anything."""
        if self.announcement is None or self._wanted_since_us is not None:
            return True
        return not self.silent and radio_us - self._heard_radio_us >= self._limits.shortest_silence_us

    def entry(self) -> MoteEntry | None:
        """Return the mote's entry in the catalog; None before it has announced itself."""
        if self.announcement is None:
            return None
        number = self.running or 0
        running = self._book.get(number)
        doings = MoteDoings(self.state, running, number, self.desired, self._merged, self._traits)
        offset = self._clock.estimate()
        entry = make_entry(
            self._proxy,
            self.announcement,
            doings=doings,
            counters=self.counters,
            health=self._health,
            heard_us=self._heard_us,
        )
        offset_us = None if offset is None else offset.offset_us
        return msgspec.structs.replace(entry, clock_offset_us=offset_us, clock_fault=self.clock_fault)

    def _announced(self, event: AnnouncementReceived) -> list[MoteInstruction]:
        self._refused_boot = None
        if self.numbers.announced(event.announcement.boot):
            # It has just booted, so it sleeps. (Else it answers our question, and goes on doing what it does.)
            self.ledger.stop(self.promise_us)
            self.running = 0
            self.promise_us = None
            self._reconsider(event.radio_us)
        changed = event.announcement != self.announcement
        if self.announcement is not None and self.announcement.stream != event.announcement.stream:
            self.ledger.clear()
        self.announcement = event.announcement
        self._bounds = UNBOUNDED if event.announcement.replays or not event.bounded else self._limits.clock
        self._records.announced(event.announcement)
        return [*self._hear(event.radio_us, event.heard_us), PublishEntry(changed=changed)]

    def _desire(self, event: DemandChanged) -> list[MoteInstruction]:
        rerouted = event.merged != self._merged
        if rerouted:
            self._merged, self._traits = event.merged, event.traits
            self._records.route(() if event.merged is None else event.merged.needs)
        if event.program == self.desired:
            self._open_accounts(event, rerouted=rerouted)
            return [PublishEntry(changed=True)] if rerouted else []
        self.desired = event.program
        self._open_accounts(event, rerouted=rerouted)
        self._desired_number = self._book.note(event.program)
        self._records.learned()
        self._unanswered = 0
        self._reconsider(event.radio_us)
        return [PublishEntry(changed=True)]

    def _reconsider(self, radio_us: int) -> None:
        """Begin, or stop, to wait for the mote to take up its program."""
        if self.running == self._desired_number or self.desired.sleeping:
            self._wanted_since_us = None
            self._told_not_before_us = None
        elif self._wanted_since_us is None:
            self._wanted_since_us = radio_us

    def _wait(self, radio_us: int) -> list[MoteInstruction]:
        if self._wanted_since_us is not None and radio_us - self._wanted_since_us >= self._limits.patience_us:
            self._wanted_since_us = None
        unheard_us = radio_us - self._heard_radio_us
        if self.silent or unheard_us < self.silence_after_us:
            return []
        self.silent = True
        return [WentSilent(unheard_us), PublishEntry(changed=True)]

    def _hear(self, radio_us: int, heard_us: int) -> list[MoteInstruction]:
        self._heard_radio_us = radio_us
        self._heard_us = heard_us
        if not self.silent:
            return []
        self.silent = False
        return [HeardAgain(), PublishEntry(changed=True)]

    def delayed(self, event: PacketReceived) -> list[MoteInstruction]:
        """Return what to do about a packet that waits for others: the mote is there, and may listen now."""
        instructions = self._hear(event.radio_us, event.heard_us)
        return instructions + (
            self._speak(event.packet, event.heard_us, event.watermark_us) if event.packet.listen_us > 0 else []
        )

    def doubled(self, packet: Packet) -> list[MoteInstruction]:
        """Return what to do about a packet that has come before and still waits for others."""
        detail = f"packet {packet.sequence} of boot {packet.boot} waits for others already"
        return [self._reject(Refusal.REPLAYED, detail, packet), PublishEntry(changed=False)]

    def _take_usual(self, event: PacketReceived) -> TuplesAccepted | None:
        """Take a packet with which the mote goes on as before, as with nearly all; None leaves it to :meth:`_take_any`.

        It does just what that would, several times as fast, as it looks for nothing unusual.
        """
        packet, heard_us, numbers = event.packet, event.heard_us, self.numbers
        latest_us, earliest_us = self._bounds.latest_us, -self._bounds.earliest_us
        if (
            packet.program != self.running
            or packet.sequence != numbers.sequence + 1
            or packet.boot != numbers.boot
            or packet.listen_us
            or self.announcement is None
            or self.promise_us is None
            or self.silent
            or self.clock_fault is not None
            or not earliest_us <= packet.clock_us - heard_us <= latest_us
            or not earliest_us <= packet.promise_us - heard_us <= latest_us
        ):
            return None
        if self.ledger and not self.ledger.unmoved(numbers.position.clock_us, self.promise_us, event.watermark_us):
            return None
        taking = self._records.of(packet.program)
        tuples = None if taking is None else taking.samples(packet)
        if tuples is None:
            return None
        oldest_us = min(tuples.starts_us)
        if oldest_us - heard_us < earliest_us or (event.watermark_us is not None and oldest_us < event.watermark_us):
            return None
        numbers.go_on(packet, event.radio_us, heard_us)
        self.promise_us = max(self.promise_us, packet.promise_us)
        self.counters.packets_received += 1
        self.counters.samples_received += len(tuples.starts_us)
        self._heard_radio_us = event.radio_us
        self._heard_us = heard_us
        if not 0 <= heard_us - self._clock_us < CLOCK_EVERY_US:
            self._look_at_clock(packet, heard_us)
        return TuplesAccepted(tuples)

    def _take_any(self, event: PacketReceived) -> list[MoteInstruction]:
        packet = event.packet
        before = Before(self.running, self.promise_us, self.numbers.position) if self.ledger else None
        refused = self._refuse(packet)
        if refused is not None:
            self.counters.packets_rejected += 1
            asks = self._ask(packet, event.heard_us) if self.numbers.may_begin_again(packet) else []
            return [refused, *asks, PublishEntry(changed=False)]
        slack = self._slack(packet)
        wrong = wrong_clock(self._bounds, packet, event.heard_us, slack)
        if wrong is not None and self.announcement is not None:
            return self._set_aside(event, wrong)
        instructions = self._advance(event, promises=wrong is None)
        changed = self._follow(packet, event.radio_us)
        if self.clock_fault is not None:
            self.clock_fault, changed = None, True
            instructions.append(ClockRight())
        instructions += self._hear(event.radio_us, event.heard_us)
        if not 0 <= event.heard_us - self._clock_us < CLOCK_EVERY_US:
            self._look_at_clock(packet, event.heard_us)
        accepted = None
        if packet.records or self._records.fills(packet.program):
            oldest_us = oldest_stamp_us(self._bounds, event.heard_us, slack)
            accepted = self._take_records(packet, event.watermark_us, oldest_us, instructions)
        if before is not None:
            programs = (self._book.get(packet.program), self.desired)
            told_us, gap = self._told_not_before_us, self._set_aside_before
            enter(self.ledger, before, event, instructions, not_before_us=told_us, programs=programs, gap=gap)
        self._set_aside_before = False
        if packet.listen_us > 0:
            instructions += self._speak(packet, event.heard_us, event.watermark_us)
        if accepted is not None:
            instructions.append(accepted)
        if changed or accepted is None:
            instructions.append(PublishEntry(changed=changed))
        return instructions

    def _follow(self, packet: Packet, radio_us: int) -> bool:
        """Take note of the program that the mote runs; return whether that is another one than before."""
        if self.running == packet.program:
            return False
        self.running = packet.program
        self._records.began(packet.program)
        if packet.program == self._desired_number:
            self._unanswered = 0
        self._reconsider(radio_us)
        return True

    def _slack(self, packet: Packet) -> Slack:
        """Return what the programs explain that the mote follows, or did a moment ago."""
        numbers = {packet.program, self.running or 0}
        return slack_of((self.desired, *(self._book.get(each) if each else SLEEP for each in numbers)))

    def _set_aside(self, event: PacketReceived, wrong: WrongClock) -> list[MoteInstruction]:
        """Take of a packet only what does not go by its clock: that the mote is there, what it runs, how it is.

        So it can be spoken to, and is taken back with the first packet whose clock is right.
        """
        packet, promise_us = event.packet, self.promise_us
        instructions = self._number(event, keeps_time=False)
        if self._follow(packet, event.radio_us) or self.promise_us != promise_us:
            self.ledger.stop(promise_us)
        self._records.lost(packet.program)
        self._set_aside_before = True
        changed = self.clock_fault is not wrong.fault
        if changed:
            self.clock_fault = wrong.fault
            instructions.append(ClockWrong(wrong.fault, wrong.by_us))
        instructions += self._hear(event.radio_us, event.heard_us)
        if not 0 <= event.heard_us - self._clock_us < CLOCK_EVERY_US:
            self._look_at_clock(packet, event.heard_us)
        samples = 0
        for record in packet.records:
            if type(record) is Health:
                self._health = record
            else:
                samples += 1
        instructions.append(self._reject_samples(wrong, samples))
        if packet.listen_us > 0:
            instructions += self._speak(packet, event.heard_us, event.watermark_us)
        return [*instructions, PublishEntry(changed=changed)]

    def _reject_samples(self, wrong: WrongClock, samples: int) -> Refused:
        self.counters.packets_rejected += 1
        if wrong.fault is ClockFault.AHEAD:
            reason = Refusal.CLOCK_AHEAD
            self.counters.samples_ahead += samples
        else:
            reason = Refusal.CLOCK_BEHIND
            self.counters.samples_behind += samples
        return Refused(reason, f"clock is {wrong.by_us / SECOND_US:.1f} s {wrong.fault}", samples)

    def _open_accounts(self, event: DemandChanged, *, rerouted: bool) -> None:
        if rerouted and self.announcement is not None:
            needs = () if event.merged is None else event.merged.needs
            self.ledger.route(needs, self.announcement, self._now, event.watermark_us)

    @property
    def _now(self) -> MoteNow:
        running = None if self.running is None else self._book.get(self.running)
        heard = self.running is not None and not self.silent
        resumes = self.running is None and self.numbers.heard
        clock_us = self.numbers.position.clock_us
        return MoteNow(running, self.desired, self.promise_us, clock_us, heard=heard, resumes=resumes)

    def count_samples(self, until_us: int, since_us: Mapping[str, int], most: int) -> PacketTuples | None:
        """Return what is told of expected and missing samples up to an instant that the watermark is about to pass.

        Parameters
        ----------
        until_us
            The instant.
        since_us
            By form: from when on other motes of the stream are due to take samples.
        most
            Panes to tell of.
        """
        if self.announcement is None:
            return None
        now = self._now
        if self.promise is None:
            self.ledger.await_no_longer(since_us, now)
        _, boot, sequence, clock_us = self.numbers.position
        return tuples_of(self.ledger.tell(until_us, now, most), self.announcement, (boot, sequence, clock_us))

    def _look_at_clock(self, packet: Packet, heard_us: int) -> None:
        self._clock_us = heard_us
        self._clock.heard(heard_us, packet.clock_us, packet.boot)

    def _refuse(self, packet: Packet) -> Refused | None:
        if self.numbers.is_replayed(packet):
            before = self.numbers
            after = f"after packet {before.sequence} of boot {before.boot}"
            detail = f"packet {packet.sequence} of boot {packet.boot} {after}"
            return Refused(Refusal.REPLAYED, detail, len(packet.samples))
        return None

    def _advance(self, event: PacketReceived, *, promises: bool) -> list[MoteInstruction]:
        """Take note of the packet's numbers and, if its clock may be right, its promise."""
        instructions, packet = self._number(event), event.packet
        if promises and (self.promise_us is None or packet.promise_us > self.promise_us):
            self.promise_us = packet.promise_us
        return instructions

    def _number(self, event: PacketReceived, *, keeps_time: bool = True) -> list[MoteInstruction]:
        instructions: list[MoteInstruction] = []
        packet = event.packet
        advance = self.numbers.advance(packet, event.radio_us, event.heard_us, keeps_time=keeps_time)
        if advance is not NEXT:
            if advance.rebooted:
                instructions.append(Rebooted(packet.boot))
                self.promise_us = None
                self._records.began_anew()
            if advance.lost:
                self.counters.packets_lost += advance.lost
                instructions.append(PacketsLost(advance.lost))
                self._records.lost(packet.program)
        self.counters.packets_received += 1
        return instructions

    def _take_records(
        self, packet: Packet, watermark_us: int | None, oldest_us: int | None, instructions: list[MoteInstruction]
    ) -> TuplesAccepted | None:
        """Return the tuples that are taken over, if any; add what is refused to `instructions`."""
        for record in packet.records:
            if type(record) is Health:
                self._health = record
        taking = None if self.announcement is None else self._records.of(packet.program)
        if taking is None:
            instructions += self._reject_unread(packet)
            return None
        try:
            tuples = taking.take(packet)
        except SchemaError as error:
            instructions.append(self._reject(Refusal.SHAPE, str(error), packet))
            return None
        if tuples is None:
            return None
        on_time: PacketTuples | None = tuples
        if oldest_us is not None:
            on_time, older = drop_older(tuples, oldest_us)
            if older is not None:
                self.counters.samples_behind += older.samples
                instructions.append(older)
        if on_time is not None and watermark_us is not None:
            on_time, late = drop_late(on_time, watermark_us)
            if late is not None:
                self.counters.samples_late += late.samples
                instructions.append(late)
        if on_time is None:
            return None
        self.counters.samples_received += len(on_time.starts_us)
        return TuplesAccepted(on_time)

    def _reject_unread(self, packet: Packet) -> list[MoteInstruction]:
        """Nothing reads the records of the packet."""
        if all(isinstance(each, Health) for each in packet.records):
            return []
        if self.announcement is None:
            return [self._reject(Refusal.UNANNOUNCED, f"mote {self.mote!r} has not announced itself", packet)]
        detail = f"samples were taken under program {packet.program}, which this proxy does not know"
        return [self._reject(Refusal.UNKNOWN_PROGRAM, detail, packet)]

    def _reject(self, reason: Refusal, detail: str, packet: Packet) -> Refused:
        self.counters.packets_rejected += 1
        return Refused(reason, detail, sum(not isinstance(each, Health) for each in packet.records))

    def _speak(self, packet: Packet, heard_us: int, watermark_us: int | None) -> list[MoteInstruction]:
        """Use the listen window that the packet opens, unless the packet was held back until it had closed."""
        if self.announcement is None:
            return self._ask(packet, heard_us)
        if not self._listens(packet, heard_us):
            return []
        instructions = self._correct_clock(packet)
        if packet.program == self._desired_number:
            return instructions
        promise_us = packet.promise_us if self.clock_fault is None else min(packet.promise_us, heard_us)
        not_before_us = promise_us if watermark_us is None else watermark_us
        told = max(not_before_us, self._told_not_before_us or LOWEST_US)
        self._told_not_before_us = told
        self._unanswered += 1
        instructions.append(self._control(RunProgram(self.desired, told), packet))
        if self._unanswered == self._limits.attempts + 1:
            instructions.append(NeverAcknowledged(self._limits.attempts))
        return instructions

    def _ask(self, packet: Packet, heard_us: int) -> list[MoteInstruction]:
        """Ask the mote for its announcement, unless one of the same boot was refused."""
        if self._refused_boot == packet.boot or not self._listens(packet, heard_us):
            return []
        return [self._control(SendAnnouncement(), packet)]

    def _listens(self, packet: Packet, heard_us: int) -> bool:
        return self._clock.delay_us(heard_us, packet.clock_us) < packet.listen_us

    def _correct_clock(self, packet: Packet) -> list[MoteInstruction]:
        by_us = self._clock.correction_us(self._limits.clock_tolerance_us)
        if by_us is None:
            return []
        self._clock.restart()  # whether the mote heard it will be seen from its packets
        return [self._control(AdjustClock(by_us), packet)]

    def _control(self, instruction: Instruction, packet: Packet) -> SendControl:
        return SendControl(Control(VERSION, self.mote, (instruction,)), packet.listen_us)
