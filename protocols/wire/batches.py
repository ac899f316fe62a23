"""Batches: the tuples a proxy forwards to the cluster, column by column, and their acknowledgement."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from protocols.errors import FrameError
from protocols.wire.frames import MEBIBYTE, VERSION, Counter, Frame, FrameDecoder, Microseconds, Name, Value, encode
from protocols.wire.names import is_identifier
from protocols.wire.programs import Measure
from protocols.wire.streams import Field, FieldName, FieldType, StreamSchema

MAX_BATCH_BYTES = 8 * MEBIBYTE
MAX_BATCH_ROWS = 1_000_000

START_COLUMN = "fjord_start_us"
"""Instant of the sample, in microseconds of application time."""
MOTE_COLUMN = "fjord_mote"
"""The mote that it comes from."""

DEFAULT_RATE_COLUMN = "fjord_default_rate"
"""True for a sample that the mote would have taken at its default period too.

A faster rate for one query must not change the rows of others: a query without SAMPLE reads these samples only.
"""

FINGERPRINT_COLUMN = "fjord_form"
"""NULL for a sample. Of aggregates and events: the push-down fingerprint of the demand that they answer."""
COVERED_BY_COLUMN = "fjord_except"
"""Of a sample: the fingerprints, separated by spaces, whose aggregates already contain it; NULL for none."""
PANE_COLUMN = "fjord_pane_us"
"""Of an aggregate: how much time before its stamp it covers. Of an event: how long it lasted after its stamp."""
SAMPLES_COLUMN = "fjord_samples"
"""Of an aggregate: how many samples, or events, it is made of."""
EXPECTED_COLUMN = "fjord_expected"
"""How many samples a mote was due to take in a pane; NULL for any other row."""
MISSING_COLUMN = "fjord_missing"
"""How many of these neither the proxy nor, as far as the proxy knows, the mote has evaluated."""

_NUMBERS: dict[FieldType, np.dtype[np.generic]] = {
    FieldType.INTEGER: np.dtype("<i8"),
    FieldType.REAL: np.dtype("<f8"),
    FieldType.BOOLEAN: np.dtype("u1"),
}
DEVICE_MEASURES = (Measure.COUNT, Measure.SUM, Measure.MIN, Measure.MAX)
"""What queries ask of aggregates."""
_SIZES = {kind: numbers.itemsize for kind, numbers in _NUMBERS.items()}
_OFFSETS = np.dtype("<i4")
_OFFSET_BYTES = _OFFSETS.itemsize
FEW_ROWS = 64
"""Up to so many, Python's own numbers are quicker than arrays."""
_TOP_TWO_BITS, _CONTINUES = 0xC0, 0x80
"""UTF-8: a byte whose top two bits are 10 continues a character."""

Order = npt.NDArray[np.intp]
"""Places of rows."""
Values = Sequence[Value] | npt.NDArray[np.int64] | npt.NDArray[np.bool_]

ColumnName = Annotated[str, Meta(min_length=1, max_length=96)]
"""An identifier, perhaps behind the words of a measure. Batches repeat few names: each is checked when it is new."""


class Column(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One column of a batch as little-endian buffers.

    Parameters
    ----------
    name
        A field of the stream, or one of Fjord's own columns above.
    type
        Its type: integer and real take 8 bytes a row, boolean 1.
    present
        One byte a row, 1 where there is a value and 0 for NULL; empty if there is no NULL.
    data
        The values; for text the UTF-8 bytes of all values, one after another.
    offsets
        For text: rows + 1 four-byte offsets into `data`; else empty.
    unit
        Of the values, as announced by the motes that measured them; empty for none. A batch may wait for long, and the
        motes may announce another unit meanwhile.
    """

    name: ColumnName
    type: FieldType
    present: bytes
    data: bytes
    offsets: bytes = b""
    unit: Annotated[str, Meta(max_length=32)] = ""

    def values(self, rows: int) -> list[Value]:
        """Return the column as Python values, None for NULL.

        Raises
        ------
        FrameError
            With reason ``shape`` if the buffers do not hold `rows` rows.
        """
        check_column(self, rows)
        found: list[Value]
        if self.type is FieldType.TEXT:
            offsets = np.frombuffer(self.offsets, _OFFSETS).tolist()
            found = [self.data[a:b].decode() for a, b in pairwise(offsets)]
        else:
            numbers = np.frombuffer(self.data, _NUMBERS[self.type])
            found = (numbers.astype(bool) if self.type is FieldType.BOOLEAN else numbers).tolist()
        if not self.present:
            return found
        present = np.frombuffer(self.present, np.uint8)
        return [value if there else None for value, there in zip(found, present.tolist(), strict=True)]


class Batch(Frame, frozen=True, gc=False):
    """Proxy to cluster: consecutive tuples of one stream.

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
        queries, also those of :func:`aggregate_fields`; and if some count missing samples,
        :data:`COMPLETENESS_FIELDS`.
    """

    proxy: Name
    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    stream: Name
    sequence: Annotated[int, Meta(ge=1, lt=2**62)]
    watermark_us: Microseconds
    sampling: bool
    rows: Annotated[int, Meta(ge=0, le=MAX_BATCH_ROWS)]
    columns: Annotated[tuple[Column, ...], Meta(max_length=1_600)]

    def __post_init__(self) -> None:
        rows, size_of = self.rows, _SIZES.get
        for column in self.columns:
            # Most columns are numbers without NULL: to look at them here takes half as long.
            size = size_of(column.type)
            plain = size is not None and len(column.data) == rows * size and not (column.present or column.offsets)
            if not plain or not _is_column_name(column.name):
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
    """

    proxy: Name
    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    stream: Name
    through: Counter
    rejected: Annotated[tuple[Rejection, ...], Meta(max_length=64)] = ()
    cluster: ClusterId | None = None


class Resumption(Frame, frozen=True):
    """Proxy to cluster: no batch of a stream before `first` will come any more, since the proxy has none of them.

    Either all of them were acknowledged, and the cluster has lost data: its acks are lower than earlier ones. Or only
    the last was not, and is damaged in the proxy's spool. The cluster goes on with `first`.
    """

    proxy: Name
    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    stream: Name
    first: Counter


def check_column(column: Column, rows: int) -> None:
    """Check that the buffers of `column` hold exactly `rows` rows.

    Raises
    ------
    FrameError
        With reason ``shape``.
    """
    if not _is_column_name(column.name):
        raise _misshapen(column, "no column can have this name")
    present, data = column.present, column.data
    if present and (len(present) != rows or present.translate(None, b"\0\1")):
        raise _misshapen(column, f"presence of {len(present)} rows in a batch of {rows}, each 0 or 1")
    if column.type is not FieldType.TEXT:
        if column.type not in _SIZES:
            raise _misshapen(column, f"a batch has no values of type {column.type.value}")
        expected = rows * _SIZES[column.type]
        if len(data) != expected or column.offsets:
            raise _misshapen(column, f"{len(data)} bytes of {column.type.value} for {rows} rows, expected {expected}")
        return
    if len(column.offsets) != (rows + 1) * _OFFSET_BYTES:
        raise _misshapen(column, f"{len(column.offsets)} bytes of offsets for {rows} rows")
    if not _cut(column.offsets, rows, len(data)):
        raise _misshapen(column, "offsets do not cut its text")
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _misshapen(column, "text is not UTF-8") from error
    _check_cuts(column, np.frombuffer(column.offsets, _OFFSETS))


_OWN = re.compile(r"fjord_[a-z]+_(?P<field>.*)", re.DOTALL)
"""What :func:`measure_column` makes of a field, and other columns of Fjord's own with a word before a name."""


@lru_cache(maxsize=16_384)
def _is_column_name(name: str) -> bool:
    """Return whether a column of a batch may have a name: a field's, or one of Fjord's own."""
    found = _OWN.fullmatch(name)
    return is_identifier(name if found is None else found["field"])


def _misshapen(column: Column, what: str) -> FrameError:
    return FrameError("shape", f"column {column.name!r}: {what}")


@cache
def _few_offsets(rows: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return what reads the offsets of so many rows, of which there are few."""
    return struct.Struct(f"<{rows + 1}i").unpack


def _cut(raw: bytes, rows: int, size: int) -> bool:
    """Return whether offsets cut text of this size into so many pieces."""
    if rows <= FEW_ROWS:
        few = _few_offsets(rows)(raw)
        return few[0] == 0 and few[-1] == size and few == tuple(sorted(few))
    many = np.frombuffer(raw, _OFFSETS)
    return int(many[0]) == 0 and int(many[-1]) == size and bool((many[:-1] <= many[1:]).all())


def _check_cuts(column: Column, offsets: npt.NDArray[np.int32]) -> None:
    raw = np.frombuffer(column.data + b"\0", np.uint8)
    if bool(((raw[offsets] & _TOP_TWO_BITS) == _CONTINUES).any()):
        raise _misshapen(column, "offsets cut inside a character")


def make_column(name: str, kind: FieldType, values: Values, order: Order | None = None, unit: str = "") -> Column:
    """Return the column that holds `values` (already checked against the field's type), None for NULL.

    Parameters
    ----------
    name, kind, unit
        As in :class:`Column`.
    values
        One per row. An array has no NULL.
    order
        The places of the values in the wanted order; None leaves them as they are.
    """
    if isinstance(values, np.ndarray):
        return Column(name, kind, b"", _ordered(values, _NUMBERS[kind], order), unit=unit)
    known = None not in values
    present = b"" if known else _ordered([value is not None for value in values], np.dtype(np.uint8), order)
    if kind is not FieldType.TEXT:
        filled = values if known else [0 if value is None else value for value in values]
        return Column(name, kind, present, _ordered(filled, _NUMBERS[kind], order), unit=unit)
    encoded = {value: b"" if value is None else str(value).encode() for value in set(values)}  # most texts repeat
    pieces = [encoded[value] for value in values]
    if order is not None:
        pieces = [pieces[place] for place in order.tolist()]
    offsets = np.zeros(len(pieces) + 1, _OFFSETS)
    np.cumsum(list(map(len, pieces)), out=offsets[1:])
    return Column(name, kind, present, b"".join(pieces), offsets.tobytes(), unit)


def _ordered(values: Values, kind: np.dtype[np.generic], order: Order | None) -> bytes:
    numbers = np.array(values, kind)
    return (numbers if order is None else numbers[order]).tobytes()


def make_columns(
    schema: StreamSchema,
    starts_us: Sequence[int] | npt.NDArray[np.int64],
    motes: Sequence[str],
    at_default_rate: Sequence[bool] | npt.NDArray[np.bool_],
    values: Mapping[FieldName, Sequence[Value]],
    *,
    order: Order | None = None,
) -> tuple[Column, ...]:
    """Return the columns of a batch in the order of the wire: those of Fjord, then the stream's fields.

    A field that `values` lacks is NULL in every row. `order` is as in :func:`make_column`.
    """
    nothing: list[Value] = [None] * len(starts_us)
    return (
        make_column(START_COLUMN, FieldType.INTEGER, starts_us, order),
        make_column(MOTE_COLUMN, FieldType.TEXT, motes, order),
        make_column(DEFAULT_RATE_COLUMN, FieldType.BOOLEAN, at_default_rate, order),
        *(
            make_column(field.name, field.type, values.get(field.name, nothing), order, field.unit)
            for field in schema.fields
        ),
    )


def aggregate_columns(
    schema: StreamSchema, values: Mapping[str, Sequence[Value]], rows: int, order: Order | None = None
) -> tuple[Column, ...]:
    """Return the columns of :func:`aggregate_fields`, as :func:`make_columns` does."""
    nothing: list[Value] = [None] * rows
    return tuple(
        make_column(field.name, field.type, values.get(field.name, nothing), order)
        for field in aggregate_fields(schema)
    )


def wire_fields(schema: StreamSchema) -> tuple[Field, ...]:
    """Return name and type of every column a batch of this stream has, in order."""
    return (
        Field(START_COLUMN, FieldType.INTEGER),
        Field(MOTE_COLUMN, FieldType.TEXT),
        Field(DEFAULT_RATE_COLUMN, FieldType.BOOLEAN),
        *schema.fields,
    )


def measure_column(measure: Measure, field: FieldName) -> str:
    """Return the column that holds a measure of a field.

    Examples
    --------
    >>> measure_column(Measure.SUM, "speed")
    'fjord_sum_speed'
    """
    return f"fjord_{measure.value}_{field}"


@lru_cache(maxsize=1024)
def aggregate_fields(schema: StreamSchema) -> tuple[Field, ...]:
    """Return name and type of the columns that distinguish aggregates and events from samples, in order."""
    return (
        Field(FINGERPRINT_COLUMN, FieldType.TEXT),
        Field(COVERED_BY_COLUMN, FieldType.TEXT),
        Field(PANE_COLUMN, FieldType.INTEGER),
        Field(SAMPLES_COLUMN, FieldType.INTEGER),
        *(
            Field(measure_column(measure, field.name), FieldType.INTEGER if measure is Measure.COUNT else field.type)
            for field in schema.sampled
            if field.type in (FieldType.INTEGER, FieldType.REAL)
            for measure in DEVICE_MEASURES
        ),
    )


COMPLETENESS_FIELDS = (Field(EXPECTED_COLUMN, FieldType.INTEGER), Field(MISSING_COLUMN, FieldType.INTEGER))
"""Name and type of the columns with counts of expected and missing samples, in order."""


def encode_batch(batch: Batch) -> bytes:
    """Return the bytes of a batch.

    Raises
    ------
    FrameError
        With reason ``size`` if it is larger than a batch may be.
    """
    payload = encode(batch)
    if len(payload) > MAX_BATCH_BYTES:
        raise FrameError(
            "size",
            f"batch of {batch.rows:,} rows has {len(payload):,} bytes, the limit is {MAX_BATCH_BYTES:,}",
            hint="split it into smaller batches",
        )
    return payload


decode_batch = FrameDecoder(Batch, max_bytes=MAX_BATCH_BYTES)
decode_ack = FrameDecoder(Ack, max_bytes=64 * 1024)
decode_resumption = FrameDecoder(Resumption, max_bytes=64 * 1024)

__all__ = [
    "COMPLETENESS_FIELDS",
    "COVERED_BY_COLUMN",
    "DEFAULT_RATE_COLUMN",
    "EXPECTED_COLUMN",
    "FINGERPRINT_COLUMN",
    "MISSING_COLUMN",
    "MOTE_COLUMN",
    "PANE_COLUMN",
    "SAMPLES_COLUMN",
    "START_COLUMN",
    "VERSION",
    "Ack",
    "Batch",
    "Column",
    "Rejection",
    "Resumption",
    "aggregate_columns",
    "aggregate_fields",
    "check_column",
    "decode_ack",
    "decode_batch",
    "decode_resumption",
    "encode_batch",
    "make_column",
    "make_columns",
    "measure_column",
    "wire_fields",
]
