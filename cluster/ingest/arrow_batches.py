"""Turns the columns of many batches into one Arrow table, name by name, without the rows that came too late.

Converting costs nearly as much for a row as for a thousand. So batches wait as they came, and all that one commit
stores are converted together, each column by joining the buffers of all batches.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cluster.ingest.batch_layouts import Layout, stored_fields
from cluster.storage.stream_tables import ARROW_TYPES, arrow_schema
from protocols.wire.batches import FEW_ROWS, START_COLUMN, Batch, Column
from protocols.wire.streams import Field, FieldType, StreamSchema

_data_of, _present_of = attrgetter("data"), attrgetter("present")


class AdmittedRows(NamedTuple):
    """Rows of a batch that wait to be stored.

    Parameters
    ----------
    columns
        As they came.
    rows
        How many, of which there is at least one.
    layout
        Where the columns of the stream are.
    not_before_us
        Earlier rows came too late; None if there are none.
    """

    columns: tuple[Column, ...]
    rows: int
    layout: Layout
    not_before_us: int | None = None


def to_arrow(admitted: Sequence[AdmittedRows], schema: StreamSchema) -> pa.Table:
    """Return rows as one table of the stream's Arrow schema, in the order of the batches and without those too late.

    It has the columns of aggregates, or those that count missing samples, if any batch has them.
    """
    aggregates = any(each.layout.aggregates for each in admitted)
    completeness = any(each.layout.completeness for each in admitted)
    fields = stored_fields(schema, aggregates=aggregates, completeness=completeness)
    counts = np.array([each.rows for each in admitted], np.int64)
    arrays = [
        _array(field.type, pieces, counts) for field, pieces in zip(fields, _pieces(admitted, fields), strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(schema, aggregates=aggregates, completeness=completeness))
    return _in_time(table, admitted, counts)


def _pieces(admitted: Sequence[AdmittedRows], fields: Sequence[Field]) -> Iterator[Sequence[Column]]:
    """Yield, for each field, the columns of all batches."""
    layouts = {id(each.layout): each.layout for each in admitted}
    places = {key: [layout.places.get(field.name) for field in fields] for key, layout in layouts.items()}
    if len(layouts) == 1:  # nearly always: many small batches are turned at once
        (where,) = places.values()
        turned = list(zip(*(each.columns for each in admitted), strict=True))
        for field, place in zip(fields, where, strict=True):
            yield [_absent(field.type, each.rows) for each in admitted] if place is None else turned[place]
        return
    batches = [(each.columns, each.rows, places[id(each.layout)]) for each in admitted]
    for number, field in enumerate(fields):
        yield [
            _absent(field.type, rows) if (place := where[number]) is None else columns[place]
            for columns, rows, where in batches
        ]


def late_rows(batch: Batch, layout: Layout, schema: StreamSchema, watermark_us: int) -> pa.Table:
    """Return the rows of a batch that are stamped before the watermark."""
    rows = to_arrow([AdmittedRows(batch.columns, batch.rows, layout)], schema)
    return rows.filter(pc.less(rows.column(START_COLUMN), pa.scalar(watermark_us, pa.int64())))


def first_and_last(batch: Batch, layout: Layout) -> tuple[int, int]:
    """Return the earliest and the latest stamp of a batch that has rows."""
    stamps = batch.columns[layout.places[START_COLUMN]].data
    if batch.rows <= FEW_ROWS:
        few = _few_stamps(batch.rows)(stamps)
        return min(few), max(few)
    many = np.frombuffer(stamps, "<i8")
    return int(many.min()), int(many.max())


@cache
def _few_stamps(rows: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return what reads so many stamps, of which there are few."""
    return struct.Struct(f"<{rows}q").unpack


def _in_time(table: pa.Table, admitted: Sequence[AdmittedRows], counts: npt.NDArray[np.int64]) -> pa.Table:
    if all(each.not_before_us is None for each in admitted):
        return table
    least = np.iinfo(np.int64).min
    bounds = np.array([least if each.not_before_us is None else each.not_before_us for each in admitted], np.int64)
    return table.filter(pc.greater_equal(table.column(START_COLUMN), pa.array(np.repeat(bounds, counts))))


def _array(kind: FieldType, pieces: Sequence[Column], counts: npt.NDArray[np.int64]) -> pa.Array:
    rows, missing, present = int(counts.sum()), 0, None
    if any(map(_present_of, pieces)):
        there = b"".join([piece.present or b"\1" * count for piece, count in zip(pieces, counts.tolist(), strict=True)])
        missing, present = there.count(b"\0"), _bits(there)
    data = b"".join(map(_data_of, pieces))
    if kind is FieldType.TEXT:
        buffers = [present, _offsets(pieces, counts), pa.py_buffer(data)]
    else:
        buffers = [present, _bits(data) if kind is FieldType.BOOLEAN else pa.py_buffer(data)]
    return pa.Array.from_buffers(ARROW_TYPES[kind], rows, buffers, null_count=missing)


def _bits(flags: bytes) -> pa.Buffer:
    """Return a bit for each byte, set unless it is 0."""
    return pa.py_buffer(np.packbits(np.frombuffer(flags, np.uint8), bitorder="little"))


def _offsets(pieces: Sequence[Column], counts: npt.NDArray[np.int64]) -> pa.Buffer:
    """Return the offsets of texts that are joined."""
    joined = np.frombuffer(b"".join([bytes(4), *[piece.offsets[4:] for piece in pieces]]), "<i4").copy()
    sizes = np.fromiter(map(len, map(_data_of, pieces)), np.int32, len(pieces))
    joined[1:] += np.repeat(np.cumsum(sizes, dtype=np.int32) - sizes, counts)  # what was before each batch
    return pa.py_buffer(joined)


def _absent(kind: FieldType, rows: int) -> Column:
    """Return a column of a batch that lacks it: NULL in every row."""
    width = {FieldType.BOOLEAN: 1, FieldType.TEXT: 0}.get(kind, 8)
    offsets = bytes(4 * (rows + 1)) if kind is FieldType.TEXT else b""
    return Column("absent", kind, bytes(rows), bytes(width * rows), offsets)
