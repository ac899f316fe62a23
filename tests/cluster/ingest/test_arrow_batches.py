"""From the wire to Arrow: same values under the same names, late rows left out, wrong columns rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.ingest.arrow_batches import AdmittedRows, first_and_last, late_rows, to_arrow
from cluster.ingest.batch_layouts import Layouts
from cluster.storage.stream_tables import arrow_schema
from protocols.errors import SchemaError
from protocols.wire.batches import (
    MOTE_COLUMN,
    START_COLUMN,
    Batch,
    Column,
    aggregate_columns,
    make_column,
    make_columns,
    pack_batch,
)
from protocols.wire.frames import Value
from protocols.wire.streams import FIELD_TYPES, Field, FieldType, StreamSchema
from tests.protocols.test_batches import VALUES

if TYPE_CHECKING:
    import pyarrow as pa

ALL = StreamSchema("all", tuple(Field(kind.value, kind) for kind in FIELD_TYPES))


def batch(schema: StreamSchema, rows: list[dict[str, Value]]) -> Batch:
    values = {field.name: [row[field.name] for row in rows] for field in schema.fields}
    columns = make_columns(schema, list(range(len(rows))), ["m"] * len(rows), [True] * len(rows), values)
    return Batch(1, "p", "e", schema.name, 1, 0, True, len(rows), columns)


def converted(sent: Batch, schema: StreamSchema, not_before_us: int | None = None) -> pa.Table:
    packed = pack_batch(sent)
    return to_arrow([AdmittedRows(packed.data, packed.rows, Layouts(schema).of(packed), not_before_us)], schema)


def batch_mismatch(sent: Batch, schema: StreamSchema) -> str | None:
    return Layouts(schema).mismatch(pack_batch(sent))


@given(
    st.lists(
        st.fixed_dictionaries({kind.value: st.none() | VALUES[kind] for kind in FIELD_TYPES}), min_size=1, max_size=8
    )
)
def test_values_of_a_batch_are_the_same_in_arrow(rows: list[dict[str, Value]]) -> None:
    table = converted(batch(ALL, rows), ALL)
    assert table.schema == arrow_schema(ALL)
    assert table.select([kind.value for kind in FIELD_TYPES]).to_pylist() == rows
    assert table.column(START_COLUMN).to_pylist() == list(range(len(rows)))
    assert set(table.column(MOTE_COLUMN).to_pylist()) <= {"m"}


def test_columns_are_found_by_name_whatever_their_order_and_case() -> None:
    announced = StreamSchema("roads", (Field("SPEED", FieldType.REAL, "mph"), Field("lane", FieldType.INTEGER)))
    declared = StreamSchema("roads", (Field("lane", FieldType.INTEGER), Field("speed", FieldType.REAL)))
    table = converted(batch(announced, [{"SPEED": 66.5, "lane": 3}, {"SPEED": None, "lane": None}]), declared)
    assert table.schema == arrow_schema(declared)
    assert table.select(["lane", "speed"]).to_pylist() == [{"lane": 3, "speed": 66.5}, {"lane": None, "speed": None}]


def test_columns_that_are_not_declared_are_dropped() -> None:
    declared = StreamSchema("all", (Field("real", FieldType.REAL),))
    row = {"boolean": True, "integer": 1, "real": 2.5, "text": "a"}
    assert converted(batch(ALL, [row]), declared).column_names[3:] == ["real"]
    assert batch_mismatch(batch(ALL, [row]), declared) is None


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (Field("real", FieldType.INTEGER), "real is declared as INTEGER and offered as REAL UNIT 'mph'"),
        (Field("real", FieldType.REAL, "km/h"), "real is declared as REAL UNIT 'km/h' and offered as REAL UNIT 'mph'"),
        (Field("occ", FieldType.REAL), "occ is declared as REAL and not offered; offered and not declared: real"),
    ],
)
def test_wrong_columns_are_rejected_by_name(declared: Field, reason: str) -> None:
    sent = batch(StreamSchema("all", (Field("real", FieldType.REAL, "mph"),)), [{"real": 1.0}])
    schema = StreamSchema("all", (declared,))
    assert batch_mismatch(sent, schema) == f"proxy 'p' sends stream 'all' with other columns: {reason}"
    with pytest.raises(SchemaError, match="with other columns"):
        converted(sent, schema)


def test_a_batch_fits_whether_its_columns_are_fixed_or_not() -> None:
    fixed = StreamSchema("all", (Field("real", FieldType.REAL, fixed=True),))
    sampled = StreamSchema("all", (Field("real", FieldType.REAL),))
    assert converted(batch(fixed, [{"real": 1.0}]), sampled)["real"].to_pylist() == [1.0]


def test_a_batch_without_rows_moves_the_watermark_whatever_its_columns() -> None:
    other = StreamSchema("all", (Field("speed", FieldType.REAL),))
    assert batch_mismatch(batch(other, []), ALL) is None


def test_aggregates_are_found_by_the_names_of_their_fields() -> None:
    announced = StreamSchema("roads", (Field("occ", FieldType.REAL), Field("SPEED", FieldType.REAL)))
    declared = StreamSchema("roads", (Field("Speed", FieldType.REAL),))
    values: dict[str, list[Value]] = {"fjord_form": ["f"], "fjord_samples": [3], "fjord_sum_SPEED": [7.5]}
    sent = batch(announced, [{"occ": None, "SPEED": None}])
    sent = replace(sent, columns=sent.columns + aggregate_columns(announced, values, 1))
    table = converted(sent, declared)
    assert table.schema == arrow_schema(declared, aggregates=True)
    row = table.to_pylist()[0]
    assert (row["fjord_form"], row["fjord_samples"], row["fjord_sum_Speed"]) == ("f", 3, 7.5)
    assert not any("occ" in name for name in row)


def columns(*names: str) -> tuple[Column, ...]:
    return tuple(make_column(name, FieldType.REAL, [1.0]) for name in names)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda there: there + columns("text"), "two columns 'text'"),
        (lambda there: there + columns("TEXT"), "two columns 'text'"),
        (lambda there: there + columns("FJORD_start_us"), "two columns 'fjord_start_us'"),
        (lambda there: there + columns("fjord_secret"), "'fjord_secret' that no stream has"),
        (lambda there: there[1:], "should have a column 'fjord_start_us' of integer and has none"),
        (
            lambda there: columns("fjord_start_us") + there[1:],
            "'fjord_start_us' of integer and has one of real",
        ),
        (
            lambda there: there + aggregate_columns(ALL, {}, 1)[:-1],
            "should have a column 'fjord_max_real' of real and has none",
        ),
    ],
)
def test_a_malformed_batch_never_fits_and_is_not_held(changed: Any, reason: str) -> None:
    sent = batch(ALL, [{kind.value: None for kind in FIELD_TYPES}])
    sent = replace(sent, columns=changed(sent.columns))
    assert batch_mismatch(sent, ALL) is None
    with pytest.raises(SchemaError, match=reason):
        converted(sent, ALL)


def test_a_batch_of_very_many_columns_is_checked_too() -> None:
    sent = batch(ALL, [{kind.value: None for kind in FIELD_TYPES}])
    many = replace(sent, columns=sent.columns + columns(*(f"c{n}" for n in range(1_500))))
    assert converted(many, ALL).num_rows == 1


@pytest.mark.parametrize(("watermark", "in_time", "late"), [(0, [0, 1, 2], []), (2, [2], [0, 1]), (9, [], [0, 1, 2])])
def test_late_rows_are_separated(watermark: int, in_time: list[int], late: list[int]) -> None:
    schema = StreamSchema("s", (Field("speed", FieldType.REAL),))
    sent = batch(schema, [{"speed": 1.0}] * 3)
    packed = pack_batch(sent)
    layout = Layouts(schema).of(packed)
    assert converted(sent, schema, watermark).column(START_COLUMN).to_pylist() == in_time
    assert late_rows(packed, layout, schema, watermark).column(START_COLUMN).to_pylist() == late


@pytest.mark.parametrize("rows", [1, 3, 200])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_the_first_and_the_last_stamp_of_a_batch_are_found_whatever_their_order(rows: int, before: int) -> None:
    schema = StreamSchema("s", (Field("speed", FieldType.REAL),))
    stamps = [7 * number % rows - 1 for number in range(rows)]
    columns = make_columns(schema, stamps, ["m"] * rows, [True] * rows, {"speed": [1.0] * rows})
    stamped, *others = columns
    columns = (*others[:before], stamped, *others[before:])
    sent = pack_batch(Batch(1, "p", "e", "s", 1, 0, True, rows, columns))
    assert first_and_last(sent, Layouts(schema).of(sent)) == (min(stamps), max(stamps))


def test_batches_of_different_columns_in_turn_have_their_own_layouts() -> None:
    layouts = Layouts(ALL)
    plain = batch(ALL, [dict.fromkeys((kind.value for kind in FIELD_TYPES), None)] * 2)
    turned = replace(plain, columns=plain.columns[::-1])
    wrong = replace(plain, columns=plain.columns[1:])
    last = len(plain.columns) - 1
    for _ in range(2):
        assert layouts.of(pack_batch(plain)).places[START_COLUMN] == 0
        assert layouts.of(pack_batch(turned)).places[START_COLUMN] == last
        with pytest.raises(SchemaError, match=START_COLUMN):
            layouts.of(pack_batch(wrong))
        with pytest.raises(SchemaError):
            layouts.of(pack_batch(replace(plain, columns=())))
