"""Accepted tuples wait here, per stream, until they are cut into batches.

The wait is bounded: when the spool is full or its disk is slow, the oldest waiting tuples are dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from protocols.batches import (
    EXCEPT_COLUMN,
    FORM_COLUMN,
    PANE_COLUMN,
    SAMPLES_COLUMN,
    Batch,
    Column,
    aggregate_columns,
    make_columns,
)
from protocols.frames import VERSION, Value
from protocols.streams import FieldType, StreamSchema

_BYTES_PER_TEXT = 6
"""Of offset and presence, besides the text itself."""
_BYTES_PER_NUMBER = 9
_BYTES_PER_AGGREGATE = 64


class MotePosition(NamedTuple):
    """Up to where the packets of a mote have been taken over."""

    mote: str
    boot: int
    sequence: int
    clock_us: int


class Aggregated(NamedTuple):
    """What a tuple is that is no plain sample; see the columns of :func:`protocols.batches.aggregate_fields`."""

    form: str | None = None
    excepted: str | None = None
    pane_us: int | None = None
    samples: int | None = None
    measures: tuple[tuple[str, Value], ...] = ()
    """By column."""


class WaitingTuple(NamedTuple):
    """A tuple, with the packet it came in.

    Parameters
    ----------
    start_us
        Instant of the sample.
    values
        One per field of the stream, in order.
    position
        Of the packet.
    at_default_rate
        Whether the mote would have taken it at its default period too.
    aggregated
        None for a sample that counts for everybody.
    """

    start_us: int
    values: tuple[Value, ...]
    position: MotePosition
    at_default_rate: bool = True
    aggregated: Aggregated | None = None


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
        As in :class:`protocols.batches.Batch`.
    tuples
        In stamp order.
    """

    schema: StreamSchema
    sequence: int
    watermark_us: int
    sampling: bool
    tuples: tuple[WaitingTuple, ...] = ()

    @property
    def positions(self) -> dict[str, MotePosition]:
        """How far each mote has been taken over with this batch."""
        latest: dict[str, MotePosition] = {}
        for each in self.tuples:
            before = latest.get(each.position.mote)
            if before is None or before[:3] < each.position[:3]:
                latest[each.position.mote] = each.position
        return latest

    def as_batch(self, proxy: str, epoch: str) -> Batch:
        """Return the frame."""
        fields = self.schema.fields
        by_field = zip(*(each.values for each in self.tuples), strict=True) if self.tuples else ((),) * len(fields)
        columns = make_columns(
            self.schema,
            [each.start_us for each in self.tuples],
            [each.position.mote for each in self.tuples],
            [each.at_default_rate for each in self.tuples],
            {field.name: values for field, values in zip(fields, by_field, strict=True)},
        )
        if any(each.aggregated is not None for each in self.tuples):
            columns += self._aggregate_columns()
        return Batch(
            version=VERSION,
            proxy=proxy,
            epoch=epoch,
            stream=self.schema.name,
            sequence=self.sequence,
            watermark_us=self.watermark_us,
            sampling=self.sampling,
            rows=len(self.tuples),
            columns=columns,
        )

    def _aggregate_columns(self) -> tuple[Column, ...]:
        told = [each.aggregated or _PLAIN for each in self.tuples]
        measured = {name for each in told for name, _ in each.measures}
        by_row = [dict(each.measures) for each in told]
        values: dict[str, list[Value]] = {
            FORM_COLUMN: [each.form for each in told],
            EXCEPT_COLUMN: [each.excepted for each in told],
            PANE_COLUMN: [each.pane_us for each in told],
            SAMPLES_COLUMN: [each.samples for each in told],
            **{name: [row.get(name) for row in by_row] for name in measured},
        }
        return aggregate_columns(self.schema, values, len(told))


_PLAIN = Aggregated()


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much waits and how much makes a batch.

    Parameters
    ----------
    waiting
        Tuples of one stream that may wait.
    rows, size_bytes
        Of one batch at most; a single tuple is always taken.
    """

    waiting: int = 100_000
    rows: int = 10_000
    size_bytes: int = 4 * 1024 * 1024


@dataclass(slots=True)
class WaitingTuples:
    """The bounded queue of one stream."""

    limits: BatchLimits
    dropped: int = 0
    _queue: deque[WaitingTuple] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, tuples: Iterable[WaitingTuple]) -> int:
        """Let tuples wait; return how many of the oldest were dropped for them."""
        self._queue.extend(tuples)
        excess = max(0, len(self._queue) - self.limits.waiting)
        for _ in range(excess):
            self._queue.popleft()
        self.dropped += excess
        return excess

    def give_up(self) -> int:
        """Drop all that waits; return how many."""
        count = len(self._queue)
        self._queue.clear()
        self.dropped += count
        return count

    def take(self, schema: StreamSchema) -> tuple[WaitingTuple, ...]:
        """Take the tuples of one batch, in stamp order; none if none wait."""
        rows = min(len(self._queue), self.limits.rows)
        texts = [place for place, each in enumerate(schema.fields) if each.type is FieldType.TEXT]
        fixed_bytes = sum(
            _BYTES_PER_TEXT if each.type is FieldType.TEXT else _BYTES_PER_NUMBER for each in schema.fields
        )
        size_bytes = 0
        taken: list[WaitingTuple] = []
        while len(taken) < rows:
            values = self._queue[0].values
            size_bytes += fixed_bytes + _BYTES_PER_NUMBER + _BYTES_PER_TEXT + len(self._queue[0].position.mote)
            for place in texts:
                text = values[place]
                if isinstance(text, str):
                    size_bytes += len(text.encode())
            aggregated = self._queue[0].aggregated
            if aggregated is not None:
                size_bytes += _BYTES_PER_AGGREGATE + _BYTES_PER_NUMBER * len(aggregated.measures)
                size_bytes += len(aggregated.excepted or "")
            if taken and size_bytes > self.limits.size_bytes:
                break
            taken.append(self._queue.popleft())
        taken.sort(key=attrgetter("start_us"))
        return tuple(taken)
