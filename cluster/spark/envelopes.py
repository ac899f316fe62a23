"""What crosses Spark's shuffle: envelopes, addressed to a bucket and to an edge of the folded plan.

An envelope's payload is an Arrow stream. To the operators on both sides the shuffle is one more queue.
"""

from __future__ import annotations

import io

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.buckets import bucket_of
from cluster.fjord.counters import Counters

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


class Control(msgspec.Struct, frozen=True):
    """What every bucket is told in every micro-batch.

    Parameters
    ----------
    epoch
        The plan to run.
    previous_epoch
        The plan of the micro-batch before; if it is another one, state of dropped queries is removed.
    watermarks_us
        By edge: no row that arrives later starts before this instant.
    failures
        By query: why its upstream operators failed, if they did.
    counters
        What the upstream operators of one part did; only one bucket is told.
    relations
        By identity of a relation: the newest version that counts.
    reached_us
        How far the streams have come; 0 if nobody knows.
    """

    epoch: int
    previous_epoch: int
    watermarks_us: dict[str, int]
    failures: dict[str, str] = {}
    counters: Counters = {}
    relations: dict[str, int] = {}
    reached_us: int = 0


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


def split_by_bucket(rows: pl.DataFrame, keys: tuple[str, ...], buckets: int) -> dict[int, pl.DataFrame]:
    """Return the rows of each bucket, by a stable hash of their `keys`."""
    if rows.height == 0:
        return {}
    combinations = rows.select(keys).unique()
    places = [bucket_of(values, buckets) for values in combinations.iter_rows()]
    placed = rows.join(
        combinations.with_columns(pl.Series("fjord_bucket", places, pl.Int32)),
        on=list(keys),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return {
        int(bucket): part.drop("fjord_bucket")
        for (bucket,), part in placed.partition_by("fjord_bucket", as_dict=True, maintain_order=True).items()
    }
