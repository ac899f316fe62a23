"""Turns the rows of many batches into one Arrow table, name by name, without the rows that came too late.

Converting costs nearly as much for a row as for a thousand. So batches wait as they came, and all that one commit
stores are converted together, each column by joining its parts of all buffers. Small batches of as many rows, as most
are, are one matrix of bytes, of which a column is a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.ingest.batch_layouts import Layout, stored_fields
from cluster.storage.stream_tables import ARROW_TYPES, arrow_schema
from protocols.wire.batch_columns import few_numbers
from protocols.wire.batches import FEW_ROWS, START_COLUMN, PackedBatch
from protocols.wire.packed_batches import bits_of
from protocols.wire.streams import FieldType, StreamSchema

Octets = npt.NDArray[np.uint8]


class AdmittedRows(NamedTuple):
    """Rows of a batch that wait to be stored.

    Parameters
    ----------
    data
        The buffer of its columns, as it came.
    rows
        How many, of which there is at least one.
    layout
        Where the columns of the stream are.
    not_before_us
        Earlier rows came too late; None if there are none.
    """

    data: bytes
    rows: int
    layout: Layout
    not_before_us: int | None = None


def to_arrow(admitted: Sequence[AdmittedRows], schema: StreamSchema) -> pa.Table:
    """Return rows as one table of the stream's Arrow schema, in the order of the batches and without those too late.

    It has the columns of aggregates, those that count missing samples, or those of published tuples, if any batch has
    them.
    """
    alike: dict[int, list[int]] = {}
    for number, each in enumerate(admitted):
        alike.setdefault(id(each.layout), []).append(number)
    groups = [AlikeBatches([admitted[number] for number in numbers]) for numbers in alike.values()]
    aggregates = any(each.layout.aggregates for each in groups)
    completeness = any(each.layout.completeness for each in groups)
    published = any(each.layout.published for each in groups)
    fields = stored_fields(schema, aggregates=aggregates, completeness=completeness, published=published)
    arrow = arrow_schema(schema, aggregates=aggregates, completeness=completeness, published=published)
    parts = [
        pa.Table.from_arrays([group.array(each.name, each.type) for each in fields], schema=arrow) for group in groups
    ]
    counts = np.array([each.rows for each in admitted], np.int64)
    table = parts[0] if len(parts) == 1 else _in_order(parts, list(chain.from_iterable(alike.values())), counts)
    return _in_time(table, admitted, counts)


class AlikeBatches:
    """Batches with the same columns.

    Parameters
    ----------
    admitted
        At least one, all of one layout.
    """

    def __init__(self, admitted: Sequence[AdmittedRows]) -> None:
        self.layout = admitted[0].layout
        self._buffers = [each.data for each in admitted]
        self._rows = [each.rows for each in admitted]
        self._different = set(self._rows)
        rows = self._rows[0]
        self._matrix: Octets | None = None
        if len(self._different) == 1 and rows <= FEW_ROWS:
            # Many small pieces are cut from a matrix at once; of large ones it would only be another copy.
            size = self.layout.buffer.bytes_before_texts(rows)
            joined = b"".join([each[:size] for each in self._buffers])
            self._matrix = np.frombuffer(joined, np.uint8).reshape(len(self._buffers), size)
        self._counts = np.array(self._rows, np.int64)
        self._ends = np.cumsum(self._counts)
        self._count = int(self._ends[-1])
        self._texts = {text.place: text for text in self._joined_texts()}

    def array(self, name: str, kind: FieldType) -> pa.Array:
        """Return a stored column of all of them, one after another; it is NULL if they do not have it."""
        place = self.layout.places.get(name)
        if place is None:
            return pa.nulls(self._count, ARROW_TYPES[kind])
        missing, present = self._presence(place)
        match kind:
            case FieldType.TEXT:
                text = self._texts[place]
                offsets = np.zeros(self._count + 1, np.int32)
                np.cumsum(text.lengths, out=offsets[1:])
                buffers = [present, pa.py_buffer(offsets), pa.py_buffer(text.of(self._buffers))]
            case FieldType.BOOLEAN:
                buffers = [present, pa.py_buffer(np.packbits(self._values(place), bitorder="little"))]
            case _:
                buffers = [present, pa.py_buffer(self._values(place))]
        return pa.Array.from_buffers(ARROW_TYPES[kind], self._count, buffers, null_count=missing)

    def _values(self, place: int) -> Octets:
        """Return the values of a column, or the lengths of its texts."""
        return self._gathered(partial(self.layout.buffer.values, place))

    def _gathered(self, where: Callable[[int], tuple[int, int]]) -> Octets:
        """Return the same part of each buffer, one after another; `where` says where it is with so many rows."""
        spans = {rows: where(rows) for rows in self._different}
        if self._matrix is not None:
            ((begin, end),) = spans.values()
            return np.ascontiguousarray(self._matrix[:, begin:end]).reshape(-1)
        places = [spans[rows] for rows in self._rows]
        joined = b"".join([data[begin:end] for data, (begin, end) in zip(self._buffers, places, strict=True)])
        return np.frombuffer(joined, np.uint8)

    def _presence(self, place: int) -> tuple[int, pa.Buffer | None]:
        """Return how many rows have NULL in a column, and a bit for each row, if any has."""
        if place not in self.layout.buffer.nullable:
            return 0, None
        bits = self._gathered(partial(self.layout.buffer.presence, place))
        if np.array_equal(bits, self._all_present):
            return 0, None
        there = np.unpackbits(bits, bitorder="little")[self._bits_of_rows]
        missing = self._count - int(np.count_nonzero(there))
        return missing, pa.py_buffer(np.packbits(there, bitorder="little")) if missing else None

    @cached_property
    def _all_present(self) -> Octets:
        """The bits of presence of columns without NULL."""
        of_rows = {rows: bits_of(b"", rows) for rows in self._different}
        return np.frombuffer(b"".join([of_rows[rows] for rows in self._rows]), np.uint8)

    @cached_property
    def _bits_of_rows(self) -> npt.NDArray[np.int64]:
        """Where each row has its bit: those of each batch begin with a byte."""
        bits = 8 * ((self._counts + 7) // 8)
        begins = np.cumsum(bits) - bits - (self._ends - self._counts)
        return np.repeat(begins, self._counts) + np.arange(self._count)

    def _joined_texts(self) -> Iterator[JoinedTexts]:
        """Yield the texts of each column with texts: where they begin depends on those before."""
        before = {rows: self.layout.buffer.bytes_before_texts(rows) for rows in self._different}
        begins = np.array([before[rows] for rows in self._rows], np.int64)
        for place in self.layout.buffer.texts:
            lengths = self._values(place).view("<i4")
            ends = begins + np.add.reduceat(lengths, self._ends - self._counts, dtype=np.int64)
            yield JoinedTexts(place, lengths, begins, ends)
            begins = ends


class JoinedTexts(NamedTuple):
    """The texts of one column of some batches: their lengths, and where they begin and end in each buffer."""

    place: int
    lengths: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def of(self, buffers: Sequence[bytes]) -> bytes:
        """Return the texts, one after another."""
        places = zip(buffers, self.begins.tolist(), self.ends.tolist(), strict=True)
        return b"".join([data[begin:end] for data, begin, end in places])


def _in_order(parts: Sequence[pa.Table], numbers: Sequence[int], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of tables in the order of their batches.

    Parameters
    ----------
    parts
        Each with the rows of some batches.
    numbers
        Of these batches, one part after another.
    counts
        The rows of each batch, by its number.
    """
    begins = np.empty_like(counts)
    begins[numbers] = np.cumsum(counts[numbers]) - counts[numbers]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return pa.concat_tables(parts).take(pa.array(np.repeat(begins, counts) + within)).combine_chunks()


def late_rows(batch: PackedBatch, layout: Layout, schema: StreamSchema, watermark_us: int) -> pa.Table:
    """Return the rows of a batch that are stamped before the watermark."""
    rows = to_arrow([AdmittedRows(batch.data, batch.rows, layout)], schema)
    return rows.filter(pc.less(rows.column(START_COLUMN), pa.scalar(watermark_us, pa.int64())))


def first_and_last(batch: PackedBatch, layout: Layout) -> tuple[int, int]:
    """Return the earliest and the latest stamp of a batch that has rows."""
    rows = batch.rows
    begin = rows * layout.first_stamp
    if rows <= FEW_ROWS:
        few = _few_stamps(rows)(batch.data, begin)
        return min(few), max(few)
    many = np.frombuffer(batch.data, "<i8", rows, begin)
    return int(many.min()), int(many.max())


_few_stamps = few_numbers("q")


def _in_time(table: pa.Table, admitted: Sequence[AdmittedRows], counts: npt.NDArray[np.int64]) -> pa.Table:
    if all(each.not_before_us is None for each in admitted):
        return table
    least = np.iinfo(np.int64).min
    bounds = np.array([least if each.not_before_us is None else each.not_before_us for each in admitted], np.int64)
    return table.filter(pc.greater_equal(table.column(START_COLUMN), pa.array(np.repeat(bounds, counts))))
