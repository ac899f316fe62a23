"""Data passed through Spark: envelopes for the buckets, by the shuffle, and output of buckets and tasks.

An envelope is addressed to a bucket and an exchange of the plan, and its payload is an Arrow stream of rows. To the
operators on both sides the shuffle is one more queue. Two messages have envelopes of their own.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.collecting import HostOutput, stored_columns
from cluster.fjord.control import MicroBatchControl
from cluster.fjord.counters import Counters, summed
from cluster.spark.answer_parts import CollectedOutputs
from cluster.storage.unnumbered_answers import UnnumberedFile

ENVELOPE_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("exchange", pa.string()),
        pa.field("origin", pa.int32()),
        pa.field("payload", pa.binary()),
    ]
)
ENVELOPE_DDL = "bucket int, exchange string, origin int, payload binary"
OUTPUT_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        pa.field("answers", pa.binary()),
        pa.field("counters", pa.binary()),
        pa.field("file", pa.binary()),
    ]
)
OUTPUT_DDL = "bucket int, answers binary, counters binary, file binary"
"""Output of a bucket, or of a part of a micro-batch that needs no buckets: answers, or a file of them, and counters;
NULL for none."""

CONTROL = ""
"""In place of an exchange: the control that every bucket gets in each micro-batch."""
COUNTERS = "counters"
"""In place of an exchange: the counters of the operators of one part of a micro-batch."""
COUNTING_BUCKET = 0
"""The bucket that gets the counters, and reports them with those of its own operators."""

COMPRESS_FROM_ROWS = 1_000
COMPRESS_FROM_BYTES = 64 * 1024


def pack_control(control: MicroBatchControl) -> bytes:
    """Return the payload of a control envelope."""
    return msgspec.msgpack.encode(control)


def unpack_control(payload: bytes) -> MicroBatchControl:
    """Return the control in an envelope's payload."""
    return msgspec.msgpack.decode(payload, type=MicroBatchControl)


def pack_counters(counters: Counters) -> bytes:
    """Return the payload of an envelope with the operators' counters."""
    return msgspec.msgpack.encode(counters)


def unpack_counters(payload: bytes) -> Counters:
    """Return the operators' counters from an envelope's payload."""
    return msgspec.msgpack.decode(payload, type=Counters)


def pack_rows(rows: pl.DataFrame) -> bytes:
    """Return rows as an Arrow stream; compressed if there is much of them: Java copies each byte half a dozen times."""
    sink = io.BytesIO()
    many = rows.height >= COMPRESS_FROM_ROWS or rows.estimated_size() >= COMPRESS_FROM_BYTES
    rows.write_ipc_stream(sink, compression="lz4" if many else "uncompressed")
    return sink.getvalue()


def unpack_rows(payload: bytes) -> pl.DataFrame:
    """Return the rows of an Arrow stream."""
    return pl.read_ipc_stream(payload)


@dataclass(frozen=True, slots=True)
class PackedOutput:
    """A host's output as it crosses Spark; see :data:`OUTPUT_SCHEMA`."""

    answers: bytes | None
    counters: bytes | None
    file: bytes | None = None


def pack_output(output: HostOutput, file: UnnumberedFile | None = None) -> PackedOutput | None:
    """Return a host's output for Spark, given the file with its answers if there is one; None if there is no output."""
    if not output.answers and not output.counters:
        return None
    return PackedOutput(
        pack_rows(pl.concat(output.answers)) if output.answers and file is None else None,
        pack_counters(output.counters) if output.counters else None,
        None if file is None else msgspec.msgpack.encode(file),
    )


def collected_outputs(outputs: pa.Table) -> CollectedOutputs:
    """Return the outputs of a micro-batch, from its rows in Spark's driver.

    Parameters
    ----------
    outputs
        As in :data:`OUTPUT_SCHEMA`; in any order.
    """
    rows = sorted(outputs.to_pylist(), key=lambda row: row["bucket"])
    pieces = [piece for piece in map(_answers, rows) if piece is not None]
    return CollectedOutputs(pieces, summed(unpack_counters(row["counters"]) for row in rows if row["counters"]))


def _answers(row: Mapping[str, Any]) -> pl.DataFrame | UnnumberedFile | None:
    if row["file"] is not None:
        return msgspec.msgpack.decode(row["file"], type=UnnumberedFile)
    return None if row["answers"] is None else stored_columns(unpack_rows(row["answers"]))
