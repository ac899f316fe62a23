"""Columns of batches: names, values as little-endian buffers, and what every batch of a stream has."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from protocols.errors import FrameError
from protocols.wire.frames import Value
from protocols.wire.names import is_identifier
from protocols.wire.programs import Measure
from protocols.wire.streams import Field, FieldName, FieldType, StreamSchema

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
PREVIOUS_COLUMN = "fjord_previous_us"
"""NULL for a sample, which is stamped at a multiple of its period.

Of a tuple that its device published at an instant of its own: the stamp of the same mote's nearest tuple that came
before it and is not stamped later; the lowest instant, :data:`NO_NEIGHBOUR_US`, if there is none.
"""
NEXT_COLUMN = "fjord_next_us"
"""Of a published tuple that came after one of the same mote with a later stamp: the nearest such stamp; else NULL."""
NO_NEIGHBOUR_US = -(2**62)

_NUMBERS: dict[FieldType, np.dtype[np.generic]] = {
    FieldType.INTEGER: np.dtype("<i8"),
    FieldType.REAL: np.dtype("<f8"),
    FieldType.BOOLEAN: np.dtype("u1"),
}
DEVICE_MEASURES = (Measure.COUNT, Measure.SUM, Measure.MIN, Measure.MAX)
"""What queries ask of aggregates."""
VALUE_BYTES = {kind: numbers.itemsize for kind, numbers in _NUMBERS.items()}
"""What a value takes in the buffer of a column; texts have no fixed size."""
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


def check_column(column: Column, rows: int) -> None:
    """Check that the buffers of `column` hold exactly `rows` rows.

    Raises
    ------
    FrameError
        With reason ``shape``.
    """
    name, present, data = column.name, column.present, column.data
    if not is_column_name(name):
        raise misshapen(name, "no column can have this name")
    if present and (len(present) != rows or present.translate(None, b"\0\1")):
        raise misshapen(name, f"presence of {len(present)} rows in a batch of {rows}, each 0 or 1")
    if column.type is not FieldType.TEXT:
        if column.type not in VALUE_BYTES:
            raise misshapen(name, f"a batch has no values of type {column.type.value}")
        expected = rows * VALUE_BYTES[column.type]
        if len(data) != expected or column.offsets:
            raise misshapen(name, f"{len(data)} bytes of {column.type.value} for {rows} rows, expected {expected}")
        return
    if len(column.offsets) != (rows + 1) * _OFFSET_BYTES:
        raise misshapen(name, f"{len(column.offsets)} bytes of offsets for {rows} rows")
    if not _cut(column.offsets, rows, len(data)):
        raise misshapen(name, "offsets do not cut its text")
    if (fault := fault_of_text(data, lambda: np.frombuffer(column.offsets, _OFFSETS))) is not None:
        raise misshapen(name, fault)


_OWN = re.compile(r"fjord_[a-z]+_(?P<field>.*)", re.DOTALL)
"""What :func:`measure_column` makes of a field, and other columns of Fjord's own with a word before a name."""


@lru_cache(maxsize=16_384)
def is_column_name(name: str) -> bool:
    """Return whether a column of a batch may have a name: a field's, or one of Fjord's own."""
    found = _OWN.fullmatch(name)
    return is_identifier(name if found is None else found["field"])


def misshapen(column: str, what: str) -> FrameError:
    """Return the error about a column of a batch that is not as it has to be."""
    return FrameError("shape", f"column {column!r}: {what}")


def few_numbers(code: str) -> Callable[[int], Callable[[bytes, int], tuple[int, ...]]]:
    """Return what makes, for so few numbers, what reads them out of a buffer from some place on.

    Parameters
    ----------
    code
        The kind of number, as for :mod:`struct`; little-endian.
    """
    return cache(lambda count: struct.Struct(f"<{count}{code}").unpack_from)


_few_offsets = few_numbers("i")


def _cut(raw: bytes, rows: int, size: int) -> bool:
    """Return whether offsets cut text of this size into so many pieces."""
    if rows <= FEW_ROWS:
        few = _few_offsets(rows + 1)(raw, 0)
        return few[0] == 0 and few[-1] == size and few == tuple(sorted(few))
    many = np.frombuffer(raw, _OFFSETS)
    return int(many[0]) == 0 and int(many[-1]) == size and bool((many[:-1] <= many[1:]).all())


def fault_of_text(text: bytes, cuts: Callable[[], Sequence[int] | npt.NDArray[np.integer[Any]]]) -> str | None:
    """Return what is wrong with UTF-8 that is cut into values at some places; None if nothing is.

    Most texts are ASCII, for which `cuts` is not called.
    """
    if text.isascii():
        return None
    try:
        text.decode()
    except UnicodeDecodeError:
        return "text is not UTF-8"
    places, ended = cuts(), text + b"\0"
    if isinstance(places, np.ndarray):
        continued = bool(((np.frombuffer(ended, np.uint8)[places] & _TOP_TWO_BITS) == _CONTINUES).any())
    else:
        continued = any(ended[place] & _TOP_TWO_BITS == _CONTINUES for place in places)
    return "texts are cut inside a character" if continued else None


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

PUBLISHED_FIELDS = (Field(PREVIOUS_COLUMN, FieldType.INTEGER), Field(NEXT_COLUMN, FieldType.INTEGER))
"""Name and type of the columns that tell published tuples from samples, in order.

A tuple is the first of its mote in a period, whatever the period, if neither neighbour lies in it. So a query takes the
first of each period without keeping any state.
"""
