"""Data passed through Spark: envelopes for the buckets, answers that come as rows, and those that tasks write.

**Answers that come to the driver as rows, and answers that tasks write into files: which are which, and their order.**

Without state:

    task 0    file      ─┐                                     one behind the other, if each query's starts allow it
    task 1    rows      ─┼─>  file, rows of 1 and 2, file
    task 2    rows      ─┤                                     else all files are read, and their rows put in order
    task 3    file      ─┘

Both give each row the same number, which is also the one it would have if no task had written a file.

With state, the driver reads all files. They only save the answers the way through Java, which copies each byte half a
dozen times.

An envelope is addressed to a bucket and an exchange of the plan, and its payload is an Arrow stream of rows. To the
operators on both sides the shuffle is one more queue. Two messages have envelopes of their own.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.answer_kinds import ERROR, ROW
from cluster.fjord.answers import HostOutput, in_order, stored_columns
from cluster.fjord.counters import Counters, summed
from cluster.fjord.exchange import MicroBatchControl
from cluster.storage.results_table import Part
from cluster.storage.unnumbered_answers import (
    Spans,
    UnnumberedFile,
    follow_each_other,
    read_unnumbered,
    spans_of,
    write_unnumbered,
)
from protocols.event_log import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CollectedOutputs:
    """The outputs of the tasks or buckets of a micro-batch.

    Parameters
    ----------
    pieces
        The answers of each, in the order of their numbers: files, or rows with columns query, start_us, end_us, kind,
        row.
    counters
        What operators did, as far as it is reported now.
    """

    pieces: Sequence[Part]
    counters: Counters

    @property
    def in_files(self) -> bool:
        """Whether there are files among them."""
        return any(isinstance(piece, UnnumberedFile) for piece in self.pieces)

    def rows(self) -> pl.DataFrame:
        """Return all answers, each query's in start order.

        Raises
        ------
        OSError
            If a file cannot be read.
        """
        return in_order(read_unnumbered(each) if isinstance(each, UnnumberedFile) else each for each in self.pieces)

    def parts(self) -> list[Part]:
        """Return the answers in as few parts as follow each other, each query's in start order.

        Raises
        ------
        OSError
            If a file has to be read and cannot be.
        """
        parts: list[Part] = []
        for written, pieces in groupby(self.pieces, lambda piece: isinstance(piece, UnnumberedFile)):
            together = list(pieces)
            parts.extend(together if written else [in_order(_frames(together))])
        # Each of several tasks may report the same error, which counts once.
        if _with_errors(parts) or not follow_each_other(map(_spans, parts)):
            return [self.rows()]
        return parts


def written_by_task(output: HostOutput, folder: str, most: int) -> UnnumberedFile | None:
    """Write the answers of a task into a file if there are many; None if it is to return them.

    Parameters
    ----------
    output
        The output of the task, or of a bucket.
    folder
        Where such files are; empty if the plan wants none.
    most
        How many answers it returns.
    """
    if not folder or sum(piece.height for piece in output.answers) <= most:
        return None
    if any((piece["kind"] != ROW).any() for piece in output.answers):
        return None  # errors, open rows and their ends: files have no kinds
    rows = in_order(map(stored_columns, output.answers))
    try:
        return write_unnumbered(folder, rows)
    except OSError as error:
        log.warning("a task cannot write its answers, and returns them", folder=folder, error=str(error))
        return None


def _frames(pieces: Iterable[Part]) -> Iterator[pl.DataFrame]:
    return (piece for piece in pieces if isinstance(piece, pl.DataFrame))


def _with_errors(parts: Sequence[Part]) -> bool:
    return any((each["kind"] == ERROR).any() for each in _frames(parts))


def _spans(part: Part) -> Spans:
    return spans_of(part) if isinstance(part, pl.DataFrame) else part.spans


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
