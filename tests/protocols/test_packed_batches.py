"""Packed batches: the same values as column by column, and buffers that do not hold what they should are refused."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import FrameError, UnsupportedVersionError
from protocols.wire import packed_batches
from protocols.wire.batches import (
    Batch,
    Column,
    decode_batch,
    decode_packed_batch,
    encode_batch,
    make_column,
    make_columns,
    pack_batch,
    unpack_batch,
)
from protocols.wire.frames import Value, encode
from protocols.wire.packed_batches import MAX_COLUMNS, MAX_DESCRIPTION_BYTES, read_description, unpack
from protocols.wire.streams import FIELD_TYPES, Field, FieldType, StreamSchema
from tests.protocols.test_batches import VALUES

ALL = StreamSchema("all", tuple(Field(kind.value, kind, "mph") for kind in FIELD_TYPES))
Rows = list[dict[str, Value]]
ROW = st.fixed_dictionaries({kind.value: st.none() | VALUES[kind] for kind in FIELD_TYPES})


def batch(rows: Rows) -> Batch:
    values = {field.name: [row[field.name] for row in rows] for field in ALL.fields}
    motes = [f"m{number}" for number in range(len(rows))]
    columns = make_columns(ALL, list(range(len(rows))), motes, [True] * len(rows), values)
    return Batch(1, "p", "e", "all", 7, 2**62, True, len(rows), columns)


def rows_of(found: Batch) -> list[tuple[Value, ...]]:
    return list(zip(*(column.values(found.rows) for column in found.columns), strict=True))


@given(st.lists(ROW, max_size=20) | st.lists(ROW, min_size=2, max_size=2).map(lambda rows: rows * 40))
def test_a_batch_is_the_same_packed_and_column_by_column(rows: Rows) -> None:
    sent = batch(rows)
    packed, of_columns = encode_batch(sent), encode_batch(sent, packed=False)
    assert rows_of(decode_batch(packed)) == rows_of(decode_batch(of_columns)) == rows_of(sent)
    assert decode_packed_batch(packed) == decode_packed_batch(of_columns) == pack_batch(sent)
    found = decode_batch(packed)
    assert [(each.name, each.type, each.unit) for each in found.columns] == [
        (each.name, each.type, each.unit) for each in sent.columns
    ]
    assert msgspec.structs.replace(found, columns=()) == msgspec.structs.replace(sent, columns=())
    assert pack_batch(found) == pack_batch(sent)


def test_the_description_does_not_depend_on_which_values_are_null() -> None:
    row: dict[str, Value] = {"boolean": True, "integer": 1, "real": 2.0, "text": "a"}
    some = pack_batch(batch([row, row, row]))
    others = pack_batch(batch([dict.fromkeys(row)] * 2))
    assert some.description == others.description
    assert read_description(some.description) is read_description(bytes(bytearray(others.description)))


def test_values_lie_where_the_protocol_says() -> None:
    columns = (
        make_column("n", FieldType.INTEGER, [1, None, 3]),
        make_column("t", FieldType.TEXT, ["ab", "", None]),
        make_column("b", FieldType.BOOLEAN, [True, False, True]),
        make_column("u", FieldType.TEXT, ["ü", "x", "y"]),
    )
    packed = pack_batch(Batch(1, "p", "e", "s", 1, 0, True, 3, columns))
    described = [
        ["n", "integer", "", True],
        ["t", "text", "", True],
        ["b", "boolean", "", True],
        ["u", "text", "", True],
    ]
    assert msgpack.unpackb(packed.description) == described
    numbers = [number.to_bytes(8, "little") for number in (1, 0, 3)]
    lengths = [[number.to_bytes(4, "little") for number in each] for each in ((2, 0, 0), (2, 1, 1))]
    bits = [b"\5", b"\3", b"\7", b"\7"]
    parts = [*numbers, b"\1\0\1", *lengths[0], *lengths[1], *bits, b"ab", "üxy".encode()]
    assert packed.data == b"".join(parts)


def changed(sent: Batch, place: int, value: Any) -> bytes:
    raw = msgpack.unpackb(encode_batch(sent))
    raw[place] = value(raw[place]) if callable(value) else value
    return bytes(msgpack.packb(raw))


TEXTS = Batch(
    1, "p", "e", "s", 1, 0, True, 2,
    (make_column("fjord_start_us", FieldType.INTEGER, [1, 2]), make_column("t", FieldType.TEXT, ["é", "ab"])),
)  # fmt: skip
DATA, DESCRIPTION = 9, 8


def described(*columns: list[Any]) -> bytes:
    return bytes(msgpack.packb(list(columns)))


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        (DATA, lambda data: data[:-1], "do not hold"),
        (DATA, lambda data: data + b"x", "do not hold"),
        (DATA, lambda _: b"", "do not hold"),
        (DATA, lambda data: data[:16] + b"\xff" * 8 + data[24:], "do not hold"),
        (DATA, lambda data: data[:16] + b"\1\0\0\0\3\0\0\0" + data[24:], "inside a character"),
        (DATA, lambda data: data[:-4] + b"\xff\xfeab", "UTF-8"),
        (DATA, "text", "Expected `bytes`"),
        (7, 3, "do not hold"),
        (7, 1_000_001, "<= 1000000"),
        (DESCRIPTION, b"", "cannot be read"),
        (DESCRIPTION, described(["t", "text"]) + b"\0", "cannot be read"),
        (DESCRIPTION, described(["not a name", "text"]), "no column can have this name"),
        (DESCRIPTION, described(["t", "decimal"]), "decimal"),
        (DESCRIPTION, described(["t", "text", "", True, 1]), "cannot be read"),
        (DESCRIPTION, described(["t", "text", "m" * 33]), "<= 32"),
        (DESCRIPTION, described(*[["x", "real"]] * (MAX_COLUMNS + 1)), "<= 1600"),
        (DESCRIPTION, b"\0" * (MAX_DESCRIPTION_BYTES + 1), "<= 262144"),
        (1, "", ">= 1"),
        (4, 0, ">= 1"),
    ],
)
def test_what_does_not_hold_the_rows_is_refused(place: int, value: Any, what: str) -> None:
    payload = changed(TEXTS, place, value)
    for decode in (decode_batch, decode_packed_batch):
        with pytest.raises(FrameError, match=what) as caught:
            decode(payload)
        assert caught.value.reason == "shape"


@given(st.data())
def test_no_buffer_is_read_beyond_its_end(data: st.DataObject) -> None:
    """A changed buffer is refused, or is that of other values: of as many rows, all of which can be read."""
    sent = encode(pack_batch(batch(data.draw(st.lists(ROW, min_size=1, max_size=6)))))
    raw = msgpack.unpackb(sent)
    buffer = bytearray(raw[DATA])
    for _ in range(data.draw(st.integers(1, 3))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    raw[DATA] = bytes(buffer[: data.draw(st.integers(0, len(buffer)) | st.just(len(buffer)))])
    try:
        found = decode_packed_batch(bytes(msgpack.packb(raw)))
    except FrameError as error:
        assert error.reason == "shape"
    else:
        assert len(rows_of(unpack_batch(found))) == found.rows


def test_a_column_that_no_batch_may_lack_may_say_that_it_has_null() -> None:
    motes = make_column("fjord_mote", FieldType.TEXT, ["m", None])
    layout = read_description(pack_batch(Batch(1, "p", "e", "s", 1, 0, True, 2, (motes,))).description)
    assert layout.columns[0].nullable
    whole = make_column("fjord_mote", FieldType.TEXT, ["m", "n"])
    layout = read_description(pack_batch(Batch(1, "p", "e", "s", 1, 0, True, 2, (whole,))).description)
    assert not layout.columns[0].nullable


def test_very_wide_batches_are_read_too() -> None:
    columns = tuple(Column(f"c{number}", FieldType.BOOLEAN, b"", b"\1") for number in range(MAX_COLUMNS))
    sent = Batch(1, "p", "e", "s", 1, 0, True, 1, columns)
    packed = pack_batch(sent)
    assert unpack(packed.layout, packed.data, 1) == columns
    assert decode_batch(encode_batch(sent)) == sent


def test_descriptions_are_remembered_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_batches, "REMEMBERED_BYTES", 1_000)
    remembered = packed_batches.Descriptions()
    known = described(["x", "real"])
    for number in range(200):
        layout = remembered.read(known)
        assert remembered.read(known) is layout
        remembered.read(described([f"c{number}", "real"]))
        assert sum(map(len, remembered.known)) <= 1_000
    wide = described(*[[f"c{number}", "real"] for number in range(500)])
    assert remembered.read(wide) is remembered.read(wide)
    assert list(remembered.known) == [wide]


@pytest.mark.parametrize("description", [described(["x", "int8"]), described(["x", "real", "", False, 1]), b""])
def test_a_later_version_is_named_whatever_its_columns(description: bytes) -> None:
    raw = msgpack.unpackb(encode_batch(TEXTS))
    raw[0], raw[DESCRIPTION] = 2, description
    with pytest.raises(UnsupportedVersionError):
        decode_packed_batch(bytes(msgpack.packb(raw)))


def test_what_is_not_looked_at_is_not_refused() -> None:
    """Values of NULL, bits after the last row, and which byte other than 0 is true."""
    column = make_column("b", FieldType.BOOLEAN, [True, None, False])
    sent = Batch(1, "p", "e", "s", 1, 0, True, 3, (column,))
    raw = msgpack.unpackb(encode_batch(sent))
    assert raw[DATA] == b"\1\0\0\5"
    raw[DATA] = b"\7\2\0\xfd"
    found = decode_batch(bytes(msgpack.packb(raw)))
    assert found.columns[0].values(3) == [True, None, False]
