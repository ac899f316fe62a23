"""The queue of accepted tuples of a stream, and the batches that are cut from it. Pure.

**The stamps of published tuples in batches: of each new one, its neighbours among those of its mote before.**

A query takes the first tuple of each of its periods, and there may be queries with any period, now or over history. So
each published tuple is stored with the nearest stamps around it, among the tuples of its mote that were stored before::

    arrives    10    14    25    12                        previous 10, next 14: it is the first of no period
    stored     10    14    25                              of 10; of 2 it is: 10 // 2 < 12 // 2 < 14 // 2

Only those stamps are kept that a later tuple may lie next to: none is accepted that is stamped before the stream's low
watermark, and none comes that is stamped before the mote's own.

The queue is bounded: when the spool is full or its disk is slow, the oldest waiting tuples are dropped and counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from protocols.wire.batches import (
    COMPLETENESS_FIELDS,
    COVERED_BY_COLUMN,
    FINGERPRINT_COLUMN,
    NO_NEIGHBOUR_US,
    PANE_COLUMN,
    PUBLISHED_FIELDS,
    SAMPLES_COLUMN,
    Batch,
    Column,
    Order,
    aggregate_columns,
    make_column,
    make_columns,
)
from protocols.wire.frames import VERSION, Value
from protocols.wire.streams import FieldType, StreamSchema
from proxy.records.waiting_tuples import Aggregated, MotePosition, PacketTuples, TupleSize, WaitingTuple

MOST_STAMPS = 10_000
"""Of a mote. If more may lie next to later tuples, the older half is forgotten, and tuples from before are late."""
NO_STAMPS: Mapping[str, Iterable[int]] = MappingProxyType({})


class KeptStamps(NamedTuple):
    """The stamps of one mote, to be stored with the batch whose tuples have them.

    Parameters
    ----------
    mote
        Which mote.
    since_us
        Earlier ones are forgotten.
    stamps_us
        New ones, ascending.
    """

    mote: str
    since_us: int
    stamps_us: tuple[int, ...]


class StampNeighbours(NamedTuple):
    """The neighbours of the tuples of a batch, in the order of its packets; None twice for one that is not published.

    Parameters
    ----------
    previous_us, next_us
        As in :data:`protocols.wire.batch_columns.PREVIOUS_COLUMN` and `NEXT_COLUMN`.
    """

    previous_us: list[int | None]
    next_us: list[int | None]


class StoredStamps:
    """The stamps of the motes of one stream.

    Parameters
    ----------
    known
        By mote: those that were stored before a restart.
    most
        Of a mote that are kept.
    """

    def __init__(self, known: Mapping[str, Iterable[int]] = NO_STAMPS, *, most: int = MOST_STAMPS) -> None:
        self._most = most
        self._of = {mote: sorted(set(stamps)) for mote, stamps in known.items()}
        """By mote, ascending. The lowest instant stands for "none before", and is forgotten as any other stamp."""
        self._floors = {mote: stamps[1] for mote, stamps in self._of.items() if len(stamps) > most // 2}

    def of(self, mote: str) -> tuple[int, ...]:
        """Return the stamps of a mote that are kept, ascending; the lowest instant first if none came before."""
        return tuple(self._of.get(mote, ()))

    def floor_us(self, mote: str) -> int | None:
        """Return the instant before which no tuple of a mote can be accepted any more; None for no such instant."""
        return self._floors.get(mote) if self._floors else None

    def neighbours_of(self, packets: Iterable[PacketTuples]) -> StampNeighbours:
        """Return the neighbours of the tuples of a batch, and keep their stamps."""
        found = StampNeighbours([], [])
        for packet in packets:
            extras = packet.aggregated
            if not packet.published:
                for column in found:
                    column.extend([None] * len(packet.starts_us))
            elif not extras:
                self._add(packet.mote, packet.starts_us, found)
            else:
                for start_us, extra in zip(packet.starts_us, extras, strict=True):
                    if extra is None or extra.fingerprint is None:
                        self._add(packet.mote, (start_us,), found)
                    else:
                        found.previous_us.append(None)
                        found.next_us.append(None)
        return found

    def keep(
        self, packets: Iterable[PacketTuples], since_us: Callable[[str], int | None] | None
    ) -> tuple[KeptStamps, ...]:
        """Return what of the stamps of a batch is to be stored, and forget what no later tuple can lie next to.

        Parameters
        ----------
        packets
            Those of the batch.
        since_us
            Returns the instant before which no later tuple of a mote is stamped, None if that is not known; None while
            tuples wait that are older than the motes promise.
        """
        new: dict[str, list[int]] = {}
        for packet in packets:
            if packet.published and (stamps_us := packet.samples_us):
                new.setdefault(packet.mote, []).extend(stamps_us)
        kept: list[KeptStamps] = []
        for mote, stamps in new.items():
            known = self._of[mote]
            if since_us is not None:
                self._forget(mote, known, since_us(mote))
            first_us = known[0]
            if first_us == NO_NEIGHBOUR_US:
                stamps.append(first_us)
            ascending = sorted(set(stamps))
            kept.append(KeptStamps(mote, first_us, tuple(ascending[bisect_left(ascending, first_us) :])))
        return tuple(kept)

    def _add(self, mote: str, starts_us: Sequence[int], found: StampNeighbours) -> None:
        """Add the neighbours of tuples of a mote, which come in this order."""
        known = self._of.get(mote)
        if known is None:
            known = self._of[mote] = [NO_NEIGHBOUR_US]
        previous_us, next_us = found
        for start_us in starts_us:
            last_us = known[-1]
            if start_us >= last_us:  # as nearly all do
                previous_us.append(last_us)
                next_us.append(None)
                if start_us > last_us:
                    known.append(start_us)
                continue
            place = bisect_right(known, start_us)
            # Where earlier stamps are not known any more, no tuple may count as the first of a period: others may have.
            previous_us.append(known[place - 1] if place else start_us)
            next_us.append(known[place])
            if not (place and known[place - 1] == start_us):
                known.insert(place, start_us)

    def _forget(self, mote: str, known: list[int], since_us: int | None) -> None:
        """Forget the stamps of a mote before an instant, except for the last of them."""
        if since_us is not None:
            _forget_before(known, since_us)
            if self._floors and self._floors.get(mote, since_us) < since_us:
                del self._floors[mote]
        if len(known) > self._most:
            floor_us = self._floors[mote] = known[-(self._most // 2)]
            _forget_before(known, floor_us)


def _forget_before(known: list[int], since_us: int) -> None:
    place = bisect_left(known, since_us)
    if place > 1:
        del known[: place - 1]


Instants = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CutBatch:
    """A batch that is complete but not yet encoded.

    Parameters
    ----------
    schema
        Of its stream.
    sequence
        Its number.
    watermark_us, sampling
        As in :class:`protocols.wire.batches.Batch`.
    packets
        Their tuples, in the order in which they came.
    neighbours
        Of published tuples; None if there are none among them.
    stamps
        To be stored with them.
    with_next
        Whether it is to be stored together with the next batch: it has counts of samples in panes that end behind its
        own low watermark, which a restart that found one without the other would count again.
    """

    schema: StreamSchema
    sequence: int
    watermark_us: int
    sampling: bool
    packets: tuple[PacketTuples, ...] = ()
    neighbours: StampNeighbours | None = None
    stamps: tuple[KeptStamps, ...] = ()
    with_next: bool = False

    @property
    def rows(self) -> int:
        """How many tuples it has."""
        return sum(map(len, self.packets))

    @property
    def tuples(self) -> tuple[WaitingTuple, ...]:
        """Its tuples, in stamp order."""
        return tuple(sorted(chain.from_iterable(self.packets), key=attrgetter("start_us")))

    @property
    def positions(self) -> dict[str, MotePosition]:
        """The last packet of each mote that is part of this batch."""
        latest: dict[str, PacketTuples] = {}
        for each in self.packets:
            if each.boot < 0:
                continue  # the mote has announced itself and never sent a packet
            before = latest.get(each.mote)
            if before is None or (before.boot, before.sequence) < (each.boot, each.sequence):
                latest[each.mote] = each
        return {mote: each.position for mote, each in latest.items()}

    def as_batch(self, proxy: str, epoch: str) -> Batch:
        """Return the frame, with the tuples in stamp order."""
        packets, width = self.packets, len(self.schema.fields)
        starts_us = np.array(list(chain.from_iterable([each.starts_us for each in packets])), np.int64)
        # All values in one list, row by row: those of one field are then `width` places apart.
        values = list(chain.from_iterable(chain.from_iterable([each.rows for each in packets])))
        order = stamp_order(starts_us)
        columns = make_columns(
            self.schema,
            starts_us,
            list(chain.from_iterable([(each.mote,) * len(each.starts_us) for each in packets])),
            self._at_default_rate(starts_us),
            {field.name: values[place::width] for place, field in enumerate(self.schema.fields)},
            order=order,
        )
        if any(each.aggregated for each in packets):
            columns += self._aggregate_columns(order)
        if self.neighbours is not None:
            columns += tuple(
                make_column(field.name, field.type, stamps_us, order)
                for field, stamps_us in zip(PUBLISHED_FIELDS, self.neighbours, strict=True)
            )
        return Batch(
            version=VERSION,
            proxy=proxy,
            epoch=epoch,
            stream=self.schema.name,
            sequence=self.sequence,
            watermark_us=self.watermark_us,
            sampling=self.sampling,
            rows=starts_us.size,
            columns=columns,
        )

    def _at_default_rate(self, starts_us: Instants) -> npt.NDArray[np.bool_]:
        """Return which tuples would also have been sampled at their mote's default period.

        Of published tuples: which are the first of it, or have changed in a field of which each change counts.
        """
        packets = self.packets
        if self.neighbours is None and any(each.aggregated for each in packets):
            return np.array([each.at_default_rate for packet in packets for each in packet], np.bool_)
        periods_us = np.array([each.default_period_us for each in packets], np.int64)
        periods_us = periods_us.repeat([len(each.starts_us) for each in packets])
        if self.neighbours is None:
            found: npt.NDArray[np.bool_] = starts_us % periods_us == 0
            return found
        published = np.array([each is not None for each in self.neighbours.previous_us], np.bool_)
        found = np.where(
            published,
            (periods_us == 0) | is_first(starts_us, self.neighbours, periods_us),
            starts_us % np.maximum(periods_us, 1) == 0,
        )
        for is_marked in (_events_of, _aggregates_of):
            if any(map(is_marked, packets)):
                marks = [is_marked(each) or (False,) * len(each.starts_us) for each in packets]
                found |= np.array(list(chain.from_iterable(marks)), np.bool_)
        return found

    def _aggregate_columns(self, order: Order | None) -> tuple[Column, ...]:
        extras = [each.aggregated or _PLAIN for packet in self.packets for each in packet]
        measured = {name for each in extras for name, _ in each.measures}
        by_row = [dict(each.measures) for each in extras]
        values: dict[str, list[Value]] = {
            FINGERPRINT_COLUMN: [each.fingerprint for each in extras],
            COVERED_BY_COLUMN: [each.covered_by for each in extras],
            PANE_COLUMN: [each.pane_us for each in extras],
            SAMPLES_COLUMN: [each.samples for each in extras],
            **{name: [row.get(name) for row in by_row] for name in measured},
        }
        columns = aggregate_columns(self.schema, values, len(extras), order)
        if all(each.expected is None for each in extras):
            return columns
        counts: tuple[list[Value], ...] = ([each.expected for each in extras], [each.missing for each in extras])
        return columns + tuple(
            make_column(field.name, field.type, numbers, order)
            for field, numbers in zip(COMPLETENESS_FIELDS, counts, strict=True)
        )


def _events_of(packet: PacketTuples) -> tuple[bool, ...]:
    """Return which tuples of a packet show a change that counts; nothing if none does."""
    return packet.events


def _aggregates_of(packet: PacketTuples) -> tuple[bool, ...]:
    """Return which tuples of a packet are aggregates or events; nothing if none is."""
    if not packet.aggregated:
        return ()
    return tuple([extra is not None and extra.fingerprint is not None for extra in packet.aggregated])


def is_first(starts_us: Instants, neighbours: StampNeighbours, periods_us: Instants) -> npt.NDArray[np.bool_]:
    """Return which published tuples are the first of their mote in their period: no neighbour lies in it."""
    previous_us, next_us = (
        np.array([NO_NEIGHBOUR_US if each is None else each for each in column], np.int64) for column in neighbours
    )
    periods_us = np.maximum(periods_us, 1)
    periods = starts_us // periods_us
    begins = (previous_us == NO_NEIGHBOUR_US) | (previous_us // periods_us < periods)
    alone = (next_us == NO_NEIGHBOUR_US) | (next_us // periods_us > periods)
    found: npt.NDArray[np.bool_] = begins & alone
    return found


def stamp_order(starts_us: Instants) -> Order | None:
    """Return the places of tuples in stamp order, those of one stamp as they came; None if they are in order."""
    if bool((starts_us[1:] >= starts_us[:-1]).all()):
        return None
    return np.argsort(starts_us, kind="stable")


_PLAIN = Aggregated()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of the queue and of one batch.

    Parameters
    ----------
    waiting
        Tuples of one stream that may wait.
    rows, size_bytes
        Of one batch at most; a single tuple may always be a batch.
    """

    waiting: int = 100_000
    rows: int = 10_000
    size_bytes: int = 4 * 1024 * 1024


@dataclass(slots=True)
class WaitingTuples:
    """The bounded queue of one stream."""

    limits: BatchLimits
    _queue: deque[PacketTuples] = field(default_factory=deque)
    _count: int = 0
    latest_us: int | None = None
    """The latest stamp of the tuples that were added since the last batch; None if there were none."""

    def __len__(self) -> int:
        return self._count

    def add(self, packet: PacketTuples) -> tuple[PacketTuples, ...]:
        """Add the tuples of a packet; return the oldest, which were dropped for them."""
        self._queue.append(packet)
        self._count += len(packet.starts_us)
        latest_us = max(packet.starts_us)
        if self.latest_us is None or latest_us > self.latest_us:
            self.latest_us = latest_us
        excess = self._count - self.limits.waiting
        return tuple(self._drop(excess)) if excess > 0 else ()

    def join(self, packet: PacketTuples) -> None:
        """Add tuples even if the queue is full: the batch is about to be cut."""
        count, rows = len(packet.starts_us), self.limits.rows
        # No more together than fit into a batch: each batch that is cut off looks at all that are together.
        self._queue.extend([packet] if count <= rows else (packet.cut(at, at + rows) for at in range(0, count, rows)))
        self._count += count

    def widen(self, columns: int) -> None:
        """Give the tuples that wait so many further columns, which are NULL."""
        nulls = (None,) * columns
        for place, packet in enumerate(self._queue):
            self._queue[place] = msgspec.structs.replace(packet, rows=tuple([row + nulls for row in packet.rows]))

    def drop_all(self) -> int:
        """Drop all waiting tuples; return how many."""
        count = self._count
        self._queue.clear()
        self._count = 0
        self.latest_us = None
        return count

    def take(self, schema: StreamSchema) -> tuple[PacketTuples, ...]:
        """Remove the tuples of one batch, in order of arrival, and return them; none if none wait."""
        texts = [place for place, each in enumerate(schema.fields) if each.type is FieldType.TEXT]
        size = TupleSize(len(schema.fields), texts)
        rows, size_bytes = self.limits.rows, self.limits.size_bytes
        batch: list[PacketTuples] = []
        while self._queue:
            packet = self._queue.popleft()
            count, packet_bytes = len(packet.starts_us), size.of(packet)
            if count <= rows and packet_bytes <= size_bytes:
                batch.append(packet)
                rows -= count
                size_bytes -= packet_bytes
                continue
            fitting = _fitting(packet, size, rows, size_bytes)
            if not batch:
                fitting = max(fitting, 1)
            if fitting:
                batch.append(packet.cut(0, fitting))
            if fitting < count:
                self._queue.appendleft(packet.cut(fitting, None))
            break
        self._count -= sum(map(len, batch))
        self.latest_us = None
        return tuple(batch)

    def _drop(self, count: int) -> Iterator[PacketTuples]:
        self._count -= count
        while count:
            packet = self._queue.popleft()
            if len(packet) > count:
                self._queue.appendleft(packet.cut(count))
                packet = packet.cut(0, count)
            yield packet
            count -= len(packet)


def _fitting(packet: PacketTuples, size: TupleSize, rows: int, size_bytes: int) -> int:
    """Return how many tuples of a packet have room: `rows` and `size_bytes` are left."""
    for place in range(min(rows, len(packet))):
        size_bytes -= size.of(packet.cut(place, place + 1))
        if size_bytes < 0:
            return place
    return min(rows, len(packet))
