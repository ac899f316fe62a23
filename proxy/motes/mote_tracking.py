"""One mote as its proxy sees it: a state machine, events in, instructions out (papers/fjords.md section 3).

Pure. It decides which samples are accepted, when the mote is sent its program (only in a listen window that it
announced), and how far the mote holds back the stream's low watermark.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.program_reports import SensorTraits
from protocols.wire.catalog import MoteEntry, MoteState
from protocols.wire.packets import Announcement, Health, Packet, Sample
from protocols.wire.programs import SLEEP, SamplingProgram, SendOnChange, program_number
from proxy.counting.published_account import PublishedTuples
from proxy.counting.sample_account import NEVER_US
from proxy.counting.sample_ledger import MoteSnapshot, SampleLedger, tuples_of
from proxy.motes.mote_clock import MoteClock, WrongClock, slack_of
from proxy.motes.mote_controls import MoteControls, ProgramHandover
from proxy.motes.mote_entries import DeviceTraits, MoteCounters, ProgramStatus, device_entry, make_entry
from proxy.motes.mote_events import (
    AnnouncementReceived,
    AnnouncementRejected,
    ClockRight,
    ClockWrong,
    DemandChanged,
    MoteEvent,
    MoteInstruction,
    NotDemanded,
    PacketReceived,
    PacketsLost,
    PublishEntry,
    Rebooted,
    TimePassed,
    TuplesAccepted,
    WentSilent,
)
from proxy.motes.mote_presence import MotePresence, SilentMote, TrackingLimits, age_of
from proxy.motes.packet_numbers import NEXT, PacketNumbers, Reordering
from proxy.motes.packet_reading import (
    PriorState,
    enter,
    latest_health,
    read_packet,
    reject_duplicate,
    reject_replayed,
    reject_unreachable,
    reject_wrong_clock,
)
from proxy.records.program_routes import ProgramTable
from proxy.records.record_readers import RecordReaders
from proxy.records.waiting_tuples import LOWEST_US, MotePosition, MoteWatermark, PacketTuples

_NO_COUNTS: Mapping[str, int] = MappingProxyType({})


class MoteTracking:
    """The state of one mote.

    Parameters
    ----------
    mote, proxy
        Names of the mote and of its proxy.
    programs
        Programs the proxy knows, shared by all its motes.
    limits
        When a mote counts as silent, how long it is waited for, and how far its clock may be off.
    started_us
        Radio clock now; a mote known from before a restart counts as received now.
    position
        Of its last packet that was accepted before a restart.
    lost_until_us
        Samples stamped before this instant were missing then, and perhaps not counted.
    sealed
        Whether its frames are sealed with a key of its own.
    """

    def __init__(
        self,
        mote: str,
        *,
        proxy: str,
        programs: ProgramTable,
        limits: TrackingLimits,
        started_us: int,
        position: MotePosition | None = None,
        lost_until_us: int = LOWEST_US,
        sealed: bool = False,
    ) -> None:
        self.mote = mote
        self.announcement: Announcement | None = None
        self.device: DeviceTraits | None = None
        """Its traits if a driver drives it, or if it replays a recording; None for any other mote of Fjord."""
        self.running: int | None = None
        """Number of the program that the mote runs; None until a packet names it."""
        self.counters = MoteCounters()
        self.numbers = PacketNumbers(mote, position, strict=sealed)
        self.reordering = Reordering(limits.reorder_within_us)
        self.ledger = SampleLedger()
        self._proxy = proxy
        self._programs = programs
        self._limits = limits
        self._presence = MotePresence(limits, started_us)
        self.clock = MoteClock(limits.clock, limits.clock_tolerance_us)
        self._handover = ProgramHandover(limits.patience_us, limits.attempts)
        self._controls = MoteControls(mote, self.clock, self._handover, answering=sealed)
        self._readers = RecordReaders(programs)
        self._low_watermark_us: int | None = None
        """Of the mote: no sample that it has still to send is stamped before it; None if that is not known."""
        self._health: Health | None = None
        self._merged: MergedProgram | None = None
        self._traits: SensorTraits | None = None
        self._samples_skipped = False
        self._passed_over = False
        """Whether it was silent, so that the watermark did not wait for it, and no packet has been received since."""
        self._lost_before_us = lost_until_us
        self._stored_us: tuple[int, ...] = ()
        """As in :class:`proxy.counting.published_account.PublishedTuples`, when demands changed last."""

    def restore(self, announcement: Announcement) -> None:
        """Accept what the mote announced before the proxy's restart."""
        self.announcement = announcement
        self.clock.set_bounded(bounded=not announcement.replays)
        self._readers.announced(announcement, None if self.device is None else self.device.publishing)

    def set_device(self, device: DeviceTraits | None) -> None:
        """Set its traits as a driven device, or one that replays a recording; None for another mote of Fjord."""
        if device != self.device:
            self.device = device
            if self.announcement is not None:
                self._readers.announced(self.announcement, None if device is None else device.publishing)

    def handle(self, event: MoteEvent) -> list[MoteInstruction]:
        """Return what to do after `event`."""
        match event:
            case PacketReceived():
                accepted = self._fast_path(event)
                return self._slow_path(event) if accepted is None else [accepted]
            case AnnouncementReceived():
                return self._announced(event)
            case AnnouncementRejected(boot, radio_us):
                self._controls.announcement_rejected(boot, radio_us)
                self.announcement = None
                self._presence.announcement_rejected(radio_us)
                return []
            case DemandChanged():
                return self._demand_changed(event)
            case TimePassed(radio_us):
                return self._time_passed(radio_us)

    @property
    def desired(self) -> SamplingProgram:
        """The program that the mote should run."""
        return self._handover.desired

    @property
    def silent(self) -> bool:
        """Whether nothing has been received from the mote for too long."""
        return self._presence.silent

    @property
    def publishes(self) -> bool:
        """Whether it publishes by its own rules, whatever its program."""
        return self.device is not None and self.device.publishes

    @property
    def _driven(self) -> bool:
        """Whether a driver drives it."""
        return self.device is not None and self.device.driven

    @property
    def takes_programs(self) -> bool:
        """Whether it is sent programs, as it does not publish by its own rules, or begins only then."""
        return not (self.publishes and self._driven)

    @property
    def low_watermark_us(self) -> int | None:
        """No sample that it has still to send is stamped before this; None if that is not known."""
        return self._low_watermark_us

    @property
    def sends_every_sample(self) -> bool:
        """Whether its samples show the distribution of its values: none is filtered out."""
        program = self._programs.get(self.running or 0) or SLEEP
        if self.publishes:
            return False  # at times of its own, which are no measure of another program
        return not program.bands and (program.report is None or isinstance(program.report, SendOnChange))

    @property
    def keeps_real_time(self) -> bool:
        """Whether packets have been received from it, and its clock shows the time of day."""
        active = self.running is not None and not self.silent and self.clock.fault is None
        return active and self.announcement is not None and not self.announcement.replays

    @property
    def state(self) -> MoteState:
        """What the mote is doing."""
        if self.silent:
            return MoteState.SILENT
        if not self.takes_programs:
            return MoteState.SAMPLING if self._is_demanded else MoteState.SLEEPING
        if self.running != self._handover.number:
            return MoteState.CHANGING
        return MoteState.SLEEPING if self.desired.sleeping else MoteState.SAMPLING

    @property
    def watermark(self) -> MoteWatermark | None:
        """How the mote bounds the stream's low watermark; None if it does not.

        A mote that samples holds it at its own low watermark, and one of which nothing was received since the proxy's
        restart at wherever it is. One that should sample and has not begun holds it too, for a bounded time: its first
        sample is stamped no earlier than the watermark it was sent, and must not be late. A device that publishes by
        its own rules holds the watermark while its tuples are demanded.
        """
        if self.announcement is None or self.silent or self.clock.fault is not None:
            return None
        if self.publishes and not self._is_demanded:
            return None
        if self.running is None:
            return MoteWatermark(None)
        program = self._readers.program(self.running)
        if program is not None and not program.sleeping:
            return MoteWatermark(self._readers.held_back(self.running, self._low_watermark_us))
        if self._driven and self._is_demanded:  # it reports by rules of its own until it has confirmed others
            return MoteWatermark(self._low_watermark_us)
        return self._handover.watermark(self._low_watermark_us, is_new=not self.numbers.any_received)

    @property
    def replays(self) -> bool:
        """Whether its clock is that of a replay."""
        return self.announcement is not None and bool(self.announcement.replays)

    @property
    def received_radio_us(self) -> int:
        """Radio clock when the last frame was received, or when the proxy began."""
        return self._presence.radio_us

    def while_silent(self, restored_us: int | None, delay_us: int | None) -> SilentMote | None:
        """Return what the time of its stream follows from while no mote samples; None if nothing does.

        Parameters
        ----------
        restored_us
            The stream's low watermark when the proxy began: no mote that was not received since then holds it back for
            the time that the proxy was away.
        delay_us
            By how much values may be delayed, if a driver makes its packets; None if it is a mote of Fjord.
        """
        programs = [self.desired]
        if self.running is not None and (running := self._programs.get(self.running)) is not None:
            programs.append(running)
        if self.announcement is None or self.clock.fault is not None or not self.numbers.any_received:
            return None
        if all(each.sleeping for each in programs):
            return None
        clock_us = self.numbers.position.clock_us
        if self.running is None and restored_us is not None:
            clock_us = max(clock_us, restored_us)
        silent_after_us = self._limits.silent_after_us(programs)
        return SilentMote(clock_us, self._presence.radio_us, silent_after_us, age_of(programs, delay_us))

    @property
    def lost_until_us(self) -> int:
        """No sample stamped from this instant on is missing so far, of those that queries want counted."""
        if self.ledger and (self._samples_skipped or self._passed_over):
            return NEVER_US
        if self.ledger and self.running is None:  # nothing was received since the proxy's restart
            return self._lost_before_us
        return self.ledger.lost_until_us

    def needs_time(self, radio_us: int) -> bool:
        """Return whether the passing of time may change anything."""
        if self.announcement is None or self._handover.is_awaited:
            return True
        return self._presence.may_be_silent(radio_us)

    def entry(self, counts: Mapping[str, int] = _NO_COUNTS, trouble: str = "") -> MoteEntry | None:
        """Return the mote's entry in the catalog; None before it has announced itself.

        Parameters
        ----------
        counts, trouble
            Of a driven device: what its driver counts of its messages, by reason, and what keeps them from the stream.
        """
        if self.announcement is None:
            return None
        number = self.running or 0
        status = ProgramStatus(
            self.state, self._readers.program(number), number, self.desired, self._merged, self._traits
        )
        entry = make_entry(
            self._proxy,
            self.announcement,
            status=status,
            counters=self.counters,
            clock=self.clock,
            health=self._health,
            received_us=self._presence.received_us,
        )
        return entry if self.device is None else device_entry(entry, self.device, self.counters, counts, trouble)

    def held_packet_received(self, event: PacketReceived) -> list[MoteInstruction]:
        """Return what to do about a packet that waits for earlier ones: the mote is active, and may listen now."""
        instructions = self._presence.received(event.radio_us, event.received_us)
        return instructions + self._next_controls(event)

    def duplicate_received(self, packet: Packet) -> list[MoteInstruction]:
        """Return what to do about a packet that was received before and still waits for earlier ones."""
        return [reject_duplicate(packet, self.counters), PublishEntry(changed=False)]

    def count_samples(self, until_us: int, since_us: Mapping[str, int], most: int) -> PacketTuples | None:
        """Return the counts of expected and missing samples up to an instant that the watermark is about to pass.

        Parameters
        ----------
        until_us
            The instant.
        since_us
            By fingerprint: from when on other motes of the stream are due to take samples.
        most
            Panes to report of each account.
        """
        if self.announcement is None:
            return None
        snapshot = self._snapshot
        if self.watermark is None:
            self.ledger.stop_waiting(since_us, snapshot)
        _, boot, sequence, clock_us = self.numbers.position
        counts = self.ledger.counts_until(until_us, snapshot, most)
        return tuples_of(counts, self.announcement, (boot, sequence, clock_us))

    @property
    def _known_until_us(self) -> int | None:
        """All samples before it were sent, or left out as they had not changed; None if that is not known."""
        if self._low_watermark_us is None and self.numbers.any_received:
            return self.numbers.position.clock_us  # from before the proxy's restart
        return self._low_watermark_us

    @property
    def _snapshot(self) -> MoteSnapshot:
        running = None if self.running is None else self._readers.program(self.running)
        active = self.running is not None and not self.silent
        resumes = self.running is None and self.numbers.any_received
        clock_us = self.numbers.position.clock_us
        published = None
        if self.device is not None:
            published = PublishedTuples(self.device.publishes, self.device.expected_every_us, self._stored_us)
        return MoteSnapshot(
            running,
            self.desired,
            self._low_watermark_us,
            clock_us,
            active,
            resumes,
            lost_until_us=self._lost_before_us,
            published=published,
        )

    def _announced(self, event: AnnouncementReceived) -> list[MoteInstruction]:
        announcement = event.announcement
        # What a driver makes for its device is no other's.
        self._controls.announced(None if self._driven else self.announcement, announcement)
        if self.numbers.announced(announcement.boot):
            # It has just booted, so it sleeps. (Else it answers our request, and keeps its program.)
            self.ledger.stop(self._low_watermark_us)
            self.running = 0
            self._low_watermark_us = None
            self._handover.rebooted(event.radio_us)
        changed = announcement != self.announcement
        if self.announcement is not None and self.announcement.stream != announcement.stream:
            self.ledger.clear()
        self.announcement = announcement
        self.clock.set_bounded(bounded=event.bounded and not announcement.replays)
        self.numbers.bound_clock(event.received_us, self.clock.bounds)
        self._readers.announced(announcement, None if self.device is None else self.device.publishing)
        return [*self._presence.received(event.radio_us, event.received_us), PublishEntry(changed=changed)]

    def _demand_changed(self, event: DemandChanged) -> list[MoteInstruction]:
        rerouted, changed = event.merged != self._merged, event.program != self.desired
        needs = () if event.merged is None else event.merged.needs
        if rerouted:
            self._merged, self._traits = event.merged, event.traits
            self._readers.route(needs)
        if not self.takes_programs:
            self._handover.settle(event.program, program_number(event.program))
        elif changed:
            self._handover.demand(event.program, self._programs.note(event.program), self.running, event.radio_us)
            self._readers.learned()
        self._stored_us = event.stored_us
        if rerouted and self.announcement is not None:
            self.ledger.route(needs, self.announcement, self._snapshot, event.watermark_us)
        return [PublishEntry(changed=True)] if rerouted or changed else []

    def _time_passed(self, radio_us: int) -> list[MoteInstruction]:
        self._handover.time_passed(radio_us)
        running = self._readers.program(self.running or 0) or SLEEP
        found = self._presence.time_passed(radio_us, (running, self.desired))
        self._passed_over |= self.silent
        if any(isinstance(each, WentSilent) for each in found):
            # The stream goes on without it: what held until now must not hold for longer.
            unknown = self._readers.unknown_from(self.running or 0, self._low_watermark_us, self.numbers.position)
            found += [] if unknown is None else [TuplesAccepted(unknown)]
        return found

    def _fast_path(self, event: PacketReceived) -> TuplesAccepted | None:
        """Accept a packet that continues as its mote did before, as nearly all do; None leaves it to the slow path.

        It does just what :meth:`_slow_path` would, several times as fast, as it checks for nothing unusual.
        """
        packet, received_us, numbers, clock = event.packet, event.received_us, self.numbers, self.clock
        latest_us, earliest_us = clock.bounds.latest_us, -clock.bounds.earliest_us
        if (
            packet.program != self.running
            or packet.sequence != numbers.sequence + 1
            or packet.boot != numbers.boot
            or (packet.listen_us and self.takes_programs)
            or self.announcement is None
            or self._low_watermark_us is None
            or self._passed_over
            or (self.device is not None and not self._is_demanded and (self.publishes or packet.program == 0))
            or clock.fault is not None
            or not earliest_us <= packet.clock_us - received_us <= latest_us
            or not earliest_us <= packet.promise_us - received_us <= latest_us
        ):
            return None
        watermark_us = event.watermark_us
        if self.ledger and not self.ledger.unaffected(numbers.position.clock_us, self._low_watermark_us, watermark_us):
            return None
        reader = self._readers.of(packet.program)
        tuples = None if reader is None else reader.samples(packet)
        if tuples is None:
            return None
        oldest_us = min(tuples.starts_us)
        if oldest_us - received_us < earliest_us or (watermark_us is not None and oldest_us < watermark_us):
            return None
        numbers.accept_next(packet, event.radio_us, received_us)
        self._low_watermark_us = max(self._low_watermark_us, packet.promise_us)
        self.counters.packets_received += 1
        self.counters.samples_received += len(tuples.starts_us)
        self._presence.received(event.radio_us, received_us)
        clock.measure(packet, received_us)
        return TuplesAccepted(tuples)

    def _slow_path(self, event: PacketReceived) -> list[MoteInstruction]:
        packet = event.packet
        prior = PriorState(self.running, self._low_watermark_us, self.numbers.position) if self.ledger else None
        if self.numbers.is_replayed(packet):
            rejected = reject_replayed(packet, self.numbers, self.counters)
            if self.numbers.may_begin_again(packet):
                requests = self._controls.request_announcement(packet, event.radio_us, event.received_us)
            else:
                requests = self._controls.confirm(event, other_boot=self._is_of_other_boot(packet))
            return [rejected, *requests, PublishEntry(changed=False)]
        slack = slack_of((self.desired, *map(self._readers.program, {packet.program, self.running or 0})))
        wrong = self.clock.wrong(packet, event.received_us, slack)
        radio_us, received_us = event.radio_us, event.received_us
        if self.numbers.is_unreachable(packet, radio_us, received_us, keeps_real_time=wrong is None):
            return [reject_unreachable(packet, self.numbers, self.counters), PublishEntry(changed=False)]
        if wrong is not None and self.announcement is not None:
            return self._accept_without_samples(event, wrong)
        known_until_us = self._known_until_us
        instructions = self._number(event)
        if wrong is None and (self._low_watermark_us is None or packet.promise_us > self._low_watermark_us):
            self._low_watermark_us = packet.promise_us
        changed = self._follow(packet, event.radio_us)
        if self.clock.mark_right():
            changed = True
            instructions.append(ClockRight())
        instructions += self._presence.received(event.radio_us, event.received_us)
        self.clock.measure(packet, event.received_us)
        tuples = None
        if packet.records or self._readers.fills(packet.program):
            self._health = latest_health(packet) or self._health
            if self._ignores_samples_of(packet):
                instructions += self._not_demanded(packet)
            else:
                tuples, unread = read_packet(
                    self._readers.of(packet.program),
                    packet,
                    self.counters,
                    announced=self.announcement is not None,
                    watermark_us=event.watermark_us,
                    oldest_us=self.clock.oldest_stamp_us(event.received_us, slack),
                    known_until_us=known_until_us,
                )
                instructions += unread
        if prior is not None:
            enter(
                self.ledger,
                prior,
                event,
                instructions,
                not_before_us=self._handover.not_before_us,
                programs=(self._readers.program(packet.program), self.desired),
                gap=self._samples_skipped,
                lost_until_us=self._lost_before_us,
            )
            if tuples is not None and self.device is not None:
                self.ledger.accepted(tuples, event.watermark_us)
        self._samples_skipped = self._passed_over = False
        instructions += self._next_controls(event)
        if tuples is not None:
            instructions.append(TuplesAccepted(tuples))
        if changed or tuples is None:
            instructions.append(PublishEntry(changed=changed))
        return instructions

    @property
    def _is_demanded(self) -> bool:
        """Whether tuples of a driven device are wanted, whatever program it runs."""
        return self._merged is not None or (self.device is not None and self.device.stored_always)

    def _ignores_samples_of(self, packet: Packet) -> bool:
        """Return whether no query wants samples that a driven device sends before it has confirmed a program."""
        if self.device is None or self.announcement is None:
            return False
        return not self._is_demanded and (self.device.publishes or packet.program == 0)

    def _not_demanded(self, packet: Packet) -> list[MoteInstruction]:
        samples = sum([type(each) is Sample for each in packet.records])
        self.counters.samples_not_demanded += samples
        return [NotDemanded(samples)] if samples else []

    def _next_controls(self, event: PacketReceived) -> list[MoteInstruction]:
        """Return what to send in the listen window of a packet."""
        if not self.takes_programs and self.announcement is not None:
            return []
        other_boot = self._is_of_other_boot(event.packet)
        return self._controls.next(event, announced=self.announcement is not None, other_boot=other_boot)

    def _is_of_other_boot(self, packet: Packet) -> bool:
        """Return whether a mote of Fjord has announced itself in another boot than that of a packet."""
        return not self._driven and self.announcement is not None and self.announcement.boot != packet.boot

    def _accept_without_samples(self, event: PacketReceived, wrong: WrongClock) -> list[MoteInstruction]:
        """Accept the part of a packet that does not depend on its clock: activity, program and health.

        So the mote can still be sent controls, and its samples are accepted from the first packet whose clock is right.
        """
        packet, low_watermark_us, known_until_us = event.packet, self._low_watermark_us, self._known_until_us
        instructions = self._number(event, keeps_real_time=False)
        if self._follow(packet, event.radio_us) or self._low_watermark_us != low_watermark_us:
            self.ledger.stop(low_watermark_us)
        self._readers.lost(packet.program, known_until_us)
        self._samples_skipped = True
        changed = self.clock.mark_wrong(wrong)
        if changed:
            instructions.append(ClockWrong(wrong.fault, wrong.by_us))
        instructions += self._presence.received(event.radio_us, event.received_us)
        self.clock.measure(packet, event.received_us)
        self._health = latest_health(packet) or self._health
        instructions.append(reject_wrong_clock(wrong, packet, self.counters))
        instructions += self._next_controls(event)
        return [*instructions, PublishEntry(changed=changed)]

    def _number(self, event: PacketReceived, *, keeps_real_time: bool = True) -> list[MoteInstruction]:
        """Note the packet's number."""
        instructions: list[MoteInstruction] = []
        packet, known_until_us = event.packet, self._known_until_us
        advance = self.numbers.advance(packet, event.radio_us, event.received_us, keeps_real_time=keeps_real_time)
        if advance is not NEXT:
            if advance.rebooted:
                instructions.append(Rebooted(packet.boot))
                self._low_watermark_us = None
                self._readers.rebooted()
            if advance.lost:
                self.counters.packets_lost += advance.lost
                instructions.append(PacketsLost(advance.lost))
                self._readers.lost(packet.program, None if advance.rebooted else known_until_us)
        self.counters.packets_received += 1
        return instructions

    def _follow(self, packet: Packet, radio_us: int) -> bool:
        """Note the program that the mote runs; return whether it is another one than before."""
        if self.running == packet.program:
            return False
        self.running = packet.program
        self._readers.began(packet.program)
        self._handover.program_changed(packet.program, radio_us)
        return True
