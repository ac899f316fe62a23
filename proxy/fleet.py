"""All motes of a proxy and the streams they feed: the proxy's decisions, without any input or output.

Pure. The shell (:mod:`proxy.service`) hands over decoded frames and the time, and carries out the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from protocols.acquisition.merging import draw_of
from protocols.acquisition.parts import Abilities, ProgramStyle
from protocols.acquisition.sensor_traits import traits_of
from protocols.errors import SchemaError
from protocols.wire.catalog import ClockFault, MoteEntry, MoteState
from protocols.wire.demands import RefusedDemand, StreamDemand
from protocols.wire.packets import Announcement, Packet
from protocols.wire.programs import SECOND_US, SamplingProgram
from proxy.batching import BatchLimits, CutBatch, MotePosition
from proxy.decoding import check_properties
from proxy.fleet_instructions import (
    FleetInstruction,
    ForMote,
    OfferStream,
    RefuseAnnouncement,
    RefuseDemand,
    RememberAnnouncement,
    RememberProgram,
    RemoveEntry,
    TuplesDropped,
)
from proxy.mote_events import (
    AnnouncementReceived,
    AnnouncementRefused,
    DemandChanged,
    PacketReceived,
    TimePassed,
    TuplesAccepted,
)
from proxy.mote_tracking import MoteTracking
from proxy.neighbours import NeighbourNews, Neighbours
from proxy.observing import observe
from proxy.program_book import ProgramBook
from proxy.reordering import HeldPacket
from proxy.stream_state import StreamProgress, StreamState
from proxy.tracking_limits import TrackingLimits
from proxy.waiting_tuples import PacketTuples
from proxy.watermarks import Promise

WEIGHS_AGAIN_AFTER_US = 600 * SECOND_US
"""What values are like is looked at this often, and programs chosen by it."""
_WORTH_A_CHANGE = 0.9
MOST_COUNTS = 100_000
"""With one cut, counts of expected and missing samples are told of no more panes, those of all motes taken together."""
_NO_BOOT = -1


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """How large a fleet may be and how it is treated."""

    motes: int = 10_000
    streams: int = 1_000
    tracking: TrackingLimits = field(default_factory=TrackingLimits)
    batches: BatchLimits = field(default_factory=BatchLimits)
    style: ProgramStyle = field(default_factory=ProgramStyle)


class Fleet:
    """The state of a proxy.

    Parameters
    ----------
    proxy
        Its name.
    limits
        Sizes and patience.
    now_us
        Radio clock now.
    programs, positions, streams
        What is remembered from before a restart: programs, how far packets were taken over, and how far streams came.
    abilities_of
        Returns what a mote can do.
    neighbours
        Say which motes are another proxy's.
    checked
        Returns whether what a mote stamps has been checked against the time of day before it comes here.
    """

    def __init__(
        self,
        proxy: str,
        limits: FleetLimits,
        *,
        now_us: int,
        programs: Iterable[SamplingProgram] = (),
        positions: Mapping[str, MotePosition] | None = None,
        streams: Iterable[StreamProgress] = (),
        abilities_of: Callable[[str], Abilities] = lambda _: Abilities(),
        neighbours: Neighbours | None = None,
        checked: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._abilities_of = abilities_of
        self._checked = checked
        self._neighbours = neighbours or Neighbours(proxy, 0)
        self.motes: dict[str, MoteTracking] = {}
        self.streams = {each.stream: StreamState(each, limits.batches, proxy, style=limits.style) for each in streams}
        self._proxy = proxy
        self._limits = limits
        self._book = ProgramBook(programs)
        self._positions = dict(positions or {})
        self._fed_by: dict[str, dict[str, MoteTracking]] = {}
        self._now_us = now_us
        self._weighed_us = now_us
        self._remembered: set[tuple[str, SamplingProgram]] = set()

    def restore(self, announcements: Iterable[Announcement]) -> list[FleetInstruction]:
        """Take over the motes known from before a restart; return streams to offer and demands that do not fit."""
        instructions: list[FleetInstruction] = []
        for announcement in announcements:
            stream = self._stream(announcement.stream.name)
            mote = self._mote(announcement.mote)
            if stream is None or mote is None or stream.schema not in {None, announcement.stream}:
                continue
            mote.restore(announcement)
            self._join_stream(stream, announcement.stream.name, mote)
            if stream.schema is None:
                instructions.append(OfferStream(announcement.stream))
                refused = stream.describe(announcement.stream)
                instructions += [RefuseDemand(announcement.stream.name, each) for each in refused]
            instructions += self._apply_demand(stream, mote, self._now_us)
        return instructions

    def packet(self, packet: Packet, *, radio_us: int, heard_us: int) -> list[FleetInstruction]:
        """Return what to do about a packet."""
        mote = self.motes.get(packet.mote) or self._mote(packet.mote)
        if mote is None:
            return [RefuseAnnouncement(packet.mote, "too_many_motes", f"there are {self._limits.motes} motes already")]
        if mote.reordering.passes(packet, mote.numbers.boot, mote.numbers.sequence):
            return self._take(mote, packet, radio_us, heard_us)
        return self._in_order(mote, HeldPacket(packet, radio_us, heard_us))

    def _in_order(self, mote: MoteTracking, arrived: HeldPacket) -> list[FleetInstruction]:
        """Take what no gap holds back; what waits is not taken, but its mote may be spoken to now."""
        packet, radio_us = arrived.packet, arrived.radio_us
        numbers = mote.numbers
        arrival = mote.reordering.received(arrived, (numbers.boot, numbers.sequence) if numbers.heard else None)
        if len(arrival.ready) == 1 and arrival.ready[0] is arrived:
            return self._take(mote, packet, radio_us, arrived.heard_us)
        event = PacketReceived(packet, radio_us, arrived.heard_us, self._watermark_us(mote))
        found = mote.doubled(packet) if arrival.replayed else mote.delayed(event)
        return [ForMote(mote.mote, each) for each in found] + self._take_waiting(mote, arrival.ready, radio_us)

    def _take_waiting(self, mote: MoteTracking, waited: Iterable[HeldPacket], radio_us: int) -> list[FleetInstruction]:
        """Take packets that waited: their listen windows are used, or over."""
        instructions: list[FleetInstruction] = []
        for each in waited:
            packet = msgspec.structs.replace(each.packet, listen_us=0)
            instructions += self._take(mote, packet, radio_us, each.heard_us)
        return instructions

    def give_up_gaps(self) -> list[FleetInstruction]:
        """Return what to do about all packets that wait for others, when no more will come."""
        instructions: list[FleetInstruction] = []
        for mote in self.motes.values():
            instructions += self._take_waiting(mote, mote.reordering.give_up(), self._now_us)
        return instructions

    def _watermark_us(self, mote: MoteTracking) -> int | None:
        known = mote.announcement
        return None if known is None else self.streams[known.stream.name].progress.watermark_us

    def _take(self, mote: MoteTracking, packet: Packet, radio_us: int, heard_us: int) -> list[FleetInstruction]:
        """Return what to do about the next packet of a mote."""
        announcement = mote.announcement
        stream = None if announcement is None else self.streams[announcement.stream.name]
        event = PacketReceived(packet, radio_us, heard_us, None if stream is None else stream.progress.watermark_us)
        instructions: list[FleetInstruction] = []
        for each in mote.handle(event):
            if type(each) is TuplesAccepted and stream is not None:
                dropped = self._accept(stream, mote, each.tuples)
                if dropped:
                    instructions.append(TuplesDropped(stream.progress.stream, dropped))
            instructions.append(ForMote(packet.mote, each))
        if stream is not None:
            stream.touched = True
        return instructions

    def _accept(self, stream: StreamState, mote: MoteTracking, tuples: PacketTuples) -> int:
        """Let the tuples of a packet wait for their batch; return how many old ones were dropped for them."""
        if tuples.sequence % stream.observes_every == 0 and stream.schema is not None and mote.sends_all:
            observe(stream.observed, stream.schema, tuple(tuples))
        dropped = stream.accept(tuples)
        if not dropped:
            return 0
        for each in dropped:
            feeding = self.motes.get(each.mote)
            if feeding is not None:
                feeding.ledger.drop(each)
        return sum(map(len, dropped))

    def announcement(self, announcement: Announcement, *, radio_us: int, heard_us: int) -> list[FleetInstruction]:
        """Return what to do about an announcement."""
        name = announcement.stream.name
        mote = self._mote(announcement.mote)
        if mote is None:
            detail = f"there are {self._limits.motes} motes already"
            return [RefuseAnnouncement(announcement.mote, "too_many_motes", detail)]
        # After a reboot nothing that is missing will come any more, and packets may be numbered from 0 again.
        instructions = self._take_waiting(mote, mote.reordering.give_up(), radio_us)
        problem = self._problem(announcement)
        if problem is not None:
            self._leave_stream(mote)
            mote.handle(AnnouncementRefused(announcement.boot, radio_us))
            return [*instructions, RefuseAnnouncement(announcement.mote, *problem)]
        stream = self.streams[name]
        known = mote.announcement
        if known is None or known.stream.name != name:
            self._leave_stream(mote)
        if stream.schema != announcement.stream:
            dropped = stream.give_up_waiting()
            if dropped:
                instructions.append(TuplesDropped(name, dropped))
            instructions.append(OfferStream(announcement.stream))
            instructions += [RefuseDemand(name, each) for each in stream.describe(announcement.stream)]
        self._join_stream(stream, name, mote)
        bounded = not self._checked(announcement.mote)
        for each in mote.handle(AnnouncementReceived(announcement, radio_us, heard_us, bounded)):
            instructions.append(ForMote(mote.mote, each))
        if known != announcement:
            instructions.append(RememberAnnouncement(announcement))
        stream.touched = True
        return instructions + self._apply_demand(stream, mote, radio_us)

    def demand(
        self,
        stream_name: str,
        demand: StreamDemand | None,
        *,
        radio_us: int,
        unreadable: tuple[RefusedDemand, ...] = (),
    ) -> list[FleetInstruction]:
        """Return what to do about the demand on a stream, None: nobody asks; `unreadable` is what could not be read."""
        stream = self._stream(stream_name)
        if stream is None:
            detail = RefusedDemand("*", f"there are {self._limits.streams} streams already")
            return [RefuseDemand(stream_name, detail)]
        refused = stream.demand(demand, unreadable)
        instructions: list[FleetInstruction] = [RefuseDemand(stream_name, each) for each in refused]
        for mote in self._fed_by.get(stream_name, {}).values():
            instructions += self._apply_demand(stream, mote, radio_us)
        stream.touched = True
        return instructions

    def time_passed(self, radio_us: int) -> list[FleetInstruction]:
        """Return what to do when nothing came: motes that have fallen silent."""
        self._now_us = radio_us
        instructions: list[FleetInstruction] = []
        if radio_us - self._weighed_us >= WEIGHS_AGAIN_AFTER_US:
            self._weighed_us = radio_us
            instructions += self._weigh_again(radio_us)
        forgotten: list[str] = []
        passed = TimePassed(radio_us)
        for mote in self.motes.values():
            if mote.reordering:
                instructions += self._take_waiting(mote, mote.reordering.time_passed(radio_us), radio_us)
            if not mote.waits(radio_us):
                continue
            held = mote.promise
            instructions += [ForMote(mote.mote, each) for each in mote.handle(passed)]
            if mote.announcement is None:
                if mote.silent:
                    forgotten.append(mote.mote)
            elif held != mote.promise:
                self.streams[mote.announcement.stream.name].touched = True
        for name in forgotten:
            del self.motes[name]
        return instructions

    def _weigh_again(self, radio_us: int) -> list[FleetInstruction]:
        """Choose programs anew by what has been observed, where that saves enough to be worth a change."""
        instructions: list[FleetInstruction] = []
        for name, stream in self.streams.items():
            stream.weigh_again()
            for mote in self._fed_by.get(name, {}).values():
                instructions += self._apply_demand(stream, mote, radio_us, reluctantly=True)
        return instructions

    def cut(self, radio_us: int) -> list[CutBatch]:
        """Return the batches that are due; they are numbered and must all be spooled, in this order."""
        batches: list[CutBatch] = []
        for name, stream in self.streams.items():
            if stream.schema is None or not stream.due(radio_us):
                continue
            fed_by = self._fed_by.get(name, {}).values()
            promises = [promise for promise in (mote.promise for mote in fed_by) if promise is not None]
            batches += stream.cut(promises, radio_us, self._counted(stream, list(fed_by), promises))
        return batches

    @property
    def crowded(self) -> bool:
        """Whether a stream has little room left: more than half of the tuples that may wait do."""
        return any(each.crowded for each in self.streams.values())

    def _counted(
        self, stream: StreamState, motes: Sequence[MoteTracking], promises: Sequence[Promise]
    ) -> list[PacketTuples]:
        """Return what is told of expected and missing samples, before the watermark passes the panes they were in."""
        until_us = stream.counted_until(promises)
        asked = [] if until_us is None else [mote for mote in motes if mote.ledger]
        if until_us is None or not asked:
            return []
        since_us = stream.counted_since(mote.ledger.began_us for mote in asked)
        most = max(1, MOST_COUNTS // len(asked))
        told = (mote.count_samples(until_us, since_us, most) for mote in asked)
        return [each for each in told if each is not None]

    def has(self, mote: str) -> bool:
        """Return whether a mote is in this proxy's catalog."""
        found = self.motes.get(mote)
        return found is not None and found.announcement is not None

    def neighbours_changed(self, news: NeighbourNews, *, radio_us: int, heard_us: int) -> list[FleetInstruction]:
        """Return what to do after news of other proxies: give up motes that are theirs, ask those nobody has again."""
        instructions: list[FleetInstruction] = []
        for name in news.given_up:
            instructions.append(RemoveEntry(name))
            announcement = self.motes[name].announcement
            if announcement is not None:
                # It is another's now, so what it announced is refused.
                instructions += self.announcement(announcement, radio_us=radio_us, heard_us=heard_us)
        for name in news.freed:
            if name in self.motes and not self.has(name):
                self.motes[name].handle(AnnouncementRefused(_NO_BOOT, radio_us))
        return instructions

    def entry(self, mote: str) -> MoteEntry | None:
        """Return a mote's entry in the catalog, None if it has not announced itself."""
        found = self.motes.get(mote)
        return None if found is None else found.entry()

    def states(self) -> dict[MoteState, int]:
        """Return how many motes are in each state."""
        counts = dict.fromkeys(MoteState, 0)
        for mote in self.motes.values():
            if mote.announcement is not None:
                counts[mote.state] += 1
        return counts

    def clock_faults(self) -> dict[str, int]:
        """Return how many motes have a clock that is wrong, by how it is."""
        counts = dict.fromkeys((each.value for each in ClockFault), 0)
        for mote in self.motes.values():
            if mote.clock_fault is not None:
                counts[mote.clock_fault.value] += 1
        return counts

    def positions(self) -> list[MotePosition]:
        """Return how far the packets of all motes whose tuples no longer wait have been taken over."""
        waiting = {name for name, stream in self.streams.items() if stream.waiting}
        return [
            mote.numbers.position
            for mote in self.motes.values()
            if mote.numbers.heard and (mote.announcement is None or mote.announcement.stream.name not in waiting)
        ]

    def _stream(self, name: str) -> StreamState | None:
        found = self.streams.get(name)
        if found is None and len(self.streams) < self._limits.streams:
            found = self.streams[name] = StreamState(
                StreamProgress(name), self._limits.batches, self._proxy, style=self._limits.style
            )
        return found

    def _mote(self, name: str) -> MoteTracking | None:
        found = self.motes.get(name)
        if found is None and len(self.motes) < self._limits.motes:
            found = self.motes[name] = MoteTracking(
                name,
                proxy=self._proxy,
                book=self._book,
                limits=self._limits.tracking,
                started_us=self._now_us,
                position=self._positions.pop(name, None),
            )
        return found

    def _problem(self, announcement: Announcement) -> tuple[str, str] | None:
        """Why an announcement cannot be taken: a word and a sentence; None if it can."""
        other = self._neighbours.claimant(
            announcement.mote, ours=self.has(announcement.mote), stream=announcement.stream.name
        )
        if other is not None:
            return "two_proxies", f"mote {announcement.mote!r} is in the catalog of proxy {other!r}, which is online"
        try:
            check_properties(announcement)
        except SchemaError as error:
            return "properties", str(error)
        name = announcement.stream.name
        if announcement.replays and (live := self._keeps_time(name, announcement.mote)):
            return (
                "replay",
                f"mote {announcement.mote!r} replays a trace into stream {name!r}, which {live!r} feeds live",
            )
        stream = self._stream(name)
        if stream is None:
            return "too_many_streams", f"there are {self._limits.streams} streams already"
        others = set(self._fed_by.get(name, {})) - {announcement.mote}
        if stream.schema not in {None, announcement.stream} and others:
            return "schema", (
                f"mote {announcement.mote!r} gives stream {name!r} other fields than {min(others)!r} does"
            )
        return None

    def _keeps_time(self, stream: str, but: str) -> str | None:
        """Return a mote that feeds a stream by the time of day; None if none but the one named is heard."""
        feeding = self._fed_by.get(stream, {}).values()
        return min((each.mote for each in feeding if each.mote != but and each.keeps_time), default=None)

    def _join_stream(self, stream: StreamState, name: str, mote: MoteTracking) -> None:
        feeding = self._fed_by.setdefault(name, {})
        feeding[mote.mote] = mote
        stream.fed_by(len(feeding))

    def _leave_stream(self, mote: MoteTracking) -> None:
        if mote.announcement is not None:
            name = mote.announcement.stream.name
            self._fed_by.get(name, {}).pop(mote.mote, None)
            self.streams[name].touched = True

    def _apply_demand(
        self, stream: StreamState, mote: MoteTracking, radio_us: int, *, reluctantly: bool = False
    ) -> list[FleetInstruction]:
        """Give a mote its program; reluctantly only if it has none that costs about as little."""
        announcement = mote.announcement
        if announcement is None:
            return []
        traits = traits_of(announcement, self._abilities_of(announcement.mote))
        known = len(stream.merger.left_out)
        merged = stream.merger.merge(traits, announcement.properties)
        name = announcement.stream.name
        remember: list[FleetInstruction] = [
            RefuseDemand(name, each) for each in list(stream.merger.left_out.values())[known:]
        ]
        if reluctantly and merged.program != mote.desired:
            now_mw = draw_of(mote.desired, traits, stream.observed)
            if merged.milliwatts > now_mw * _WORTH_A_CHANGE:
                return remember
        if (name, merged.program) not in self._remembered:
            self._remembered.add((name, merged.program))
            remember.append(RememberProgram(merged.program, name, merged.reason))
        answered = merged if merged.needs else None
        watermark_us = stream.progress.watermark_us
        changes = mote.handle(DemandChanged(merged.program, radio_us, answered, traits, watermark_us))
        return remember + [ForMote(mote.mote, each) for each in changes]
