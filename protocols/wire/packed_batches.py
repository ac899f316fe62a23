"""Packed batches: what proxies send, in one buffer behind one description of its columns.

A cluster receives tens of thousands of small batches a second that have the same columns. It reads their description
once, computes where each column is in the buffer of a batch, and joins the buffers of all batches before it looks at
values. The buffer of a batch of `rows` rows, everything little-endian::

    values    of each column without texts   8 bytes a row (integer, real) or 1 (boolean)
    lengths   of each column with texts      4 bytes a row
    presence  of each nullable column        (rows + 7) // 8 bytes, bit 0 of the first for the first row: 0 for NULL
    texts     of each column with texts      the UTF-8 bytes of all values, one after another

Decision 0081 (docs/decisions/0081-batches-in-one-buffer.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from protocols.errors import FrameError
from protocols.wire.batch_columns import (
    DEFAULT_RATE_COLUMN,
    FEW_ROWS,
    MOTE_COLUMN,
    START_COLUMN,
    VALUE_BYTES,
    Column,
    ColumnName,
    fault_of_text,
    few_numbers,
    is_column_name,
    misshapen,
)
from protocols.wire.frames import KIBIBYTE, MEBIBYTE, VERSION, Frame, Microseconds
from protocols.wire.names import LONGEST_NAME
from protocols.wire.streams import FieldType

MAX_BATCH_ROWS = 1_000_000
MAX_COLUMNS = 1_600
MAX_DESCRIPTION_BYTES = 256 * KIBIBYTE
LENGTH_BYTES = 4
"""Of the length of a text."""
NEVER_NULL = (START_COLUMN, MOTE_COLUMN, DEFAULT_RATE_COLUMN)
REMEMBERED_BYTES = MEBIBYTE
"""Of descriptions; what is read of them takes up to 20 times as much memory. Then all are forgotten: to read one again
takes some microseconds a column, so that a sender of ever new ones costs others little.
"""
_LENGTHS = np.dtype("<u4")


class ColumnDescription(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One column of a packed batch: its name, type and unit as in :class:`Column`, and whether it may have NULL."""

    name: ColumnName
    type: FieldType
    unit: Annotated[str, Meta(max_length=32)] = ""
    nullable: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BufferLayout:
    """Where the columns of a batch are in its buffer.

    Parameters
    ----------
    columns
        In order.
    starts, widths
        Of each column: how many bytes a row takes before its values or lengths, and how many these take.
    lengths_start, row_bytes
        How many a row takes before the lengths of texts, and with them.
    nullable
        By place of a column that may have NULL: its number among these.
    texts
        Places of the columns with texts.
    """

    columns: tuple[ColumnDescription, ...]
    starts: tuple[int, ...]
    widths: tuple[int, ...]
    lengths_start: int
    row_bytes: int
    nullable: dict[int, int]
    texts: tuple[int, ...]

    @classmethod
    def of(cls, columns: Sequence[ColumnDescription]) -> BufferLayout:
        """Return the layout of batches with these columns."""
        widths = [VALUE_BYTES.get(each.type, LENGTH_BYTES) for each in columns]
        texts = [place for place, each in enumerate(columns) if each.type is FieldType.TEXT]
        in_buffer = [place for place, each in enumerate(columns) if each.type is not FieldType.TEXT] + texts
        starts = dict(zip(in_buffer, accumulate((widths[place] for place in in_buffer), initial=0), strict=False))
        nullable = [place for place, each in enumerate(columns) if each.nullable]
        return cls(
            tuple(columns),
            tuple(starts[place] for place in range(len(columns))),
            tuple(widths),
            sum(widths) - LENGTH_BYTES * len(texts),
            sum(widths),
            {place: number for number, place in enumerate(nullable)},
            tuple(texts),
        )

    def values(self, place: int, rows: int) -> tuple[int, int]:
        """Return where the values of a column begin and end, or the lengths of its texts."""
        start = self.starts[place]
        return rows * start, rows * (start + self.widths[place])

    def presence(self, place: int, rows: int) -> tuple[int, int]:
        """Return where a nullable column has its bits of presence."""
        size = (rows + 7) >> 3
        begin = rows * self.row_bytes + self.nullable[place] * size
        return begin, begin + size

    def present(self, data: bytes, place: int, rows: int) -> bytes:
        """Return 1 for each row that has a value in a column and 0 for NULL; nothing if no row has NULL."""
        if place not in self.nullable:
            return b""
        begin, end = self.presence(place, rows)
        there = np.unpackbits(np.frombuffer(data[begin:end], np.uint8), count=rows, bitorder="little")
        return b"" if there.all() else there.tobytes()

    def bytes_before_texts(self, rows: int) -> int:
        """Return where the texts begin."""
        return rows * self.row_bytes + ((rows + 7) >> 3) * len(self.nullable)

    def text_bytes(self, data: bytes, rows: int) -> int:
        """Return how many bytes all texts take, of a buffer that is not too short."""
        count, begin = rows * len(self.texts), rows * self.lengths_start
        if count <= FEW_ROWS:
            return sum(_few_lengths(count)(data, begin))
        return int(np.frombuffer(data, _LENGTHS, count, begin).sum(dtype=np.int64))

    def text_spans(self, data: bytes, rows: int) -> Iterator[tuple[int, int]]:
        """Yield where the texts of each column with texts begin and end."""
        if rows <= FEW_ROWS:
            read = _few_lengths(rows)
            sizes = [sum(read(data, rows * self.starts[place])) for place in self.texts]
        else:
            sizes = [int(self.lengths(data, place, rows).sum(dtype=np.int64)) for place in self.texts]
        return pairwise(accumulate(sizes, initial=self.bytes_before_texts(rows)))

    def lengths(self, data: bytes, place: int, rows: int) -> npt.NDArray[np.uint32]:
        """Return the lengths of the texts of a column."""
        return np.frombuffer(data, _LENGTHS, rows, rows * self.starts[place])

    def cuts(self, data: bytes, place: int, rows: int) -> Sequence[int] | npt.NDArray[np.int64]:
        """Return where each of the texts of a column ends in all of its texts."""
        if rows <= FEW_ROWS:
            return list(accumulate(_few_lengths(rows)(data, rows * self.starts[place])))
        return np.cumsum(self.lengths(data, place, rows), dtype=np.int64)


_few_lengths = few_numbers("I")


WRITER_BYTES = 8
Writer = Annotated[bytes, Meta(max_length=WRITER_BYTES)]
"""The process of a proxy that wrote a batch to its spool: a number that it drew. Empty for unknown."""


class PackedBatch(Frame, frozen=True, gc=False):
    """Proxy to cluster: consecutive tuples of one stream, as in :class:`protocols.wire.batches.Batch`, packed.

    Parameters
    ----------
    proxy, epoch, stream, sequence, watermark_us, sampling, rows
        As there. The names are not checked as names: receivers compare them with those that they know.
    description
        A MessagePack array of :class:`ColumnDescription`. The same bytes describe the same columns, so that they are
        read once.
    data
        The buffer described above.
    writer, follows
        As there; nothing of a proxy of an earlier version, and to clusters of one.
    """

    proxy: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    stream: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    sequence: Annotated[int, Meta(ge=1, lt=2**62)]
    watermark_us: Microseconds
    sampling: bool
    rows: Annotated[int, Meta(ge=0, le=MAX_BATCH_ROWS)]
    description: Annotated[bytes, Meta(max_length=MAX_DESCRIPTION_BYTES)]
    data: bytes
    writer: Writer = b""
    follows: Writer = b""

    def __post_init__(self) -> None:
        if self.version != VERSION:
            return  # which is refused by its version
        layout, rows, data = read_description(self.description), self.rows, self.data
        begin = layout.bytes_before_texts(rows)
        if len(data) < begin or len(data) != begin + layout.text_bytes(data, rows):
            raise FrameError("shape", f"{len(data)} bytes do not hold {rows} rows of {len(layout.columns)} columns")
        # Numbers are hardly ever ASCII, so only the texts are looked at.
        if layout.texts and not data[begin:].isascii():
            _check_texts(layout, data, rows)

    @property
    def layout(self) -> BufferLayout:
        """Where the columns are in the buffer."""
        return read_description(self.description)


_descriptions = msgspec.msgpack.Decoder(Annotated[tuple[ColumnDescription, ...], Meta(max_length=MAX_COLUMNS)])


class Descriptions:
    """The descriptions of batches that were read, so that each is read once."""

    def __init__(self) -> None:
        self.known: dict[bytes, BufferLayout] = {}
        """Those that were read and are not forgotten, by their bytes."""
        self._bytes = 0

    def read(self, raw: bytes) -> BufferLayout:
        """Return the layout of batches with these columns.

        Raises
        ------
        FrameError
            With reason ``shape`` if these are no descriptions of columns.
        """
        found = self.known.get(raw)
        return self._read(raw) if found is None else found

    def _read(self, raw: bytes) -> BufferLayout:
        found = _read_description(raw)
        self._bytes += len(raw)
        if self._bytes > REMEMBERED_BYTES:
            self.known, self._bytes = {}, len(raw)
        self.known[raw] = found
        return found


def _read_description(raw: bytes) -> BufferLayout:
    try:
        columns = _descriptions.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError("shape", f"the columns of a batch cannot be read: {error}") from error
    for each in columns:
        if not is_column_name(each.name):
            raise misshapen(each.name, "no column can have this name")
        if each.type is not FieldType.TEXT and each.type not in VALUE_BYTES:
            raise misshapen(each.name, f"a batch has no values of type {each.type.value}")
    return BufferLayout.of(columns)


read_description = Descriptions().read


def pack(columns: Sequence[Column], rows: int) -> tuple[bytes, bytes]:
    """Return the description and the buffer of some columns, each of `rows` rows."""
    described = [
        ColumnDescription(each.name, each.type, each.unit, bool(each.present) or each.name not in NEVER_NULL)
        for each in columns
    ]
    values = [each.data for each in columns if each.type is not FieldType.TEXT]
    lengths = [_lengths_of(each) for each in columns if each.type is FieldType.TEXT]
    present = [bits_of(each.present, rows) for each, found in zip(columns, described, strict=True) if found.nullable]
    texts = [each.data for each in columns if each.type is FieldType.TEXT]
    return _encoder.encode(described), b"".join((*values, *lengths, *present, *texts))


_encoder = msgspec.msgpack.Encoder()


def unpack(layout: BufferLayout, data: bytes, rows: int) -> tuple[Column, ...]:
    """Return the columns of a buffer that holds `rows` rows of them."""
    texts = dict(zip(layout.texts, layout.text_spans(data, rows), strict=True))
    return tuple(_column(layout, data, rows, place, texts.get(place)) for place in range(len(layout.columns)))


def _column(layout: BufferLayout, data: bytes, rows: int, place: int, text: tuple[int, int] | None) -> Column:
    described, present = layout.columns[place], layout.present(data, place, rows)
    if text is None:
        begin, end = layout.values(place, rows)
        return Column(described.name, described.type, present, data[begin:end], unit=described.unit)
    offsets = np.zeros(rows + 1, "<i4")
    np.cumsum(layout.lengths(data, place, rows), out=offsets[1:])
    begin, end = text
    return Column(described.name, described.type, present, data[begin:end], offsets.tobytes(), described.unit)


def _check_texts(layout: BufferLayout, data: bytes, rows: int) -> None:
    for place, (begin, end) in zip(layout.texts, layout.text_spans(data, rows), strict=True):
        fault = fault_of_text(data[begin:end], partial(layout.cuts, data, place, rows))
        if fault is not None:
            raise misshapen(layout.columns[place].name, fault)


def _lengths_of(column: Column) -> bytes:
    return np.diff(np.frombuffer(column.offsets, "<i4")).tobytes()


def bits_of(present: bytes, rows: int) -> bytes:
    """Return a bit for each row: 1 where there is a value, and after the last row 0; nothing stands for no NULL."""
    if present:
        return np.packbits(np.frombuffer(present, np.uint8), bitorder="little").tobytes()
    whole, rest = divmod(rows, 8)
    return b"\xff" * whole + (bytes(((1 << rest) - 1,)) if rest else b"")
