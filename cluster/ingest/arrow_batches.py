"""Turns the columns of a batch into an Arrow table, and sets aside rows that come too late."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.storage.stream_tables import arrow_schema
from protocols.batches import (
    COMPLETENESS_FIELDS,
    DEFAULT_RATE_COLUMN,
    MOTE_COLUMN,
    START_COLUMN,
    Batch,
    Column,
    aggregate_fields,
    wire_fields,
)
from protocols.errors import SchemaError
from protocols.streams import FieldType, StreamSchema


def to_arrow(batch: Batch, schema: StreamSchema) -> pa.Table:
    """Return the rows of a batch as a table of the stream's Arrow schema.

    Raises
    ------
    SchemaError
        If the batch has other columns than the stream; names the first difference.
    """
    expected = wire_fields(schema)
    aggregates = len(batch.columns) > len(expected)
    if aggregates:
        expected = (*expected, *aggregate_fields(schema))
    completeness = len(batch.columns) > len(expected)
    if completeness:
        expected = (*expected, *COMPLETENESS_FIELDS)
    if batch.rows == 0 and not batch.columns:
        return arrow_schema(schema).empty_table()
    if len(batch.columns) != len(expected):
        raise SchemaError(f"batch has {len(batch.columns)} columns, stream {schema.name!r} has {len(expected)}")
    arrays = []
    for column, field in zip(batch.columns, expected, strict=True):
        if column.name != field.name or column.type is not field.type:
            raise SchemaError(
                f"batch has column {column.name!r} of {column.type.value} where stream {schema.name!r} "
                f"has {field.name!r} of {field.type.value}"
            )
        arrays.append(_array(column, batch.rows))
    table = pa.Table.from_arrays(arrays, names=[field.name for field in expected])
    for name in (START_COLUMN, MOTE_COLUMN, DEFAULT_RATE_COLUMN):
        if table.column(name).null_count:
            raise SchemaError(f"batch has a sample without {name}")
    return table.cast(arrow_schema(schema, aggregates=aggregates, completeness=completeness))


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
