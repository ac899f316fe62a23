from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import SchemaError
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import FIELD_TYPES, Field, FieldType, StreamSchema, check_value
from proxy.records.decoding import RowDecoder

S = 1_000_000
PLACE = Field("place", FieldType.TEXT, fixed=True)
SAMPLED = tuple(Field(f"f_{each.value}", each) for each in FIELD_TYPES)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.sampled_from([-(2**63) - 1, -(2**63), 2**63 - 1, 2**63])
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
)


def decoder(fields, *names):
    schema = StreamSchema("s", tuple(fields))
    announcement = Announcement(VERSION, "m", 1, "", schema, {"place": "here"}, S, S)
    return RowDecoder(announcement, SamplingProgram(tuple(names), S))


def typed(row):
    return [(type(each), each) for each in row]


@pytest.mark.parametrize(
    ("fields", "names", "row"),
    [
        ("PABC", "ABC", ("here", 1, 2, 3)),
        ("PABC", "CA", ("here", 2, None, 1)),
        ("APBC", "ABC", (1, "here", 2, 3)),
        ("PABC", "C", ("here", None, None, 1)),
        ("A", "A", (1,)),
    ],
)
def test_values_find_their_places(fields, names, row):
    known = {"P": PLACE} | {each: Field(each, FieldType.INTEGER) for each in "ABC"}
    made = decoder([known[each] for each in fields], *names)
    assert made.row(range(1, len(names) + 1)) == row
    assert made.rows([]) == ()


@given(st.lists(st.lists(VALUES, min_size=3, max_size=5).map(tuple), max_size=3), st.permutations(SAMPLED))
def test_rows_are_checked_as_by_check_value(samples, fields):
    made = decoder([PLACE, *fields], *(each.name for each in fields))
    try:
        expected = [("here", *(check_value(*each) for each in zip(fields, values, strict=True))) for values in samples]
    except (SchemaError, ValueError):  # of another type, or of another length
        with pytest.raises(SchemaError):
            made.rows(samples)
    else:
        assert list(map(typed, made.rows(samples))) == list(map(typed, expected))


def test_fixed_field_is_not_sampled():
    with pytest.raises(SchemaError, match="property of the mote"):
        decoder([PLACE, *SAMPLED], "place")
