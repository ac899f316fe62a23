"""Tuples between packet and batch: those of one packet stay together until the batch is written. Pure.

**The low watermark of a stream at a proxy: before which instant no further tuple will be forwarded.**

It is the minimum of the low watermarks of all motes that may still deliver, and never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import NamedTuple

import msgspec

from protocols.wire.frames import Value
from protocols.wire.streams import FieldName, StreamSchema

LOWEST_US = -(2**62)
"""The watermark that guarantees nothing."""


class MoteWatermark(msgspec.Struct, frozen=True, gc=False):
    """How one mote bounds the watermark. Each cut needs those of all motes, so it has to be quick to make.

    Parameters
    ----------
    instant_us
        No sample that the mote has still to send is stamped before it; None if the proxy does not know yet, and then
        the watermark does not move.
    """

    instant_us: int | None


def advance(watermark_us: int | None, mote_watermarks: Iterable[MoteWatermark]) -> int | None:
    """Return the new low watermark, once no accepted tuple waits any more.

    Parameters
    ----------
    watermark_us
        The present one; None before the first.
    mote_watermarks
        Of the motes that hold it; without any it does not move.
    """
    lowest: int | None = None
    for each in mote_watermarks:
        if each.instant_us is None:
            return watermark_us
        if lowest is None or each.instant_us < lowest:
            lowest = each.instant_us
    if lowest is None:
        return watermark_us
    return lowest if watermark_us is None else max(lowest, watermark_us)


class Publishing(NamedTuple):
    """How a driven device publishes.

    Parameters
    ----------
    freely
        Whether it does so by its own rules, whatever its program. Otherwise its driver sets how often it reports, and a
        query without SAMPLE reads the first tuple of each default period.
    event_fields
        The fields of which each change counts for a query without SAMPLE.
    """

    freely: bool
    event_fields: tuple[FieldName, ...] = ()


class FieldChanges:
    """The last known values of the fields of one device of which each change counts.

    Parameters
    ----------
    schema
        Of its stream.
    fields
        Which fields; those that the stream lacks are ignored.
    """

    def __init__(self, schema: StreamSchema, fields: Sequence[FieldName]) -> None:
        names = schema.field_names
        self._places = [names.index(each) for each in fields if each in names]
        self._known: dict[int, Value] = {}

    def found_in(self, rows: Sequence[tuple[Value, ...]]) -> tuple[bool, ...]:
        """Return which of these rows, in the order of their arrival, show a change; nothing if none does.

        The first value that is known of a field counts as a change; NULL does not.
        """
        if not self._places:
            return ()
        found = tuple([self._changes(row) for row in rows])
        return found if any(found) else ()

    def _changes(self, row: tuple[Value, ...]) -> bool:
        changed = False
        for place in self._places:
            value = row[place]
            if value is not None and (place not in self._known or self._known[place] != value):
                self._known[place] = value
                changed = True
        return changed


_BYTES_PER_TEXT = 6
"""Of offset and presence, besides the text itself."""
_BYTES_PER_NUMBER = 9
_BYTES_PER_AGGREGATE = 64
_BYTES_PER_PUBLISHED = 2 * _BYTES_PER_NUMBER
"""Of its neighbours' stamps."""


class MotePosition(NamedTuple):
    """The last packet of a mote that was accepted."""

    mote: str
    boot: int
    sequence: int
    clock_us: int


class Aggregated(NamedTuple):
    """The columns of a tuple that is no plain sample; see :func:`protocols.wire.batches.aggregate_fields`."""

    fingerprint: str | None = None
    covered_by: str | None = None
    pane_us: int | None = None
    samples: int | None = None
    measures: tuple[tuple[str, Value], ...] = ()
    """By column."""
    expected: int | None = None
    missing: int | None = None


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
        Whether the mote would have sampled it at its default period too; always true of an aggregate or event. Of a
        published tuple: whether that is so whatever tuples came before it, which is found where its batch is cut.
    aggregated
        None for a sample that counts for every query.
    """

    start_us: int
    values: tuple[Value, ...]
    position: MotePosition
    at_default_rate: bool = True
    aggregated: Aggregated | None = None


class PacketTuples(msgspec.Struct, frozen=True, gc=False):
    """The tuples of one packet, at least one, column by column. It behaves as a sequence of :class:`WaitingTuple`.

    One is made for each packet, and very many may wait. So it is quick to make, and the garbage collector ignores it:
    plain tuples of plain values cannot be part of a cycle. Otherwise collecting garbage would cost a fifth of the
    proxy's time.

    Parameters
    ----------
    mote, boot, sequence, clock_us
        The position of the packet.
    default_period_us
        Of the mote.
    starts_us, rows, aggregated
        As in :class:`WaitingTuple`, one for each tuple; `aggregated` is empty if it is None for all.
    published
        Whether the device stamped them at instants of its own. Then a query without SAMPLE sees the first of each
        default period, and all of a mote whose `default_period_us` is 0.
    events
        Of published tuples: whether a field changed of which each change counts; empty if none did.
    """

    mote: str
    boot: int
    sequence: int
    clock_us: int
    default_period_us: int
    starts_us: tuple[int, ...]
    rows: tuple[tuple[Value, ...], ...]
    aggregated: tuple[Aggregated | None, ...] = ()
    published: bool = False
    events: tuple[bool, ...] = ()

    @classmethod
    def of(cls, tuples: Iterable[WaitingTuple], default_period_us: int = 1) -> PacketTuples:
        """Return samples and aggregates, at least one, of one packet of a mote with this default period."""
        starts_us, rows, positions, _, aggregated = zip(*tuples, strict=True)
        extras = aggregated if any(aggregated) else ()
        mote, boot, sequence, clock_us = positions[0]
        return cls(mote, boot, sequence, clock_us, default_period_us, starts_us, rows, extras)

    @property
    def position(self) -> MotePosition:
        """The position of the packet."""
        return MotePosition(self.mote, self.boot, self.sequence, self.clock_us)

    def __len__(self) -> int:
        return len(self.starts_us)

    def __iter__(self) -> Iterator[WaitingTuple]:
        position, period_us, published = self.position, self.default_period_us, self.published
        extras, events = self.aggregated or repeat(None), self.events or repeat(object=False)
        for start_us, row, extra, event in zip(self.starts_us, self.rows, extras, events, strict=False):
            is_sample = extra is None or extra.fingerprint is None
            at_default_rate = not is_sample or (event or period_us == 0 if published else start_us % period_us == 0)
            yield WaitingTuple(start_us, row, position, at_default_rate, extra)

    @property
    def samples_us(self) -> tuple[int, ...]:
        """The stamps of its samples and published tuples, without those of aggregates and events."""
        if not self.aggregated:
            return self.starts_us
        stamped = zip(self.starts_us, self.aggregated, strict=True)
        return tuple([start_us for start_us, extra in stamped if extra is None or extra.fingerprint is None])

    def cut(self, first: int, end: int | None = None) -> PacketTuples:
        """Return the tuples from `first` up to `end`."""
        part = slice(first, end)
        return msgspec.structs.replace(
            self,
            starts_us=self.starts_us[part],
            rows=self.rows[part],
            aggregated=self.aggregated[part],
            events=self.events[part],
        )

    def since(self, lowest_us: int) -> PacketTuples | None:
        """Return the tuples that are not stamped before an instant; None if there are none."""
        kept = [start_us >= lowest_us for start_us in self.starts_us]
        if not any(kept):
            return None
        extras = tuple(compress(self.aggregated, kept))
        return msgspec.structs.replace(
            self,
            starts_us=tuple(compress(self.starts_us, kept)),
            rows=tuple(compress(self.rows, kept)),
            aggregated=extras if any(extras) else (),
            events=tuple(compress(self.events, kept)),
        )


class TupleSize:
    """How large tuples of a stream are in a batch, at most.

    Parameters
    ----------
    fields, texts
        How many fields the stream has, and the places of those that hold text.
    """

    def __init__(self, fields: int, texts: Sequence[int]) -> None:
        numbers = fields - len(texts)
        self._texts = texts
        # Besides the fields there are the instant, and the mote's name.
        self._fixed = (numbers + 1) * _BYTES_PER_NUMBER + (len(texts) + 1) * _BYTES_PER_TEXT

    def of(self, packet: PacketTuples) -> int:
        """Return the bytes of all tuples of a packet."""
        size_bytes = len(packet.starts_us) * (self._fixed + len(packet.mote))
        if packet.published:
            size_bytes += len(packet.starts_us) * _BYTES_PER_PUBLISHED
        if not self._texts and not packet.aggregated:
            return size_bytes
        for row in packet.rows:
            for place in self._texts:
                text = row[place]
                if isinstance(text, str):
                    size_bytes += len(text) if text.isascii() else len(text.encode())
        for extra in packet.aggregated:
            if extra is not None:
                size_bytes += _BYTES_PER_AGGREGATE + _BYTES_PER_NUMBER * len(extra.measures)
                size_bytes += len(extra.covered_by or "")
        return size_bytes
