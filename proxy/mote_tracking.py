"""One mote as its proxy sees it: a state machine, events in, instructions out (papers/fjords.md section 3).

Pure. It decides which samples are taken over, when the mote is told what to do (only in a listen window it announced),
and what the mote's part in the stream's low watermark is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from protocols.acquisition.merging import MergedProgram, SensorTraits
from protocols.catalog import MoteEntry, MoteState
from protocols.errors import SchemaError
from protocols.frames import VERSION
from protocols.packets import Announcement, Control, Health, Packet, RunProgram, SendAnnouncement
from protocols.programs import SECOND_US, SLEEP, SamplingProgram, SendOnChange
from proxy.batching import MotePosition
from proxy.mote_events import (
    AnnouncementReceived,
    AnnouncementRefused,
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
from proxy.packet_numbers import PacketNumbers
from proxy.program_records import ProgramRecords
from proxy.tracking_limits import MoteCounters, TrackingLimits
from proxy.watermarks import LOWEST_US, Promise

if TYPE_CHECKING:
    from proxy.program_book import ProgramBook


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

    def restore(self, announcement: Announcement) -> None:
        """Take over what the mote announced before the proxy's restart."""
        self.announcement = announcement
        self._records.announced(announcement)

    def handle(self, event: MoteEvent) -> list[MoteInstruction]:
        """Return what to do after `event`."""
        match event:
            case PacketReceived():
                return self._packet(event)
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
        if self.announcement is None or self.silent:
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

    def entry(self) -> MoteEntry | None:
        """Return the mote's entry in the catalog; None before it has announced itself."""
        announcement = self.announcement
        if announcement is None:
            return None
        running = self._book.get(self.running or 0)
        return MoteEntry(
            version=VERSION,
            mote=self.mote,
            proxy=self._proxy,
            kind=announcement.kind,
            stream=announcement.stream.name,
            properties=announcement.properties,
            state=self.state,
            period_us=0 if running is None else running.period_us,
            default_period_us=announcement.default_period_us,
            minimum_period_us=announcement.minimum_period_us,
            program=self.running or 0,
            packets_received=self.counters.packets_received,
            packets_lost=self.counters.packets_lost,
            packets_rejected=self.counters.packets_rejected,
            samples_received=self.counters.samples_received,
            samples_late=self.counters.samples_late,
            health=self._health,
            heard_us=self._heard_us,
            **self._energy(announcement),
        )

    def _energy(self, announcement: Announcement) -> dict[str, Any]:
        """Return what the entry says about what the mote should do, and what that costs."""
        merged, traits = self._merged, self._traits
        about: dict[str, Any] = {
            "device": announcement.device,
            "battery_joules": announcement.battery_joules,
            "lifetime_us": announcement.lifetime_us,
        }
        if merged is None or traits is None:
            return about
        days = traits.days(merged.milliwatts)
        return {
            **about,
            "doing": merged.reason,
            "milliwatts": merged.milliwatts,
            "lifetime_days": days if math.isfinite(days) else None,
            "stretched": merged.stretched,
            "lifetime_kept": merged.lifetime_kept,
            "wanted": self.desired,
        }

    def _announced(self, event: AnnouncementReceived) -> list[MoteInstruction]:
        self._refused_boot = None
        if self.numbers.announced(event.announcement.boot):
            # It has just booted, so it sleeps. (Else it answers our question, and goes on doing what it does.)
            self.running = 0
            self.promise_us = None
            self._reconsider(event.radio_us)
        changed = event.announcement != self.announcement
        self.announcement = event.announcement
        self._records.announced(event.announcement)
        return [*self._hear(event.radio_us, event.heard_us), PublishEntry(changed=changed)]

    def _desire(self, event: DemandChanged) -> list[MoteInstruction]:
        rerouted = event.merged != self._merged
        if rerouted:
            self._merged, self._traits = event.merged, event.traits
            self._records.route(() if event.merged is None else event.merged.needs)
        if event.program == self.desired:
            return [PublishEntry(changed=True)] if rerouted else []
        self.desired = event.program
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

    def _packet(self, event: PacketReceived) -> list[MoteInstruction]:
        packet = event.packet
        refused = self._refuse(packet, event.heard_us)
        if refused is not None:
            self.counters.packets_rejected += 1
            return [refused, PublishEntry(changed=False)]
        instructions = self._advance(packet)
        was_running = self.running
        if was_running != packet.program:
            self.running = packet.program
            self._records.began(packet.program)
            if packet.program == self._desired_number:
                self._unanswered = 0
            self._reconsider(event.radio_us)
        instructions += self._hear(event.radio_us, event.heard_us)
        if packet.records or self._records.fills(packet.program):
            instructions += self._take_records(packet, event.watermark_us)
        if packet.listen_us > 0:
            instructions += self._speak(packet, event.watermark_us)
        instructions.append(PublishEntry(changed=was_running != packet.program))
        return instructions

    def _refuse(self, packet: Packet, heard_us: int) -> Refused | None:
        if self.numbers.is_replayed(packet):
            _, boot, sequence, _ = self.numbers.position
            detail = f"packet {packet.sequence} of boot {packet.boot} after packet {sequence} of boot {boot}"
            return Refused(Refusal.REPLAYED, detail, len(packet.samples))
        ahead_us = self._limits.max_clock_ahead_us
        if ahead_us is not None:
            # A promise may be ahead of the clock by the period of any program the mote still follows.
            programs = (self._book.get(number) or SLEEP for number in (packet.program, self.running or 0))
            period_us = max(program.period_us for program in (self.desired, *programs))
            found_us = max(packet.clock_us, packet.promise_us - period_us) - heard_us
            if found_us > ahead_us:
                return Refused(Refusal.CLOCK, f"clock is {found_us / SECOND_US:.1f} s ahead", len(packet.samples))
        return None

    def _advance(self, packet: Packet) -> list[MoteInstruction]:
        """Take note of the packet's numbers and promise."""
        instructions: list[MoteInstruction] = []
        advance = self.numbers.advance(packet)
        if advance.rebooted:
            instructions.append(Rebooted(packet.boot))
            self.promise_us = None
            self._records.began_anew()
        if advance.lost:
            self.counters.packets_lost += advance.lost
            instructions.append(PacketsLost(advance.lost))
            self._records.lost(packet.program)
        self.promise_us = packet.promise_us if self.promise_us is None else max(self.promise_us, packet.promise_us)
        self.counters.packets_received += 1
        return instructions

    def _take_records(self, packet: Packet, watermark_us: int | None) -> list[MoteInstruction]:
        reported = sum(not isinstance(record, Health) for record in packet.records)
        for record in packet.records:
            if isinstance(record, Health):
                self._health = record
        if self.announcement is None:
            if not reported:
                return []
            return [self._reject(Refusal.UNANNOUNCED, f"mote {self.mote!r} has not announced itself", reported)]
        taking = self._records.of(packet.program)
        if taking is None:
            if not reported:
                return []
            detail = f"samples were taken under program {packet.program}, which this proxy does not know"
            return [self._reject(Refusal.UNKNOWN_PROGRAM, detail, reported)]
        try:
            tuples = taking.take(packet, self.numbers.position)
        except SchemaError as error:
            return [self._reject(Refusal.SHAPE, str(error), reported)]
        lowest_us = LOWEST_US if watermark_us is None else watermark_us
        instructions: list[MoteInstruction] = []
        on_time = tuple(each for each in tuples if each.start_us >= lowest_us)
        late = len(tuples) - len(on_time)
        if late:
            self.counters.samples_late += late
            oldest_us = min(each.start_us for each in tuples)
            detail = f"stamped up to {(lowest_us - oldest_us) / SECOND_US:.3f} s before the stream's watermark"
            instructions.append(Refused(Refusal.LATE, detail, late))
        if on_time:
            self.counters.samples_received += len(on_time)
            instructions.append(TuplesAccepted(on_time))
        return instructions

    def _reject(self, reason: Refusal, detail: str, records: int) -> Refused:
        self.counters.packets_rejected += 1
        return Refused(reason, detail, records)

    def _speak(self, packet: Packet, watermark_us: int | None) -> list[MoteInstruction]:
        """Use the listen window that the packet opens."""
        if self.announcement is None:
            if self._refused_boot == packet.boot:
                return []
            return [self._control(SendAnnouncement(), packet)]
        if packet.program == self._desired_number:
            return []
        not_before_us = packet.promise_us if watermark_us is None else watermark_us
        told = max(not_before_us, self._told_not_before_us or LOWEST_US)
        self._told_not_before_us = told
        self._unanswered += 1
        instructions: list[MoteInstruction] = [self._control(RunProgram(self.desired, told), packet)]
        if self._unanswered == self._limits.attempts + 1:
            instructions.append(NeverAcknowledged(self._limits.attempts))
        return instructions

    def _control(self, instruction: RunProgram | SendAnnouncement, packet: Packet) -> SendControl:
        return SendControl(Control(VERSION, self.mote, (instruction,)), packet.listen_us)
