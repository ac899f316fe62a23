"""All motes of a proxy and the streams they feed: the proxy's decisions, without any input or output.

Pure. The shell (:mod:`proxy.running.service`) passes on decoded frames and the time, and carries out the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from protocols.acquisition.program_reports import Abilities
from protocols.presence.attention import Attention
from protocols.wire.catalog import MOST_WAITS, MoteEntry, MoteState, StreamWait
from protocols.wire.demands import RefusedDemand, StreamDemand
from protocols.wire.packets import Announcement, NumberedAnnouncement, Packet
from protocols.wire.programs import SECOND_US, SamplingProgram
from proxy.fleet.batching import CutBatch
from proxy.fleet.fleet_instructions import (
    FleetInstruction,
    ForMote,
    OfferStream,
    RejectAnnouncement,
    RejectDemand,
    RememberAnnouncement,
    RemoveEntry,
    TuplesDropped,
)
from proxy.fleet.fleet_members import FleetLimits, FleetMembers, NeighbourChanges, Neighbours, extends, problem_of
from proxy.fleet.merging_task import MergingTask, SensorKind
from proxy.fleet.program_choice import ProgramChoice
from proxy.fleet.stream_state import StreamProgress, StreamState, furthest_behind
from proxy.motes.mote_entries import DeviceTraits, traits_of_mote
from proxy.motes.mote_events import (
    AnnouncementReceived,
    AnnouncementRejected,
    PacketReceived,
    TimePassed,
    TuplesAccepted,
)
from proxy.motes.mote_presence import lowest_promise_us
from proxy.motes.mote_tracking import MoteTracking
from proxy.motes.packet_numbers import HeldPacket
from proxy.records.waiting_tuples import MotePosition, MoteWatermark, PacketTuples

REPLAN_AFTER_US = 600 * SECOND_US
"""How often programs are chosen again, by the values observed until then."""
MOST_COUNTS = 50_000
"""Panes, those of all motes and demands added up, of which one cut reports expected and missing samples."""
_NO_BOOT = -1


class Fleet:
    """The state of a proxy.

    Parameters
    ----------
    proxy
        Its name.
    limits
        How large it may be, and how its motes are handled.
    now_us
        Radio clock now.
    programs, positions, losses, streams, stamps
        From before a restart: programs, the last accepted packet of each mote, until when samples of it were missing,
        the progress of each stream, and by stream and mote the stamps of published tuples.
    abilities_of
        Returns what a mote can do.
    device_of
        Returns the traits of a driven device; None for a mote of Fjord.
    counts_of, trouble_of
        Return what the driver of a device counts of its messages, by reason, and what keeps them from their stream.
    neighbours
        Which motes belong to other proxies.
    checked
        Returns whether the stamps of a mote are checked against the time of day before its frames come here.
    sealed
        Returns whether the frames of a mote are sealed with a key of its own.
    delay_of
        Returns by how much values of a driven device may be delayed; None for a mote of Fjord.
    same_driver
        Returns whether two motes are devices of one driver: one announces for all what columns their stream gets.
    """

    def __init__(
        self,
        proxy: str,
        limits: FleetLimits,
        *,
        now_us: int,
        programs: Iterable[SamplingProgram] = (),
        positions: Mapping[str, MotePosition] | None = None,
        losses: Mapping[str, int] | None = None,
        streams: Iterable[StreamProgress] = (),
        stamps: Mapping[str, Mapping[str, Iterable[int]]] | None = None,
        abilities_of: Callable[[str], Abilities] = lambda _: Abilities(),
        device_of: Callable[[str], DeviceTraits | None] = lambda _: None,
        counts_of: Callable[[str], Mapping[str, int]] = lambda _: {},
        trouble_of: Callable[[str], str] = lambda _: "",
        neighbours: Neighbours | None = None,
        checked: Callable[[str], bool] = lambda _: False,
        sealed: Callable[[str], bool] = lambda _: False,
        delay_of: Callable[[str], int | None] = lambda _: None,
        same_driver: Callable[[str, str], bool] = lambda *_: False,
    ) -> None:
        self.attention = Attention(now_us)
        self._delay_of = delay_of
        self._members = FleetMembers(
            proxy,
            limits,
            programs=programs,
            positions=positions,
            losses=losses,
            streams=streams,
            stamps=stamps,
            sealed=sealed,
        )
        self.motes: Mapping[str, MoteTracking] = self._members.motes
        self.streams: Mapping[str, StreamState] = self._members.streams
        self._choice = ProgramChoice(abilities_of)
        self._device_of = device_of
        self._counts_of = counts_of
        self._trouble_of = trouble_of
        self._checked = checked
        self._same_driver = same_driver
        self._neighbours = neighbours or Neighbours(proxy, 0)
        self._limits = limits
        self._now_us = now_us
        self._replanned_us = now_us

    @property
    def nearly_full(self) -> bool:
        """Whether a stream has little room left: more than half of the tuples that may wait do."""
        return any(each.nearly_full for each in self.streams.values())

    def restore(self, announcements: Iterable[Announcement]) -> list[FleetInstruction]:
        """Add the motes known from before a restart; return streams to offer and demands that do not fit."""
        instructions: list[FleetInstruction] = []
        for announcement in announcements:
            stream = self._members.stream(announcement.stream.name)
            mote = self._members.mote(announcement.mote, self._now_us)
            if stream is None or mote is None or stream.schema not in {None, announcement.stream}:
                continue
            mote.set_device(self._traits_of(announcement))
            mote.restore(announcement)
            self._members.join(mote, stream)
            if stream.schema is None:
                instructions += self._offer(stream, announcement)
            instructions += self._choice.apply(stream, mote, self._now_us)
        return instructions

    def receive_packet(self, packet: Packet, *, radio_us: int, received_us: int) -> list[FleetInstruction]:
        """Return what to do about a packet."""
        mote = self.motes.get(packet.mote) or self._members.mote(packet.mote, self._now_us)
        if mote is None:
            return [self._too_many_motes(packet.mote)]
        if mote.reordering.is_next(packet, mote.numbers.boot, mote.numbers.sequence):
            return self._process(mote, packet, radio_us, received_us)
        return self._reorder(mote, HeldPacket(packet, radio_us, received_us))

    def receive_announcement(
        self, announcement: Announcement, *, radio_us: int, received_us: int
    ) -> list[FleetInstruction]:
        """Return what to do about an announcement."""
        mote = self._members.mote(announcement.mote, self._now_us)
        if mote is None:
            return [self._too_many_motes(announcement.mote)]
        if mote.numbers.is_stale(announcement):
            number = f"of boot {announcement.boot}"
            last = f"packet {mote.numbers.sequence} of boot {mote.numbers.boot}"
            return [RejectAnnouncement(announcement.mote, "replayed", f"the announcement {number} came after {last}")]
        if isinstance(announcement, NumberedAnnouncement):
            announcement = announcement.plain()
        # After a reboot no missing packet arrives any more, and packets may be numbered from 0 again.
        instructions = self._process_held(mote, mote.reordering.release_all(), radio_us)
        problem = problem_of(announcement, self._members, self._neighbours, self._same_driver)
        if problem is not None:
            self._members.leave(mote)
            mote.handle(AnnouncementRejected(announcement.boot, radio_us))
            return [*instructions, RejectAnnouncement(announcement.mote, *problem)]
        stream = self.streams[announcement.stream.name]
        mote.set_device(self._traits_of(announcement))
        known = mote.announcement
        if known is None or known.stream.name != stream.name:
            self._members.leave(mote)
        if stream.schema is not None and extends(announcement.stream, stream.schema):
            instructions += self._extend(stream, announcement, radio_us, received_us)
        if stream.schema != announcement.stream:
            dropped = stream.drop_waiting()
            if dropped:
                instructions.append(TuplesDropped(stream.name, dropped))
            instructions += self._offer(stream, announcement)
        self._members.join(mote, stream)
        bounded = not self._checked(announcement.mote)
        event = AnnouncementReceived(announcement, radio_us, received_us, bounded)
        instructions += [ForMote(mote.mote, each) for each in mote.handle(event)]
        if known != announcement:
            instructions.append(RememberAnnouncement(announcement))
        stream.note_change()
        return instructions + self._choice.apply(stream, mote, radio_us, at_once=True)

    def receive_demand(
        self,
        stream_name: str,
        demand: StreamDemand | None,
        *,
        radio_us: int,
        unreadable: tuple[RefusedDemand, ...] = (),
        merging: MergingTask | None = None,
    ) -> list[FleetInstruction]:
        """Return what to do about the demand on a stream.

        Parameters
        ----------
        stream_name
            Which stream.
        demand
            Of all queries; None if no query demands anything.
        radio_us
            Radio clock now.
        unreadable
            Demands that could not be decoded.
        merging
            In which the demand has been merged; None to do it now.
        """
        stream = self._members.stream(stream_name)
        if stream is None:
            detail = RefusedDemand("*", f"there are {self._limits.streams} streams already")
            return [RejectDemand(stream_name, detail)]
        rejected = [*stream.set_demand(demand, unreadable, merging), *stream.merger.left_out.values()]
        instructions: list[FleetInstruction] = [RejectDemand(stream_name, each) for each in rejected]
        for mote in self._members.motes_of(stream_name):
            # Motes that have come while a thread merged for the others wait for no other search.
            instructions += self._choice.apply(stream, mote, radio_us, at_once=merging is not None)
        stream.note_change()
        return instructions

    def merging(self, stream_name: str, demand: StreamDemand | None) -> MergingTask | None:
        """Return the task of merging a demand for the present motes of a stream, for any thread; None if it has none.

        Its result goes to :meth:`receive_demand`. If the motes, or what they offer, are others by then, nothing is
        wrong: what the task lacks is merged there.
        """
        stream = self.streams.get(stream_name)
        return None if stream is None else stream.merging(demand, self._kinds_of(stream_name))

    def replan_due(self, radio_us: int) -> bool:
        """Return whether to choose programs again: by the values observed, or because some were chosen in a hurry."""
        hurried = any(each.merger.hurried for each in self.streams.values())
        return hurried or self._observed_for_long(radio_us)

    def replanning(self, radio_us: int) -> dict[str, MergingTask]:
        """Return by stream, if it is time to, the tasks of choosing programs again: for :meth:`replan`."""
        regular = self._observed_for_long(radio_us)
        if regular:
            self._replanned_us = radio_us
        return {
            name: stream.merging_again(self._kinds_of(name))
            for name, stream in self.streams.items()
            if regular or stream.merger.hurried
        }

    def _observed_for_long(self, radio_us: int) -> bool:
        return radio_us - self._replanned_us >= REPLAN_AFTER_US

    def replan(self, stream_name: str, merging: MergingTask, radio_us: int) -> list[FleetInstruction]:
        """Choose the programs of a stream's motes again, where that saves enough to be worth a change."""
        stream = self.streams[stream_name]
        instructions: list[FleetInstruction] = []
        if stream.replan(merging):
            for mote in self._members.motes_of(stream_name):
                instructions += self._choice.apply(stream, mote, radio_us, only_if_cheaper=True, at_once=True)
        return instructions

    def time_passed(self, radio_us: int, *, replan: bool = True) -> list[FleetInstruction]:
        """Return what to do when time has passed: on silent motes, held packets, programs to choose again.

        Parameters
        ----------
        radio_us
            Radio clock now.
        replan
            Whether to choose programs here; else that is done beside, see :meth:`replanning`.
        """
        self._now_us = radio_us
        instructions: list[FleetInstruction] = []
        for name, merging in (self.replanning(radio_us) if replan else {}).items():
            merging.run()
            instructions += self.replan(name, merging, radio_us)
        forgotten: list[str] = []
        passed = TimePassed(radio_us)
        for mote in self.motes.values():
            if mote.reordering:
                instructions += self._process_held(mote, mote.reordering.time_passed(radio_us), radio_us)
            if not mote.needs_time(radio_us):
                continue
            before = mote.watermark
            found, stream = mote.handle(passed), self._members.stream_of(mote)
            for each in found:
                if type(each) is TuplesAccepted and stream is not None:
                    kept = each.tuples if stream.watermark_us is None else each.tuples.since(stream.watermark_us)
                    instructions += [] if kept is None else self._enqueue(stream, mote, kept)
                instructions.append(ForMote(mote.mote, each))
            if stream is None:
                if mote.silent:
                    forgotten.append(mote.mote)
            elif before != mote.watermark:
                stream.note_change()
        for name in forgotten:
            del self._members.motes[name]
        return instructions

    def neighbours_changed(
        self, changes: NeighbourChanges, *, radio_us: int, received_us: int
    ) -> list[FleetInstruction]:
        """Return what to do after changes at other proxies: give up motes of theirs, ask free ones to announce."""
        instructions: list[FleetInstruction] = []
        for name in changes.given_up:
            if self._members.sealed(name):
                continue  # its key is ours
            instructions.append(RemoveEntry(name))
            announcement = self.motes[name].announcement
            if announcement is not None:
                # The mote belongs to another proxy now, so its announcement is rejected.
                instructions += self.receive_announcement(announcement, radio_us=radio_us, received_us=received_us)
        for name in changes.freed:
            if name in self.motes and not self.has(name):
                self.motes[name].handle(AnnouncementRejected(_NO_BOOT, radio_us))
        return instructions

    def skip_gaps(self) -> list[FleetInstruction]:
        """Return what to do about all packets that wait for earlier ones, when no more will arrive."""
        instructions: list[FleetInstruction] = []
        for mote in self.motes.values():
            instructions += self._process_held(mote, mote.reordering.release_all(), self._now_us)
        return instructions

    def cut(self, radio_us: int) -> list[CutBatch]:
        """Return the batches that are due; they are numbered and must all be spooled, in this order."""
        batches: list[CutBatch] = []
        for name, stream in self.streams.items():
            promises = not stream.progress.sampling and stream.promise_due(radio_us)
            if stream.schema is None or not (promises or stream.due(radio_us)):
                continue
            motes = list(self._members.motes_of(name))
            watermarks = [each for each in (mote.watermark for mote in motes) if each is not None]
            promise_us = None if watermarks else self._promise_us(stream, motes, radio_us)
            moved = watermarks or ([] if promise_us is None else [MoteWatermark(promise_us)])
            counts = self._sample_counts(stream, motes, moved)
            batches += stream.cut(watermarks, radio_us, counts, promise_us=promise_us, promise_of=self._promise_of)
        return batches

    def stream_waits(self, radio_us: int) -> tuple[StreamWait, ...]:
        """Return, for streams that queries read, the mote that each waits for; those that have waited longest."""
        found = []
        for name, stream in self.streams.items():
            motes = self._members.motes_of(name) if stream.is_demanded else ()
            mote = furthest_behind(motes, stream.restored_us, self._delay_of)
            if mote is not None:
                waits_us = max(0, radio_us - mote.received_radio_us)
                found.append(StreamWait(name, mote.mote, waits_us, mote.silent))
        return tuple(sorted(found, key=lambda each: (-each.waits_us, each.stream))[:MOST_WAITS])

    def awaits_silence(self) -> bool:
        """Return whether a stream has no time but what the proxy promises in place of its motes."""
        return any(
            stream.is_demanded and not stream.progress.sampling and stream.watermark_us is not None
            for stream in self.streams.values()
        )

    @property
    def waits(self) -> bool:
        """Whether tuples wait for a batch."""
        return any(stream.waiting for stream in self.streams.values())

    def is_complete(self) -> bool:
        """Return whether tuples wait, and wherever they do all motes of the stream have come as far as the latest."""
        waiting = [(name, stream) for name, stream in self.streams.items() if stream.waiting]
        return bool(waiting) and all(stream.is_complete(self._members.motes_of(name)) for name, stream in waiting)

    def has(self, mote: str) -> bool:
        """Return whether a mote is in this proxy's catalog."""
        return self._members.has(mote)

    def has_announced(self, announcement: Announcement) -> bool:
        """Return whether this is the last announcement of its mote, and was accepted."""
        found = self.motes.get(announcement.mote)
        return found is not None and found.announcement == announcement

    def has_motes(self, stream_name: str) -> bool:
        """Return whether motes feed a stream."""
        return bool(self._members.motes_of(stream_name))

    def entry(self, mote: str) -> MoteEntry | None:
        """Return a mote's entry in the catalog, None if it has not announced itself."""
        found = self.motes.get(mote)
        if found is None or found.device is None:
            return None if found is None else found.entry()
        return found.entry(self._counts_of(mote), self._trouble_of(mote))

    def states(self) -> dict[MoteState, int]:
        """Return how many motes are in each state."""
        return self._members.states()

    def clock_faults(self) -> dict[str, int]:
        """Return how many motes have a wrong clock, by fault."""
        return self._members.clock_faults()

    def positions(self) -> list[MotePosition]:
        """Return the last accepted packet of all motes that have no tuples waiting for a batch."""
        return self._members.positions()

    def new_losses(self) -> dict[str, int]:
        """Return, by mote, until when samples are missing, of those of which that has changed since the last time."""
        return self._members.new_losses()

    def _traits_of(self, announcement: Announcement) -> DeviceTraits | None:
        return self._device_of(announcement.mote) or traits_of_mote(announcement)

    def _too_many_motes(self, mote: str) -> RejectAnnouncement:
        return RejectAnnouncement(mote, "too_many_motes", f"there are {self._limits.motes} motes already")

    def _extend(
        self, stream: StreamState, announcement: Announcement, radio_us: int, received_us: int
    ) -> list[FleetInstruction]:
        """Let a stream and all its motes have the columns that one of them announces for all."""
        if stream.schema == announcement.stream:
            return []
        stream.extend_schema(announcement.stream)
        instructions = self._offer(stream, announcement)
        for mote in self._members.motes_of(stream.name):
            if mote.mote != announcement.mote and mote.announcement is not None:
                wider = msgspec.structs.replace(mote.announcement, stream=announcement.stream)
                event = AnnouncementReceived(wider, radio_us, received_us, not self._checked(mote.mote))
                instructions += [ForMote(mote.mote, each) for each in mote.handle(event)]
                instructions.append(RememberAnnouncement(wider))
        return instructions

    def _offer(self, stream: StreamState, announcement: Announcement) -> list[FleetInstruction]:
        """Let a stream have the announced schema; return its offer, and the demands that do not fit it."""
        rejected = stream.set_schema(announcement.stream)
        return [OfferStream(announcement.stream), *(RejectDemand(stream.name, each) for each in rejected)]

    def _reorder(self, mote: MoteTracking, arrived: HeldPacket) -> list[FleetInstruction]:
        """Process the packets that no gap holds back; the mote of one that waits may be sent controls now."""
        packet, radio_us = arrived.packet, arrived.radio_us
        numbers = mote.numbers
        arrival = mote.reordering.received(arrived, (numbers.boot, numbers.sequence) if numbers.any_received else None)
        if len(arrival.ready) == 1 and arrival.ready[0] is arrived:
            return self._process(mote, packet, radio_us, arrived.received_us)
        stream = self._members.stream_of(mote)
        event = PacketReceived(packet, radio_us, arrived.received_us, None if stream is None else stream.watermark_us)
        found = mote.duplicate_received(packet) if arrival.replayed else mote.held_packet_received(event)
        return [ForMote(mote.mote, each) for each in found] + self._process_held(mote, arrival.ready, radio_us)

    def _process_held(self, mote: MoteTracking, held: Iterable[HeldPacket], radio_us: int) -> list[FleetInstruction]:
        """Process packets that waited: their listen windows are used, or over."""
        instructions: list[FleetInstruction] = []
        for each in held:
            packet = msgspec.structs.replace(each.packet, listen_us=0)
            instructions += self._process(mote, packet, radio_us, each.received_us)
        return instructions

    def _process(self, mote: MoteTracking, packet: Packet, radio_us: int, received_us: int) -> list[FleetInstruction]:
        """Return what to do about the next packet of a mote."""
        stream = self._members.stream_of(mote)
        late_us = None
        if stream is not None:
            late_us = stream.watermark_us if mote.device is None else stream.accepted_from_us(packet.mote)
        event = PacketReceived(packet, radio_us, received_us, late_us)
        instructions: list[FleetInstruction] = []
        for each in mote.handle(event):
            if type(each) is TuplesAccepted and stream is not None:
                instructions += self._enqueue(stream, mote, each.tuples)
            instructions.append(ForMote(packet.mote, each))
        if stream is not None:
            stream.note_change()
        return instructions

    def _enqueue(self, stream: StreamState, mote: MoteTracking, tuples: PacketTuples) -> list[FleetInstruction]:
        """Let the tuples of a packet wait for their batch; return what to do if old ones were dropped for them."""
        if stream.observes(tuples) and mote.sends_every_sample:
            stream.observe(tuples)
        dropped = stream.enqueue(tuples)
        if not dropped:
            return []
        for each in dropped:
            feeding = self.motes.get(each.mote)
            if feeding is not None:
                feeding.ledger.drop(each)
        return [TuplesDropped(stream.name, sum(map(len, dropped)))]

    def _promise_of(self, mote: str) -> int | None:
        found = self.motes.get(mote)
        return None if found is None else found.low_watermark_us

    def _kinds_of(self, stream_name: str) -> list[SensorKind]:
        kinds = map(self._choice.kind_of, self._members.motes_of(stream_name))
        return [each for each in kinds if each is not None]

    def _promise_us(self, stream: StreamState, motes: Sequence[MoteTracking], radio_us: int) -> int | None:
        """Return how far a stream has come whose low watermark no mote holds; None if that is not known, or not due."""
        if not stream.promise_due(radio_us):
            return None
        stream.promised(radio_us)
        if any(mote.replays for mote in motes):
            return None  # their clock is not ours
        found = (mote.while_silent(stream.restored_us, self._delay_of(mote.mote)) for mote in motes)
        return lowest_promise_us([each for each in found if each is not None], self.attention)

    def _sample_counts(
        self, stream: StreamState, motes: Sequence[MoteTracking], watermarks: Sequence[MoteWatermark]
    ) -> list[PacketTuples]:
        """Return the counts of expected and missing samples of the panes that the watermark is about to pass."""
        until_us = stream.counted_until(watermarks)
        counted = [] if until_us is None else [mote for mote in motes if mote.ledger]
        if until_us is None or not counted:
            return []
        since_us = stream.counted_since(mote.ledger.began_us for mote in counted)
        most = max(1, MOST_COUNTS // sum(len(mote.ledger) for mote in counted))
        counts = (mote.count_samples(until_us, since_us, most) for mote in counted)
        return [each for each in counts if each is not None]
