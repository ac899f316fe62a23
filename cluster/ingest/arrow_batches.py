"""Turns the rows of many batches into one Arrow table, name by name, without the rows that came too late.

Converting costs nearly as much for a row as for a thousand. So batches wait as they came, and all that one commit
stores are converted together, each column by joining its parts of all buffers. Small batches of as many rows, as most
are, are one matrix of bytes, of which a column is a slice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.ingest.batch_layouts import Layout, stored_fields
from cluster.storage.stream_tables import ARROW_TYPES, arrow_schema
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

    It has the columns of aggregates, or those that count missing samples, if any batch has them.
    """
    alike: dict[int, list[AdmittedRows]] = {}
    for each in admitted:
        alike.setdefault(id(each.layout), []).append(each)
    groups = [AlikeBatches(some) for some in alike.values()]
    aggregates = any(each.layout.aggregates for each in groups)
    completeness = any(each.layout.completeness for each in groups)
    fields = stored_fields(schema, aggregates=aggregates, completeness=completeness)
    arrow = arrow_schema(schema, aggregates=aggregates, completeness=completeness)
    parts = [
        pa.Table.from_arrays([group.array(each.name, each.type) for each in fields], schema=arrow) for group in groups
    ]
    counts = np.array([each.rows for each in admitted], np.int64)
    table = parts[0] if len(parts) == 1 else _in_order(parts, admitted, counts)
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
        self._texts = self._text_places()

    def array(self, name: str, kind: FieldType) -> pa.Array:
        """Return a stored column of all of them, one after another; it is NULL if they do not have it."""
        place = self.layout.places.get(name)
        if place is None:
            return pa.nulls(self._count, ARROW_TYPES[kind])
        missing, present = self._presence(place)
        values = self._gathered(partial(self.layout.buffer.values, place))
        match kind:
            case FieldType.TEXT:
                offsets = np.zeros(self._count + 1, np.int32)
                np.cumsum(values.view("<i4"), out=offsets[1:])
                buffers = [present, pa.py_buffer(offsets), pa.py_buffer(self._text(place))]
            case FieldType.BOOLEAN:
                buffers = [present, pa.py_buffer(np.packbits(values, bitorder="little"))]
            case _:
                buffers = [present, pa.py_buffer(values)]
        return pa.Array.from_buffers(ARROW_TYPES[kind], self._count, buffers, null_count=missing)

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
        return np.frombuffer(b"".join([bits_of(b"", rows) for rows in self._rows]), np.uint8)

    @cached_property
    def _bits_of_rows(self) -> npt.NDArray[np.int64]:
        """Where each row has its bit: those of each batch begin with a byte."""
        bits = 8 * ((self._counts + 7) // 8)
        begins = np.cumsum(bits) - bits - (self._ends - self._counts)
        return np.repeat(begins, self._counts) + np.arange(self._count)

    def _text_places(self) -> dict[int, tuple[list[int], list[int]]]:
        """Return, by column with texts, where its texts begin and end in each buffer."""
        found = dict[int, tuple[list[int], list[int]]]()
        before = {rows: self.layout.buffer.bytes_before_texts(rows) for rows in self._different}
        begins = np.array([before[rows] for rows in self._rows], np.int64)
        for place in self.layout.buffer.texts:
            lengths = self._gathered(partial(self.layout.buffer.values, place)).view("<i4")
            ends = begins + np.add.reduceat(lengths, self._ends - self._counts, dtype=np.int64)
            found[place] = begins.tolist(), ends.tolist()
            begins = ends
        return found

    def _text(self, place: int) -> bytes:
        begins, ends = self._texts[place]
        return b"".join([data[begin:end] for data, begin, end in zip(self._buffers, begins, ends, strict=True)])


def _in_order(parts: Sequence[pa.Table], admitted: Sequence[AdmittedRows], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of tables in the order of their batches; each has those of batches of one layout."""
    groups = {key: number for number, key in enumerate(dict.fromkeys(id(each.layout) for each in admitted))}
    # As they are in the tables: by group, and in each in order.
    numbers = np.argsort([groups[id(each.layout)] for each in admitted], kind="stable")
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


@cache
def _few_stamps(rows: int) -> Callable[[bytes, int], tuple[int, ...]]:
    """Return what reads so many stamps, of which there are few, from some place on."""
    return struct.Struct(f"<{rows}q").unpack_from


def _in_time(table: pa.Table, admitted: Sequence[AdmittedRows], counts: npt.NDArray[np.int64]) -> pa.Table:
    if all(each.not_before_us is None for each in admitted):
        return table
    least = np.iinfo(np.int64).min
    bounds = np.array([least if each.not_before_us is None else each.not_before_us for each in admitted], np.int64)
    return table.filter(pc.greater_equal(table.column(START_COLUMN), pa.array(np.repeat(bounds, counts))))
