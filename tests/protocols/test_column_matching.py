"""Declared against offered columns: order and case do not matter, other columns are left out, nothing is converted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.streams import FIELD_TYPES, MOST_NAMED, Field, FieldType, StreamSchema, match_columns

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
SENSOR = Field("sensor", TEXT, fixed=True)
LANE, OCC, SPEED = Field("lane", INTEGER), Field("occ", REAL), Field("speed", REAL, "mph")


def stream(*fields):
    return StreamSchema("roads", fields)


def test_columns_match_in_any_order():
    found = match_columns(stream(SENSOR, LANE, OCC, Field("speed", REAL)), stream(SENSOR, SPEED, LANE, OCC))
    assert found.fits
    assert dict(found.names) == {"sensor": "sensor", "lane": "lane", "occ": "occ", "speed": "speed"}
    assert found.ignored == ()
    assert found.reasons() == ()


def test_names_have_no_case_and_keep_their_spelling_on_either_side():
    found = match_columns(stream(Field("Speed", REAL), Field("LANE", INTEGER)), stream(LANE, SPEED))
    assert list(found.names.items()) == [("Speed", "speed"), ("LANE", "lane")]
    assert found.fits


def test_other_offered_columns_are_left_out():
    found = match_columns(stream(LANE), stream(SPEED, LANE, OCC))
    assert (found.fits, dict(found.names), found.ignored) == (True, {"lane": "lane"}, ("speed", "occ"))


@pytest.mark.parametrize(
    ("declared", "offered", "reason"),
    [
        (LANE, Field("lane", REAL), "lane is declared as INTEGER and offered as REAL"),
        (Field("lane", REAL), LANE, "lane is declared as REAL and offered as INTEGER"),
        (Field("lane", BOOLEAN), LANE, "lane is declared as BOOLEAN and offered as INTEGER"),
        (Field("sensor", TEXT), SENSOR, "sensor is declared as TEXT and offered as TEXT FIXED"),
        (Field("Lane", INTEGER, fixed=True), LANE, "Lane is declared as INTEGER FIXED and offered as INTEGER"),
        (
            Field("speed", REAL, "km/h"),
            SPEED,
            "speed is declared as REAL UNIT 'km/h' and offered as REAL UNIT 'mph'",
        ),
    ],
)
def test_another_column_of_the_name_is_no_match(declared, offered, reason):
    found = match_columns(stream(OCC, declared), stream(offered, OCC))
    assert not found.fits
    assert found.reasons() == (reason,)
    assert dict(found.names) == {"occ": "occ"}


def test_a_missing_column_is_named_with_candidates():
    found = match_columns(stream(LANE, OCC), stream(LANE, Field("occupancy", REAL)))
    assert found.reasons() == (
        "occ is declared as REAL and not offered",
        "offered and not declared: occupancy",
    )


@pytest.mark.parametrize(("declared", "offered"), [("", "mph"), ("mph", ""), ("mph", "mph"), ("", "")])
def test_a_unit_that_one_side_leaves_out_is_no_contradiction(declared, offered):
    assert match_columns(stream(Field("speed", REAL, declared)), stream(Field("speed", REAL, offered))).fits


def test_sentences_are_bounded_however_many_columns_there_are():
    declared = stream(*(Field(f"d{n}", REAL) for n in range(256)))
    offered = stream(*(Field(f"o{n}", REAL) for n in range(256)))
    *named, more, besides = match_columns(declared, offered).reasons()
    assert len(named) == MOST_NAMED
    assert more == "and 248 more columns do not match"
    assert besides.endswith("o7, and 248 more")


FIELDS = st.builds(
    Field,
    st.sampled_from(["a", "A", "b", "B", "c", "d"]),
    st.sampled_from(FIELD_TYPES),
    st.sampled_from(["", "mph", "V"]),
    st.booleans(),
)
SCHEMAS = st.lists(FIELDS, min_size=1, max_size=5, unique_by=lambda each: each.name.casefold()).map(
    lambda fields: stream(*fields)
)


@given(SCHEMAS, SCHEMAS, st.randoms(use_true_random=False))
def test_every_column_is_matched_missing_or_ignored_whatever_the_order(declared, offered, random):
    found = match_columns(declared, offered)
    assert sorted([*found.names, *(each.column for each in found.mismatches)]) == sorted(declared.field_names)
    assert set(found.names.values()) | set(found.ignored) <= set(offered.field_names)
    assert {name.casefold() for name in found.ignored}.isdisjoint(name.casefold() for name in declared.field_names)
    for name, other in found.names.items():
        assert name.casefold() == other.casefold()
        assert (declared.field(name).type, declared.field(name).fixed) == (
            offered.field(other).type,
            offered.field(other).fixed,
        )
    shuffled = random.sample(offered.fields, len(offered.fields))
    assert match_columns(declared, stream(*shuffled)).names == found.names
    assert match_columns(declared, declared).fits
