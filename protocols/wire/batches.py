"""Batches: the tuples a proxy forwards to the cluster, column by column, and their acknowledgement."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import FrameError
from protocols.wire.batch_columns import (
    COMPLETENESS_FIELDS,
    COVERED_BY_COLUMN,
    DEFAULT_RATE_COLUMN,
    DEVICE_MEASURES,
    EXPECTED_COLUMN,
    FEW_ROWS,
    FINGERPRINT_COLUMN,
    MISSING_COLUMN,
    MOTE_COLUMN,
    NEXT_COLUMN,
    NO_NEIGHBOUR_US,
    PANE_COLUMN,
    PREVIOUS_COLUMN,
    PUBLISHED_FIELDS,
    SAMPLES_COLUMN,
    START_COLUMN,
    VALUE_BYTES,
    Column,
    Order,
    aggregate_columns,
    aggregate_fields,
    check_column,
    is_column_name,
    make_column,
    make_columns,
    measure_column,
    wire_fields,
)
from protocols.wire.frames import MEBIBYTE, VERSION, Counter, Frame, FrameDecoder, Microseconds, Name, encode
from protocols.wire.packed_batches import MAX_BATCH_ROWS, MAX_COLUMNS, WRITER_BYTES, PackedBatch, Writer, pack, unpack

MAX_BATCH_BYTES = 8 * MEBIBYTE
_OF_COLUMNS = frozenset((b"\x99", b"\x9b"))
"""How a batch begins that is not packed: as an array of nine elements, or eleven with its writer."""
_WITH_WRITER = frozenset((b"\x9b", b"\x9c"))
"""How one begins that has its writer: two elements at its end, which clusters of earlier versions do not read."""
_TAIL_ELEMENTS = 2
_TAIL_BYTES = _TAIL_ELEMENTS * (2 + WRITER_BYTES)
_NO_TAIL = b"\xc4\x00" * _TAIL_ELEMENTS


class Batch(Frame, frozen=True, gc=False):
    """Proxy to cluster: consecutive tuples of one stream, column by column.

    It is sent packed (:mod:`protocols.wire.packed_batches`), except to clusters of earlier versions, which do not say
    that they read packed ones.

    Parameters
    ----------
    proxy
        The sender; must be the proxy of the topic.
    epoch
        Drawn at random when a proxy begins without its spool, so that sequence numbers are never ambiguous.
    stream
        The stream of the tuples.
    sequence
        Counts the batches of this proxy, epoch and stream from 1, without gaps.
    watermark_us
        No tuple in a later batch of this proxy and stream is stamped before this instant.
    sampling
        True if the proxy expects more tuples of this stream; if not, no query has to wait for its watermark.
    rows
        Number of tuples; 0 if only the watermark moves.
    columns
        Those of :func:`wire_fields`: Fjord's own, then every field of the stream as the proxy's motes announce it,
        fixed ones included; columns are identified by name, not by order. If not all tuples are samples for all
        queries, also those of :func:`aggregate_fields`; if some count missing samples, :data:`COMPLETENESS_FIELDS`; and
        if some were published at instants of their own, :data:`PUBLISHED_FIELDS`.
    writer
        The process that wrote it to its spool; empty for a proxy of an earlier version, and to a cluster of one. With
        epoch, stream and sequence it stands for the content: two processes on copies of one data folder give the same
        numbers to different batches.
    follows
        The writer of the batch before; empty for unknown.
    """

    proxy: Name
    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    stream: Name
    sequence: Annotated[int, Meta(ge=1, lt=2**62)]
    watermark_us: Microseconds
    sampling: bool
    rows: Annotated[int, Meta(ge=0, le=MAX_BATCH_ROWS)]
    columns: Annotated[tuple[Column, ...], Meta(max_length=MAX_COLUMNS)]
    writer: Writer = b""
    follows: Writer = b""

    def __post_init__(self) -> None:
        rows, size_of = self.rows, VALUE_BYTES.get
        for column in self.columns:
            # Most columns are numbers without NULL: to look at them here takes half as long.
            size = size_of(column.type)
            plain = size is not None and len(column.data) == rows * size and not (column.present or column.offsets)
            if not plain or not is_column_name(column.name):
                check_column(column, rows)


class Rejection(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A batch that the cluster will never accept; the proxy counts it and continues with the next."""

    sequence: Counter
    reason: Annotated[str, Meta(max_length=512)]


ClusterId = Annotated[str, Meta(max_length=129, pattern=r"^[A-Za-z0-9_.\-]{1,64}/[A-Za-z0-9_.\-]{1,64}\Z")]
"""A cluster: its name, and the identity that its data folder drew once."""


class Ack(Frame, frozen=True):
    """Cluster to proxy: all batches up to and including `through` are stored for good (or in `rejected`).

    A proxy that receives an ack lower than what it has sent, twice in a row, sends again from there. It obeys one
    cluster only: the first that names itself, or the one of its settings. Clusters of earlier versions name none.
    `packed` says that the cluster reads packed batches; earlier versions do not. `writer` is that of batch `through`,
    and empty for unknown: the ack is not for a proxy whose batch of that number has another one. Without it the cluster
    reads no writers.
    """

    proxy: Name
    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    stream: Name
    through: Counter
    rejected: Annotated[tuple[Rejection, ...], Meta(max_length=64)] = ()
    cluster: ClusterId | None = None
    packed: bool = False
    writer: Writer | None = None


class Resumption(Frame, frozen=True):
    """Proxy to cluster: no batch of a stream before `first` will come any more, since the proxy has none of them.

    Either all of them were acknowledged, and the cluster has lost data: its acks are lower than earlier ones. Or only
    the last was not, and is damaged in the proxy's spool. The cluster goes on with `first`.
    """

    proxy: Name
    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    stream: Name
    first: Counter


def pack_batch(batch: Batch) -> PackedBatch:
    """Return a batch with its columns in one buffer."""
    description, data = pack(batch.columns, batch.rows)
    return PackedBatch(
        batch.version,
        batch.proxy,
        batch.epoch,
        batch.stream,
        batch.sequence,
        batch.watermark_us,
        batch.sampling,
        batch.rows,
        description,
        data,
        batch.writer,
        batch.follows,
    )


def unpack_batch(packed: PackedBatch) -> Batch:
    """Return a batch with each column in buffers of its own."""
    return Batch(
        packed.version,
        packed.proxy,
        packed.epoch,
        packed.stream,
        packed.sequence,
        packed.watermark_us,
        packed.sampling,
        packed.rows,
        unpack(packed.layout, packed.data, packed.rows),
        packed.writer,
        packed.follows,
    )


def encode_batch(batch: Batch, *, packed: bool = True) -> bytes:
    """Return the bytes of a batch; with its writer, if it has one.

    Parameters
    ----------
    batch
        To be sent.
    packed
        False for clusters of earlier versions.

    Raises
    ------
    FrameError
        With reason ``size`` if it is larger than a batch may be.
    """
    payload = encode(pack_batch(batch) if packed else batch)
    if not batch.writer:
        payload = _shortened(payload, len(_NO_TAIL))
    if len(payload) > MAX_BATCH_BYTES:
        raise FrameError(
            "size",
            f"batch of {batch.rows:,} rows has {len(payload):,} bytes, the limit is {MAX_BATCH_BYTES:,}",
            hint="split it into smaller batches",
        )
    return payload


def without_writer(payload: bytes) -> bytes:
    """Return the bytes of a batch as clusters of earlier versions read them."""
    return _shortened(payload, _TAIL_BYTES) if payload[:1] in _WITH_WRITER else payload


def _shortened(payload: bytes, tail_bytes: int) -> bytes:
    """Return an array of fewer than 16 elements without the last ones, which take so many bytes."""
    return bytes((payload[0] - _TAIL_ELEMENTS,)) + payload[1:-tail_bytes]


def decode_packed_batch(payload: bytes) -> PackedBatch:
    """Return the batch in `payload`, packed if it is not; raises FrameError as :class:`FrameDecoder` does."""
    if payload[:1] in _OF_COLUMNS:
        return pack_batch(_decode_of_columns(payload))
    return _decode_packed(payload)


def decode_batch(payload: bytes) -> Batch:
    """Return the batch in `payload`, packed or not; raises FrameError as :class:`FrameDecoder` does."""
    if payload[:1] in _OF_COLUMNS:
        return _decode_of_columns(payload)
    return unpack_batch(_decode_packed(payload))


_decode_of_columns = FrameDecoder(Batch, max_bytes=MAX_BATCH_BYTES)
_decode_packed = FrameDecoder(PackedBatch, max_bytes=MAX_BATCH_BYTES, name="batch")
decode_ack = FrameDecoder(Ack, max_bytes=64 * 1024)
decode_resumption = FrameDecoder(Resumption, max_bytes=64 * 1024)

__all__ = [
    "COMPLETENESS_FIELDS",
    "COVERED_BY_COLUMN",
    "DEFAULT_RATE_COLUMN",
    "DEVICE_MEASURES",
    "EXPECTED_COLUMN",
    "FEW_ROWS",
    "FINGERPRINT_COLUMN",
    "MAX_BATCH_ROWS",
    "MAX_COLUMNS",
    "MISSING_COLUMN",
    "MOTE_COLUMN",
    "NEXT_COLUMN",
    "NO_NEIGHBOUR_US",
    "PANE_COLUMN",
    "PREVIOUS_COLUMN",
    "PUBLISHED_FIELDS",
    "SAMPLES_COLUMN",
    "START_COLUMN",
    "VERSION",
    "WRITER_BYTES",
    "Ack",
    "Batch",
    "Column",
    "Order",
    "PackedBatch",
    "Rejection",
    "Resumption",
    "Writer",
    "aggregate_columns",
    "aggregate_fields",
    "check_column",
    "decode_ack",
    "decode_batch",
    "decode_packed_batch",
    "decode_resumption",
    "encode_batch",
    "make_column",
    "make_columns",
    "measure_column",
    "pack_batch",
    "unpack_batch",
    "wire_fields",
    "without_writer",
]
