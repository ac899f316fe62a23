"""One stream at its proxy: schema, demand, waiting tuples, watermark and batch numbers.

Pure. Where a batch is cut, the low watermark moves; both go out together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import FoldedDemands, fold_demands
from protocols.acquisition.observed import Observed
from protocols.acquisition.parts import ProgramStyle
from protocols.wire.demands import RefusedDemand, StreamDemand
from protocols.wire.programs import SECOND_US
from protocols.wire.streams import StreamSchema
from proxy.batching import BatchLimits, CutBatch, WaitingTuples
from proxy.declared_columns import as_offered
from proxy.waiting_tuples import PacketTuples
from proxy.watermarks import LOWEST_US, Promise, advance

REASSURE_AFTER_US = 10 * SECOND_US
"""While motes sample, the cluster hears at least this often that the proxy is there: slow motes are no dead proxy."""


OBSERVES_EVERY = 8
"""One in so many packets of a mote shows what its values are like."""
_ENOUGH_SHOW = 16
"""Motes that do so for each packet in turn. Where many feed a stream, fewer packets of each are looked at."""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """Where a stream stood when its last batch was spooled."""

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
        Whose motes feed it.
    schema
        None until a mote announces the stream.
    style
        What the deployer decides about sampling programs.
    observed
        What values its motes have shown.
    touched
        Whether something has happened that may be worth a cut.
    observes_every
        Of so many packets of a mote, one shows what its values are like.
    """

    progress: StreamProgress
    limits: BatchLimits
    proxy: str
    schema: StreamSchema | None = None
    style: ProgramStyle = field(default_factory=ProgramStyle)
    observed: Observed = field(default_factory=Observed)
    merger: Merger = field(init=False)
    touched: bool = True
    observes_every: int = OBSERVES_EVERY
    _waiting: WaitingTuples = field(init=False)
    _demand: StreamDemand | None = None
    _unreadable: tuple[RefusedDemand, ...] = ()
    _cut_us: int | None = None
    _counted_panes_us: frozenset[int] = frozenset()
    _counted_since_us: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting = WaitingTuples(self.limits)
        self.merger = Merger(FoldedDemands(), self.style, self.observed)

    @property
    def watermark_us(self) -> int | None:
        """What the stream has promised with the batches cut so far."""
        return self.progress.watermark_us

    @property
    def waiting(self) -> int:
        """Tuples that wait for the next batch."""
        return len(self._waiting)

    @property
    def crowded(self) -> bool:
        """Whether more than half of the tuples that may wait do."""
        return len(self._waiting) + self.limits.waiting // 2 > self.limits.waiting

    def accept(self, packet: PacketTuples) -> tuple[PacketTuples, ...]:
        """Let the tuples of a packet wait for the next batch; return the old ones that were dropped for them."""
        self.touched = True
        return self._waiting.add(packet)

    def fed_by(self, motes: int) -> None:
        """Take note of how many motes feed the stream."""
        self.observes_every = max(OBSERVES_EVERY, motes // _ENOUGH_SHOW)

    def demand(
        self, demand: StreamDemand | None, unreadable: tuple[RefusedDemand, ...] = ()
    ) -> tuple[RefusedDemand, ...]:
        """Take the demand on this stream, None for none; return what of it cannot be answered or read."""
        self._demand = demand
        self._unreadable = unreadable
        return (*unreadable, *self._fold())

    @property
    def demand_epoch(self) -> int:
        """The plan epoch of the demand that was taken last; 0 before the first."""
        return 0 if self._demand is None else self._demand.epoch

    @property
    def refused(self) -> tuple[RefusedDemand, ...]:
        """What of the demand is not answered now."""
        return (*self._unreadable, *self.merger.demands.refused, *self.merger.left_out.values())

    def give_up_waiting(self) -> int:
        """Drop the tuples that wait, as when the schema changes under them; return how many."""
        return self._waiting.give_up()

    def describe(self, schema: StreamSchema) -> tuple[RefusedDemand, ...]:
        """Take the stream's schema; return what of the demand cannot be answered with it."""
        self.schema = schema
        return self._fold()

    def weigh_again(self) -> None:
        """Let the next programs be chosen by what has been observed by now."""
        self.merger = Merger(self.merger.demands, self.style, self.observed)

    def counted_until(self, promises: Sequence[Promise]) -> int | None:
        """Return how far the next cut will move the watermark, if panes in which samples are counted end by then."""
        if not self._counted_panes_us:
            return None
        before_us, after_us = self.progress.watermark_us, advance(self.progress.watermark_us, promises)
        if after_us is None or before_us == after_us:
            return None
        ended = before_us is None or any(before_us // each != after_us // each for each in self._counted_panes_us)
        return after_us if ended else None

    def counted_since(self, began: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
        """Return, by form, since when the first of the stream's motes is due to take samples.

        Parameters
        ----------
        began
            What each mote says.
        """
        found = self._counted_since_us
        new: dict[str, int] = {}
        for each in began:
            for form, since_us in each.items():
                if form not in found:
                    new[form] = min(since_us, new.get(form, since_us))
        found.update(new)
        return found

    def cut(self, promises: Iterable[Promise], now_us: int, told: Iterable[PacketTuples] = ()) -> list[CutBatch]:
        """Return the next batches: all waiting tuples, and how far the stream has come with them.

        Parameters
        ----------
        promises
            Of the motes that hold the watermark.
        now_us
            Of a clock that never goes back.
        told
            Tuples to go with them, and not to wait.
        """
        for each in told:
            self._waiting.join(each)
        schema = self.schema
        if schema is None:
            return []
        self.touched = False
        held_by = list(promises)
        before = self.progress
        sampling = bool(held_by)
        batches: list[CutBatch] = []
        while True:
            taken = self._waiting.take(schema)
            last = not self._waiting
            watermark_us = before.watermark_us
            if last:
                watermark_us = advance(watermark_us, held_by)
            if not taken and not self._worth_telling(watermark_us, sampling=sampling, now_us=now_us):
                break
            self.progress = StreamProgress(schema.name, self.progress.sequence + 1, watermark_us, sampling)
            told_us = LOWEST_US if watermark_us is None else watermark_us
            batches.append(CutBatch(schema, self.progress.sequence, told_us, sampling, taken))
            self._cut_us = now_us
            if last:
                break
        return batches

    def due(self, now_us: int) -> bool:
        """Whether a cut may be worth it: something happened, or nothing for a long time."""
        return self.touched or (
            self.progress.sampling and self._cut_us is not None and now_us - self._cut_us >= REASSURE_AFTER_US
        )

    def _worth_telling(self, watermark_us: int | None, *, sampling: bool, now_us: int) -> bool:
        if watermark_us is None or (self.progress.sequence == 0 and not sampling):
            return False
        if watermark_us != self.progress.watermark_us or sampling != self.progress.sampling:
            return True
        return sampling and self._cut_us is not None and now_us - self._cut_us >= REASSURE_AFTER_US

    def _fold(self) -> tuple[RefusedDemand, ...]:
        folded = FoldedDemands()
        if self.schema is not None and self._demand is not None and self._demand.demands:
            asked = as_offered(self._demand, self.schema, self.proxy)
            if isinstance(asked, RefusedDemand):
                folded = FoldedDemands(refused=(asked,))
            else:
                folded = fold_demands(asked.demands, asked.schema)
        self.merger = Merger(folded, self.style, self.observed)
        counted = [each.demand.completeness for each in folded.classes if each.demand.completeness is not None]
        self._counted_panes_us = frozenset(each.pane_us for each in counted)
        forms = {each.form for each in counted}
        self._counted_since_us = {form: at for form, at in self._counted_since_us.items() if form in forms}
        return folded.refused
