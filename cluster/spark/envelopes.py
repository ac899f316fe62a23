"""What crosses Spark's shuffle: envelopes, addressed to a bucket and to an edge of the folded plan.

An envelope's payload is an Arrow stream. To the operators on both sides the shuffle is one more queue.
"""

from __future__ import annotations

import io

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.control import Control

ENVELOPE_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("edge", pa.string()),
        pa.field("origin", pa.int32()),
        pa.field("payload", pa.binary()),
    ]
)
ENVELOPE_DDL = "bucket int, edge string, origin int, payload binary"
RESULT_SCHEMA = pa.schema([pa.field("bucket", pa.int32()), pa.field("payload", pa.binary())])
RESULT_DDL = "bucket int, payload binary"
"""Answers: of a bucket, or of a part of a micro-batch that needs no buckets."""

CONTROL = ""
"""The edge on which each bucket hears, once per micro-batch, which plan holds and how far every edge has come."""


COMPRESS_FROM_ROWS = 1_000


def pack_control(control: Control) -> bytes:
    """Return the payload of a control envelope."""
    return msgspec.msgpack.encode(control)


def unpack_control(payload: bytes) -> Control:
    """Return the control in an envelope's payload."""
    return msgspec.msgpack.decode(payload, type=Control)


def pack_rows(rows: pl.DataFrame, *, compress: bool = False) -> bytes:
    """Return rows as an Arrow stream; compressed, if there are many and they go a long way."""
    sink = io.BytesIO()
    many = compress and rows.height >= COMPRESS_FROM_ROWS
    rows.write_ipc_stream(sink, compression="lz4" if many else "uncompressed")
    return sink.getvalue()


def unpack_rows(payload: bytes) -> pl.DataFrame:
    """Return the rows of an Arrow stream."""
    return pl.read_ipc_stream(payload)
