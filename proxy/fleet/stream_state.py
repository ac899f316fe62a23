"""One stream at its proxy: schema, demand, waiting tuples, low watermark and batch numbers. Pure.

**Whether all motes have come as far as the latest tuple that waits: then its batch gains nothing by waiting on.**

    motes of one rate sample at the same instants    12:00:01   a  b  c  d     the latest waits since b; when d comes,
                                                                |  |     |     nothing stamped 12:00:01 can follow

The low watermark moves only where a batch is cut; both are sent together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING

from protocols.acquisition.merging import MergedProgram, Merger
from protocols.acquisition.needs import FoldedDemands, needs_of
from protocols.acquisition.observed import Observed
from protocols.acquisition.program_reports import ProgramStyle
from protocols.acquisition.search import Searches
from protocols.wire.demands import RefusedDemand, StreamDemand
from protocols.wire.frames import Value
from protocols.wire.programs import SECOND_US, publishing_program
from protocols.wire.streams import FieldType, StreamSchema
from proxy.fleet.batching import BatchLimits, CutBatch, StoredStamps, WaitingTuples
from proxy.fleet.merging_task import MergingTask, SensorKind
from proxy.motes.mote_entries import PUBLISHES
from proxy.motes.mote_presence import PROMISE_EVERY_US
from proxy.records.waiting_tuples import LOWEST_US, MoteWatermark, PacketTuples, advance

if TYPE_CHECKING:
    from proxy.motes.mote_tracking import MoteTracking


class Stragglers:
    """Remembers one mote that has not come far enough, so that most questions cost one look."""

    def __init__(self) -> None:
        self._latest_us: int | None = None
        self._to_ask: list[MoteTracking] = []

    def any_behind(self, motes: Collection[MoteTracking], latest_us: int) -> bool:
        """Return whether a mote may still send a tuple stamped `latest_us` or earlier.

        A mote that has come this far is not looked at again: if it falls back with a new program, it is missed.

        Parameters
        ----------
        motes
            All that feed the stream.
        latest_us
            The stamp of the latest tuple that waits.
        """
        if self._to_ask and _is_behind(self._to_ask[-1], latest_us):
            return True
        if latest_us != self._latest_us:
            self._latest_us = latest_us
            self._to_ask = list(motes)
        while self._to_ask:
            if _is_behind(self._to_ask[-1], latest_us):
                return True
            self._to_ask.pop()
        return False

    def forget(self) -> None:
        """Begin anew: the tuples that waited are in a batch, or the motes are others."""
        self._latest_us, self._to_ask = None, []


def furthest_behind(
    motes: Iterable[MoteTracking], restored_us: int | None, delay_of: Callable[[str], int | None]
) -> MoteTracking | None:
    """Return the mote that holds the low watermark of a stream; if none does, the silent mote furthest behind, if any.

    Parameters
    ----------
    motes
        All that feed the stream.
    restored_us, delay_of
        See :meth:`MoteTracking.while_silent`.
    """
    holding: list[tuple[int, int, MoteTracking]] = []
    silent: list[tuple[int, int, MoteTracking]] = []
    for mote in motes:
        watermark = mote.watermark
        if watermark is not None:
            instant_us = LOWEST_US if watermark.instant_us is None else watermark.instant_us
            holding.append((instant_us, mote.received_radio_us, mote))
        elif mote.silent and (found := mote.while_silent(restored_us, delay_of(mote.mote))) is not None:
            silent.append((found.clock_us - found.radio_us - found.age_us, mote.received_radio_us, mote))
    found_first = min(holding or silent, key=itemgetter(0, 1), default=None)
    return None if found_first is None else found_first[-1]


def _is_behind(mote: MoteTracking, latest_us: int) -> bool:
    watermark = mote.watermark
    return watermark is not None and (watermark.instant_us is None or watermark.instant_us <= latest_us)


KEEPALIVE_AFTER_US = 10 * SECOND_US
"""While motes sample, a batch is sent at least this often, if need be an empty one: slow motes are no dead proxy."""
OBSERVE_EVERY = 8
"""Values are observed in one packet of a mote out of this many."""
EVERY_TUPLE_US = 0
"""The period of a query without SAMPLE that reads a device which publishes by its own rules."""
_ENOUGH_MOTES = 16
"""Motes with which values of every such packet are observed. Where more feed a stream, fewer packets of each are."""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The state of a stream when its last batch was spooled."""

    stream: str
    sequence: int = 0
    watermark_us: int | None = None
    sampling: bool = False


@dataclass(slots=True)
class StreamState:
    """The state of one stream.

    Parameters
    ----------
    progress
        From before a restart.
    limits
        Of waiting tuples and batches.
    proxy
        Name of the proxy whose motes feed it.
    schema
        None until a mote announces the stream.
    style
        The deployer's choices about sampling programs.
    observed
        The values observed in it; the cost of a program depends on them.
    changed
        Whether something has happened that may be worth a cut.
    observe_every
        Values are observed in one packet of a mote out of this many.
    stamps
        Of the published tuples that are in its batches.
    """

    progress: StreamProgress
    limits: BatchLimits
    proxy: str
    schema: StreamSchema | None = None
    style: ProgramStyle = field(default_factory=ProgramStyle)
    observed: Observed = field(default_factory=Observed)
    merger: Merger = field(init=False)
    changed: bool = True
    observe_every: int = OBSERVE_EVERY
    restored_us: int | None = field(init=False)
    """The low watermark from before a restart."""
    stamps: StoredStamps = field(default_factory=StoredStamps)
    _published_waits: bool = False
    _of_publishers: dict[tuple[int, ...], MergedProgram] = field(default_factory=dict)
    """By the places of the demands that concern a device: what queries need of one that publishes by its own rules."""
    _waiting: WaitingTuples = field(init=False)
    _stragglers: Stragglers = field(default_factory=Stragglers)
    _demand: StreamDemand | None = None
    _unreadable: tuple[RefusedDemand, ...] = ()
    _cut_us: int | None = None
    _promised_us: int | None = None
    """Radio clock when the last promise was made in place of silent motes."""
    _counted_panes_us: frozenset[int] = frozenset()
    _counted_since_us: dict[str, int] = field(default_factory=dict)
    _looks_at_changes: bool = False
    """Whether a query needs changes only: then values are compared across packets, too, which may hold one each."""
    _latest: dict[str, tuple[int, tuple[Value, ...]]] = field(default_factory=dict)
    """By mote: the number of a packet whose next one is observed, and the values of its last sample."""

    def __post_init__(self) -> None:
        self.restored_us = self.progress.watermark_us
        self._waiting = WaitingTuples(self.limits)
        self.merger = Merger(FoldedDemands(), self.style, self.observed)

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.progress.stream

    @property
    def watermark_us(self) -> int | None:
        """The low watermark that the batches cut so far carry; None before the first."""
        return self.progress.watermark_us

    @property
    def waiting(self) -> int:
        """Tuples that wait for the next batch."""
        return len(self._waiting)

    def is_complete(self, motes: Collection[MoteTracking]) -> bool:
        """Return whether tuples wait, and none of these motes may still send one that belongs before the latest.

        Parameters
        ----------
        motes
            All that feed the stream.
        """
        latest_us = self._waiting.latest_us
        return latest_us is not None and not self._stragglers.any_behind(motes, latest_us)

    @property
    def nearly_full(self) -> bool:
        """Whether more than half of the tuples that may wait do."""
        return len(self._waiting) + self.limits.waiting // 2 > self.limits.waiting

    @property
    def demand_epoch(self) -> int:
        """The plan epoch of the last demand; 0 before the first."""
        return 0 if self._demand is None else self._demand.epoch

    @property
    def rejected_demands(self) -> tuple[RefusedDemand, ...]:
        """Demands of queries that are not answered now."""
        return (*self._unreadable, *self.merger.demands.refused, *self.merger.left_out.values())

    @property
    def is_demanded(self) -> bool:
        """Whether a query reads it."""
        return bool(self._unreadable) or (self._demand is not None and bool(self._demand.demands))

    def promise_due(self, now_us: int) -> bool:
        """Return whether its time may go on while no mote samples: a query reads it, and the last promise is old."""
        if self.watermark_us is None or not self.is_demanded:
            return False
        return self._promised_us is None or now_us - self._promised_us >= PROMISE_EVERY_US

    def promised(self, now_us: int) -> None:
        """Note that it was decided what the proxy promises in place of silent motes, if anything."""
        self._promised_us = now_us

    def note_change(self) -> None:
        """Note an event that may justify cutting a batch."""
        self.changed = True

    def enqueue(self, packet: PacketTuples) -> tuple[PacketTuples, ...]:
        """Let the tuples of a packet wait for the next batch; return the old ones that were dropped for them."""
        self.changed = True
        if packet.published:
            self._published_waits = True
        return self._waiting.add(packet)

    def accepted_from_us(self, mote: str) -> int | None:
        """Return the instant before which the tuples of a mote are late; None if none are."""
        watermark_us, floor_us = self.progress.watermark_us, self.stamps.floor_us(mote)
        return watermark_us if floor_us is None else max(floor_us, LOWEST_US if watermark_us is None else watermark_us)

    def extend_schema(self, schema: StreamSchema) -> None:
        """Give the tuples that wait the columns that the schema gets behind its own."""
        if self.schema is not None:
            self._waiting.widen(len(schema.fields) - len(self.schema.fields))

    def drop_waiting(self) -> int:
        """Drop the tuples that wait, as when the schema changes under them; return how many."""
        return self._waiting.drop_all()

    def observes(self, packet: PacketTuples) -> bool:
        """Return whether the values of a packet are to be observed."""
        place = packet.sequence % self.observe_every
        if place == self.observe_every - 1 and self._looks_at_changes:
            self._latest[packet.mote] = packet.sequence, packet.rows[-1]
        return place == 0 and self.schema is not None

    def observe(self, packet: PacketTuples) -> None:
        """Observe the values of a packet from which no sample was filtered out."""
        tuples = tuple(packet)
        number, latest = self._latest.pop(packet.mote, (-1, ()))
        if number + 1 != packet.sequence or self.schema is None or len(latest) != len(self.schema.fields):
            latest = ()
        for place, each in enumerate(() if self.schema is None else self.schema.fields):
            if each.fixed or (each.type is FieldType.TEXT and not self._looks_at_changes):
                continue
            before = latest[place] if latest else None
            for sample in tuples:
                value = sample.values[place]
                if value is None or not (sample.aggregated is None or sample.aggregated.fingerprint is None):
                    continue
                if isinstance(value, str):
                    if before is not None:
                        self.observed.see(each.name, float(value != before), 0.0)
                else:
                    known = None if before is None or isinstance(before, str) else float(before)
                    self.observed.see(each.name, float(value), known)
                before = value

    def set_mote_count(self, motes: int) -> None:
        """Set how many motes feed the stream."""
        self.observe_every = max(OBSERVE_EVERY, motes // _ENOUGH_MOTES)

    def set_demand(
        self,
        demand: StreamDemand | None,
        unreadable: tuple[RefusedDemand, ...] = (),
        merging: MergingTask | None = None,
    ) -> tuple[RefusedDemand, ...]:
        """Set the demand on this stream, None for none; return the demands that cannot be answered or read.

        Parameters
        ----------
        demand, unreadable
            The demand, and those that could not be decoded.
        merging
            In which this demand has been merged, if it has.
        """
        self._demand = demand
        self._unreadable = unreadable
        fits = merging is not None and merging.demand is demand and merging.schema == self.schema
        return (*unreadable, *self._fold(merging if fits else None))

    def merging(self, demand: StreamDemand | None, kinds: Iterable[SensorKind]) -> MergingTask:
        """Return the task of merging a demand on this stream for kinds of sensors."""
        known = self.merger.searches
        searches = Searches(self.style, self.observed) if known.outdated(self.observed) else known
        return MergingTask(self.proxy, self.schema, demand, searches, self.merger, tuple(kinds))

    def merging_again(self, kinds: Iterable[SensorKind]) -> MergingTask:
        """Return the task of merging the present demand by the values observed until now."""
        searches = Searches(self.style, self.observed)
        return MergingTask(self.proxy, self.schema, self._demand, searches, self.merger, tuple(kinds))

    def set_schema(self, schema: StreamSchema) -> tuple[RefusedDemand, ...]:
        """Set the stream's schema; return the demands that cannot be answered with it."""
        self.schema = schema
        return self._fold()

    def needs_of_publisher(self, properties: Mapping[str, Value]) -> MergedProgram | None:
        """Return what queries need of a device that publishes by its own rules; None if no query reads the stream.

        Its tuples are wanted whatever a query demands of its stream, as they are published anyway.
        """
        demands, schema = self.merger.demands, self.schema
        if schema is None or not demands.classes:
            return None
        concerning = demands.concerning(properties)
        found = self._of_publishers.get(concerning)
        if found is None:
            needs = needs_of([demands.classes[place] for place in concerning], schema, EVERY_TUPLE_US)
            merged = MergedProgram(publishing_program(schema), PUBLISHES, needs=tuple(needs.items()))
            found = self._of_publishers[concerning] = merged
        return found

    def replan(self, merging: MergingTask) -> bool:
        """Let the next programs be those of a task; return False if demand or schema have changed meanwhile."""
        if merging.demand is not self._demand or merging.schema != self.schema:
            return False
        self.merger = merging.merger
        return True

    def counted_until(self, mote_watermarks: Sequence[MoteWatermark]) -> int | None:
        """Return where the next cut will move the low watermark, if panes in which samples are counted end by then."""
        if not self._counted_panes_us:
            return None
        before_us, after_us = self.watermark_us, advance(self.watermark_us, mote_watermarks)
        if after_us is None or before_us == after_us:
            return None
        ended = before_us is None or any(before_us // each != after_us // each for each in self._counted_panes_us)
        return after_us if ended else None

    def counted_since(self, began: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
        """Return, by fingerprint, from when on the first of the stream's motes is due to take samples.

        Parameters
        ----------
        began
            The same of each mote.
        """
        found = self._counted_since_us
        new: dict[str, int] = {}
        for each in began:
            for fingerprint, since_us in each.items():
                if fingerprint not in found:
                    new[fingerprint] = min(since_us, new.get(fingerprint, since_us))
        found.update(new)
        return found

    def cut(
        self,
        mote_watermarks: Iterable[MoteWatermark],
        now_us: int,
        counts: Iterable[PacketTuples] = (),
        *,
        promise_us: int | None = None,
        promise_of: Callable[[str], int | None] = lambda _: None,
    ) -> list[CutBatch]:
        """Return the next batches: all waiting tuples, and the low watermark that the last batch carries.

        Parameters
        ----------
        mote_watermarks
            Of the motes that hold the low watermark.
        now_us
            Of a clock that never goes back.
        counts
            Counts of samples, to be sent with the waiting tuples.
        promise_us
            What the proxy promises in place of silent motes, while no mote holds the low watermark; None for nothing.
        promise_of
            Returns the low watermark of a mote; None if it is not known.
        """
        samples = len(self._waiting)
        for each in counts:
            self._waiting.join(each)
        counted = len(self._waiting) - samples
        schema = self.schema
        if schema is None:
            return []
        self.changed = False
        self._stragglers.forget()
        held_by = list(mote_watermarks)
        before = self.progress
        sampling = bool(held_by)
        batches: list[CutBatch] = []
        while True:
            packets = self._waiting.take(schema)
            last = not self._waiting
            watermark_us = before.watermark_us
            if last and (held_by or promise_us is None):
                watermark_us = advance(watermark_us, held_by)
            elif last:
                watermark_us = advance(watermark_us, [MoteWatermark(promise_us)])
            if not packets and not self._worth_sending(watermark_us, sampling=sampling, now_us=now_us):
                break
            self.progress = StreamProgress(schema.name, self.progress.sequence + 1, watermark_us, sampling)
            sent_us = LOWEST_US if watermark_us is None else watermark_us
            with_next = 0 < len(self._waiting) < counted  # counts wait behind all samples
            batch = CutBatch(schema, self.progress.sequence, sent_us, sampling, packets, with_next=with_next)
            batches.append(self._with_neighbours(batch, promise_of if last else None))
            self._cut_us = now_us
            if last:
                self._published_waits = False
                break
        return batches

    def _with_neighbours(self, batch: CutBatch, promise_of: Callable[[str], int | None] | None) -> CutBatch:
        """Return a batch with the neighbours of its published tuples; `promise_of` is None while tuples wait."""
        if not (self._published_waits and any(each.published for each in batch.packets)):
            return batch
        neighbours = self.stamps.neighbours_of(batch.packets)

        def since_us(mote: str) -> int:
            promise_us = None if promise_of is None else promise_of(mote)
            return batch.watermark_us if promise_us is None else max(promise_us, batch.watermark_us)

        stamps = self.stamps.keep(batch.packets, None if promise_of is None else since_us)
        return replace(batch, neighbours=neighbours, stamps=stamps)

    def due(self, now_us: int) -> bool:
        """Whether cutting a batch may be worthwhile: something happened, or nothing did for a long time."""
        return self.changed or (self.progress.sampling and self._keepalive_due(now_us))

    def _worth_sending(self, watermark_us: int | None, *, sampling: bool, now_us: int) -> bool:
        """Return whether a batch without tuples is worth sending."""
        if watermark_us is None or (self.progress.sequence == 0 and not sampling):
            return False
        if watermark_us != self.progress.watermark_us or sampling != self.progress.sampling:
            return True
        return sampling and self._keepalive_due(now_us)

    def _keepalive_due(self, now_us: int) -> bool:
        return self._cut_us is not None and now_us - self._cut_us >= KEEPALIVE_AFTER_US

    def _fold(self, merging: MergingTask | None = None) -> tuple[RefusedDemand, ...]:
        task = merging or self.merging(self._demand, ())
        self.merger = task.merger
        self._of_publishers.clear()
        folded = self.merger.demands
        counted = [each.demand.completeness for each in folded.classes if each.demand.completeness is not None]
        self._counted_panes_us = frozenset(each.pane_us for each in counted)
        self._looks_at_changes = any(each.demand.silence_us for each in folded.classes)
        if not self._looks_at_changes:
            self._latest.clear()
        fingerprints = {each.fingerprint for each in counted}
        self._counted_since_us = {
            fingerprint: at for fingerprint, at in self._counted_since_us.items() if fingerprint in fingerprints
        }
        return folded.refused
