"""Batches: columns survive the wire, and buffers that do not fit are refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import FrameError
from protocols.wire.batches import (
    DEFAULT_RATE_COLUMN,
    MOTE_COLUMN,
    START_COLUMN,
    Batch,
    Column,
    decode_batch,
    encode_batch,
    make_column,
    make_columns,
    wire_fields,
)
from protocols.wire.frames import Value, encode
from protocols.wire.streams import FIELD_TYPES, Field, FieldType, StreamSchema

VALUES: dict[FieldType, st.SearchStrategy[Value]] = {
    FieldType.INTEGER: st.integers(-(2**63), 2**63 - 1),
    FieldType.REAL: st.floats(allow_nan=False),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.TEXT: st.text(max_size=8),
}
TRAFFIC = StreamSchema("traffic", (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL)))


@given(st.sampled_from(FIELD_TYPES), st.data())
def test_column_gives_back_its_values(kind: FieldType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=12))
    column = make_column("x", kind, values)
    raw = msgspec.msgpack.encode(column)
    assert msgspec.msgpack.decode(raw, type=Column).values(len(values)) == values


def batch(*columns: Column, rows: int) -> Batch:
    return Batch(1, "roadside", "e1", "traffic", 1, 0, True, rows, columns)


def test_batch_has_start_mote_and_every_field_and_missing_ones_are_null() -> None:
    columns = make_columns(TRAFFIC, [5, 6], ["m1", "m2"], [True, False], {"speed": [1.0, 2.0]})
    decoded = decode_batch(encode_batch(batch(*columns, rows=2)))
    assert [column.name for column in decoded.columns] == [
        START_COLUMN,
        MOTE_COLUMN,
        DEFAULT_RATE_COLUMN,
        "sensor",
        "speed",
    ]
    assert [column.name for column in decoded.columns] == [field.name for field in wire_fields(TRAFFIC)]
    assert [column.values(2) for column in decoded.columns] == [
        [5, 6],
        ["m1", "m2"],
        [True, False],
        [None, None],
        [1.0, 2.0],
    ]


@pytest.mark.parametrize(
    ("column", "what"),
    [
        (Column("x", FieldType.INTEGER, b"", b"\0" * 15), "bytes of integer"),
        (Column("x", FieldType.INTEGER, b"\1", b"\0" * 16), "presence"),
        (Column("x", FieldType.INTEGER, b"\1\2", b"\0" * 16), "presence"),
        (Column("x", FieldType.REAL, b"", b"\0" * 16, b"\0" * 12), "bytes of real"),
        (Column("x", FieldType.TEXT, b"", b"ab", b"\0" * 8), "offsets"),
        (Column("x", FieldType.TEXT, b"", b"ab", bytes([0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0])), "offsets"),
        (Column("x", FieldType.TEXT, b"", b"ab", bytes([1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])), "offsets"),
        (Column("x", FieldType.TEXT, b"", b"\xff\xfe", bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])), "UTF-8"),
        (Column("x", FieldType.TEXT, b"", "ü".encode(), bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])), "inside"),
    ],
)
def test_buffers_that_do_not_hold_the_rows_are_refused(column: Column, what: str) -> None:
    good = make_column("x", column.type, [None, None])
    raw = msgspec.msgpack.decode(encode(batch(good, rows=2)))
    raw[8] = [msgspec.to_builtins(column)]
    raw[8][0][2:5] = [column.present, column.data, column.offsets]
    with pytest.raises(FrameError, match=what) as caught:
        decode_batch(msgspec.msgpack.encode(raw))
    assert caught.value.reason == "shape"


@pytest.mark.parametrize("kind", sorted(FieldType))
def test_a_column_without_rows_is_checked_as_any_other(kind: FieldType) -> None:
    raw = msgspec.msgpack.decode(encode(batch(make_column("x", FieldType.INTEGER, []), rows=0)))
    raw[8][0][1] = kind.value
    if kind in {FieldType.INTEGER, FieldType.REAL, FieldType.BOOLEAN}:
        assert decode_batch(msgspec.msgpack.encode(raw)).rows == 0
    else:
        with pytest.raises(FrameError, match=r"offsets|no values of type"):
            decode_batch(msgspec.msgpack.encode(raw))


def test_a_plain_column_of_an_impossible_name_is_refused() -> None:
    raw = msgspec.msgpack.decode(encode(batch(make_column("x", FieldType.INTEGER, [1]), rows=1)))
    raw[8][0][0] = "not a name"
    with pytest.raises(FrameError, match="no column can have this name"):
        decode_batch(msgspec.msgpack.encode(raw))


def test_too_large_a_batch_is_refused_by_its_writer() -> None:
    text = make_column("x", FieldType.TEXT, ["x" * 9_000_000])
    with pytest.raises(FrameError, match="limit"):
        encode_batch(batch(text, rows=1))
