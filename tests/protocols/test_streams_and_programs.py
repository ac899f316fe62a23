"""Stream schemas and sampling programs that no mote or query could use are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import ProgramError, SchemaError
from protocols.wire.frames import Value
from protocols.wire.programs import SLEEP, ListenSchedule, SamplingProgram, first_sample_at_or_after, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema, check_value


@pytest.mark.parametrize("names", [("speed", "speed"), ("speed", "SPEED"), ("fjord_start_us",), ("Fjord_x",)])
def test_schema_refuses_doubled_and_reserved_names(names: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError):
        StreamSchema("s", tuple(Field(name, FieldType.REAL) for name in names))


def test_unknown_field_is_answered_with_those_there_are() -> None:
    schema = StreamSchema("s", (Field("speed", FieldType.REAL), Field("lane", FieldType.INTEGER)))
    with pytest.raises(SchemaError, match="speed, lane"):
        schema.field("sped")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (FieldType.REAL, 3, 3.0),
        (FieldType.REAL, None, None),
        (FieldType.INTEGER, 3, 3),
        (FieldType.BOOLEAN, True, True),
        (FieldType.TEXT, "a", "a"),
    ],
)
def test_a_value_that_fits_its_field_gets_the_type_of_the_field(kind: FieldType, value: Value, expected: Value) -> None:
    found = check_value(Field("x", kind), value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FieldType.REAL, True), (FieldType.REAL, "3"), (FieldType.INTEGER, 3.0), (FieldType.INTEGER, False),
        (FieldType.INTEGER, 2**63), (FieldType.BOOLEAN, 1), (FieldType.TEXT, 1),
    ],
)  # fmt: skip
def test_value_of_another_type_is_refused(kind: FieldType, value: Value) -> None:
    with pytest.raises(SchemaError, match="'x'"):
        check_value(Field("x", kind), value)


def test_programs_that_no_mote_could_run_are_refused() -> None:
    with pytest.raises(ProgramError, match="no field"):
        SamplingProgram((), 1000)
    with pytest.raises(ProgramError, match="twice"):
        SamplingProgram(("a", "a"), 1000)
    with pytest.raises(ProgramError, match="overlap"):
        ListenSchedule(every_us=10, for_us=11)


def test_program_number_depends_on_content_alone() -> None:
    one = SamplingProgram(("speed",), 1000)
    assert program_number(one) == program_number(SamplingProgram(("speed",), 1000)) != 0
    assert program_number(one) != program_number(SamplingProgram(("speed",), 2000))
    assert program_number(SLEEP) == 0


@given(st.integers(-(10**15), 10**15), st.integers(1, 10**12))
def test_first_sample_is_the_least_multiple_not_before(instant_us: int, period_us: int) -> None:
    found = first_sample_at_or_after(instant_us, period_us)
    assert found % period_us == 0
    assert instant_us <= found < instant_us + period_us
