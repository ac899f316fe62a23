"""Turns the columns of a batch into an Arrow table, name by name, and separates rows that come too late."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.storage.stream_tables import arrow_schema
from protocols.errors import SchemaError
from protocols.wire.batches import (
    COMPLETENESS_FIELDS,
    DEFAULT_RATE_COLUMN,
    DEVICE_MEASURES,
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    MOTE_COLUMN,
    START_COLUMN,
    Batch,
    Column,
    aggregate_fields,
    measure_column,
    wire_fields,
)
from protocols.wire.column_matching import ColumnMatch, match_columns
from protocols.wire.streams import RESERVED_PREFIX, Field, FieldType, StreamSchema


def to_arrow(batch: Batch, schema: StreamSchema) -> pa.Table:
    """Return the rows of a batch as a table of the stream's Arrow schema, without columns that it lacks.

    Raises
    ------
    SchemaError
        If the batch lacks columns of the stream, or has others of their names; or if it is malformed.
    """
    if not batch.rows:
        return arrow_schema(schema).empty_table()
    found = _match(batch, schema)
    if not found.fits:
        raise SchemaError(mismatch_text(batch.proxy, schema.name, found))
    columns = {column.name: column for column in batch.columns}
    aggregates, completeness = FINGERPRINT_COLUMN in columns, EXPECTED_COLUMN in columns
    expected = (
        *wire_fields(schema),
        *(aggregate_fields(schema) if aggregates else ()),
        *(COMPLETENESS_FIELDS if completeness else ()),
    )
    names_in_batch = dict(found.names) | _names_of_measures(schema, found)
    arrays = [
        _array(_column(columns, names_in_batch.get(field.name, field.name), field), batch.rows) for field in expected
    ]
    table = pa.Table.from_arrays(arrays, names=[field.name for field in expected])
    for name in (START_COLUMN, MOTE_COLUMN, DEFAULT_RATE_COLUMN):
        if table.column(name).null_count:
            raise SchemaError(f"batch has a sample without {name}")
    return table.cast(arrow_schema(schema, aggregates=aggregates, completeness=completeness))


def batch_mismatch(batch: Batch, schema: StreamSchema) -> str | None:
    """Return why the samples of a batch cannot be stored as the stream's; None if they can, or are malformed anyway.

    The batch itself names its columns: it may be of an older offer than the last one.
    """
    if not batch.rows:
        return None
    try:
        found = _match(batch, schema)
    except SchemaError:
        return None
    return None if found.fits else mismatch_text(batch.proxy, schema.name, found)


def mismatch_text(proxy: str, stream: str, found: ColumnMatch) -> str:
    """Return in a sentence why the columns that a proxy sends are not those of the stream."""
    return f"proxy {proxy!r} sends stream {stream!r} with other columns: {'; '.join(found.reasons())}"


def _match(batch: Batch, schema: StreamSchema) -> ColumnMatch:
    """Return how the columns of a batch match those of the stream; raises SchemaError if they are malformed."""
    folded = [column.name.casefold() for column in batch.columns]
    if len(set(folded)) != len(folded):
        doubled = next(name for name in folded if folded.count(name) > 1)
        raise SchemaError(f"batch has two columns {doubled!r}")
    own = [column.name for column in batch.columns if column.name.casefold().startswith(RESERVED_PREFIX)]
    # A batch does not carry whether a column is fixed.
    fixed = {field.name.casefold(): field.fixed for field in schema.fields}
    offered = StreamSchema(
        schema.name,
        tuple(
            Field(column.name, column.type, column.unit, fixed.get(column.name.casefold(), False))
            for column in batch.columns
            if column.name not in own
        ),
    )
    if unknown := sorted(set(own) - _own_columns(offered)):
        raise SchemaError(f"batch has a column {unknown[0]!r} that no stream has")
    return match_columns(schema, offered)


@lru_cache(maxsize=1024)
def _own_columns(offered: StreamSchema) -> frozenset[str]:
    measures = {measure_column(measure, field.name) for field in offered.fields for measure in DEVICE_MEASURES}
    own = (*wire_fields(offered)[:3], *aggregate_fields(offered), *COMPLETENESS_FIELDS)
    return frozenset({field.name for field in own} | measures)


def _names_of_measures(schema: StreamSchema, found: ColumnMatch) -> dict[str, str]:
    """Return, by the stored column of a measure, the column in the batch, where the names differ."""
    return {
        measure_column(measure, field.name): measure_column(measure, found.names[field.name])
        for field in schema.sampled
        if found.names[field.name] != field.name
        for measure in DEVICE_MEASURES
    }


def _column(columns: Mapping[str, Column], name: str, field: Field) -> Column:
    column = columns.get(name)
    if column is None or column.type is not field.type:
        has = "none" if column is None else f"one of {column.type.value}"
        raise SchemaError(f"batch should have a column {name!r} of {field.type.value} and has {has}")
    return column


def split_late(rows: pa.Table, watermark_us: int | None) -> tuple[pa.Table, pa.Table]:
    """Return the rows that are in time, and those stamped before the watermark."""
    if watermark_us is None or rows.num_rows == 0:
        return rows, rows.slice(0, 0)
    in_time = pc.greater_equal(rows.column(START_COLUMN), pa.scalar(watermark_us, pa.int64()))
    if pc.all(in_time).as_py():
        return rows, rows.slice(0, 0)
    return rows.filter(in_time), rows.filter(pc.invert(in_time))


def _array(column: Column, rows: int) -> pa.Array:
    missing = np.frombuffer(column.present, np.uint8) == 0 if column.present else None
    if column.type is FieldType.TEXT:
        text = pa.Array.from_buffers(
            pa.string(), rows, [None, pa.py_buffer(column.offsets), pa.py_buffer(column.data)], null_count=0
        )
        return text if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), text)
    kinds = {FieldType.INTEGER: "<i8", FieldType.REAL: "<f8", FieldType.BOOLEAN: "u1"}
    values = np.frombuffer(column.data, kinds[column.type])
    if column.type is FieldType.BOOLEAN:
        values = values.astype(np.bool_)
    return pa.array(values, mask=missing)
