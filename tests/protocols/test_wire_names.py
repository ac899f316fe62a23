"""Names: letters of Unicode in normal form C, without what cannot be seen or looks like something else."""

# ruff: noqa: RUF001 - names that look alike

from __future__ import annotations

import re
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import SchemaError
from protocols.wire.batches import Batch, decode_batch, make_column, measure_column
from protocols.wire.frames import encode
from protocols.wire.names import fault_of_identifier, fault_of_name, folded, is_identifier, normal
from protocols.wire.programs import Measure
from protocols.wire.streams import Field, FieldType, StreamSchema

NAMES = [
    "größe",
    "_x",
    "__",
    "温度",
    "น้ำ",
    "हिन्दी",
    "Δt",
    "µg_m3",
    "ρ_air",
    "сор",
    "датчик_C",
    "a·b",
    "x" * 64,
    "é" * 64,
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_columns(name: str) -> None:
    assert fault_of_identifier(name) is None
    assert fault_of_name(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        ("1a", "begin with a digit"),
        ("٣a", "begin with a digit"),
        ("a b", "' ' is no letter"),
        ("a.b", "'.' is no letter"),
        ("n°", "'°' is no letter"),
        ("x²", "'²' is no letter"),
        ("🚀", "is no letter"),
        ("a\u200db", r"U\+200D in it is no letter"),
        ("a\ufe0fb", r"U\+FE0F in it cannot be seen"),
        ("\u0301a", r"begins with U\+0301"),
        ("e\u0301", "normal form C"),
        ("ａb", "another form of 'a'"),
        ("ﬁx", "another form of 'fi'"),
        ("Ⅳ", "another form of 'IV'"),
        ("sрeed", "the Cyrillic 'р' among Latin letters looks like 'p'"),
        ("x" * 65, "more than 64 characters"),
        ("日" * 43, "more than 128 bytes"),
    ],
)
def test_what_is_no_name(name: str, fault: str) -> None:
    found = fault_of_identifier(name)
    assert found is not None
    assert re.search(fault, found)


@given(st.text(max_size=6))
def test_a_name_has_no_wildcard_separator_or_space_and_is_in_normal_form(name: str) -> None:
    for fault in (fault_of_identifier, fault_of_name):
        if fault(name) is None:
            assert not set(name) & set("+#/\0\\ \t\n@*?'\"")
            assert name.isprintable()
            assert normal(name) == name
            assert not any(map(str.isspace, name))


@given(st.text(st.characters(categories=("L", "Mn", "Nd")), min_size=1, max_size=4))
def test_spellings_of_one_name_are_one(name: str) -> None:
    other = unicodedata.normalize("NFD", name)
    assert folded(other) == folded(name)
    if is_identifier(name):
        assert folded(folded(name)) == folded(name)


def test_names_have_no_case() -> None:
    assert folded("Straße") == folded("STRASSE") == "strasse"
    assert folded("µg") == folded("μg")
    assert folded("I") != folded("ı")


def test_schemas_on_the_wire() -> None:
    decode = msgspec.msgpack.Decoder(StreamSchema).decode
    schema = StreamSchema("straße", (Field("größe", FieldType.REAL), Field("_x", FieldType.INTEGER)))
    assert decode(msgspec.msgpack.encode(schema)) == schema
    for stream, field in (("e\u0301", "x"), ("s", "e\u0301"), ("s", "x²"), ("s", "1x"), ("a b", "x"), ("s", "a b")):
        with pytest.raises((SchemaError, msgspec.ValidationError)):
            decode(msgspec.msgpack.encode([stream, [[field, "real", "", False]]]))
    with pytest.raises(SchemaError, match="two fields"):
        StreamSchema("s", (Field("straße", FieldType.REAL), Field("STRASSE", FieldType.REAL)))


def test_columns_on_the_wire() -> None:
    for name in ("größe", measure_column(Measure.SUM, "größe"), measure_column(Measure.COUNT, "é" * 64)):
        batch = Batch(1, "p", "e", "s", 1, 0, True, 1, (make_column(name, FieldType.REAL, [1.0]),))
        assert decode_batch(encode(batch)).columns[0].name == name
