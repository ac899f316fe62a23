"""From the wire to Arrow: same values, late rows aside, wrong columns refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.arrow_batches import split_late, to_arrow
from cluster.storage.stream_tables import arrow_schema
from protocols.batches import MOTE_COLUMN, START_COLUMN, Batch, make_columns
from protocols.errors import SchemaError
from protocols.frames import Value
from protocols.streams import Field, FieldType, StreamSchema
from tests.protocols.test_batches import VALUES

ALL = StreamSchema("all", tuple(Field(kind.value, kind) for kind in FieldType))


def batch(schema: StreamSchema, rows: list[dict[str, Value]]) -> Batch:
    values = {field.name: [row[field.name] for row in rows] for field in schema.fields}
    columns = make_columns(schema, list(range(len(rows))), ["m"] * len(rows), [True] * len(rows), values)
    return Batch(1, "p", "e", schema.name, 1, 0, True, len(rows), columns)


@given(st.lists(st.fixed_dictionaries({kind.value: st.none() | VALUES[kind] for kind in FieldType}), max_size=8))
def test_values_survive(rows: list[dict[str, Value]]) -> None:
    table = to_arrow(batch(ALL, rows), ALL)
    assert table.schema == arrow_schema(ALL)
    assert table.select([kind.value for kind in FieldType]).to_pylist() == rows
    assert table.column(START_COLUMN).to_pylist() == list(range(len(rows)))
    assert set(table.column(MOTE_COLUMN).to_pylist()) <= {"m"}


def test_a_batch_that_only_moves_the_watermark_has_no_columns() -> None:
    assert to_arrow(Batch(1, "p", "e", "all", 1, 0, True, 0, ()), ALL).num_rows == 0


def test_other_columns_are_refused_by_name() -> None:
    other = StreamSchema("all", (Field("speed", FieldType.REAL),))
    with pytest.raises(SchemaError, match="4 columns"):
        to_arrow(batch(other, [{"speed": 1.0}]), ALL)
    wrong = StreamSchema("all", (Field("speed", FieldType.INTEGER),))
    with pytest.raises(SchemaError, match="'speed' of integer where stream 'all' has 'speed' of real"):
        to_arrow(batch(wrong, [{"speed": 1}]), other)


@pytest.mark.parametrize(
    ("watermark", "in_time", "late"), [(None, [0, 1, 2], []), (0, [0, 1, 2], []), (2, [2], [0, 1]), (9, [], [0, 1, 2])]
)
def test_late_rows_go_aside(watermark: int | None, in_time: list[int], late: list[int]) -> None:
    schema = StreamSchema("s", (Field("speed", FieldType.REAL),))
    rows = to_arrow(batch(schema, [{"speed": 1.0}] * 3), schema)
    found_in_time, found_late = split_late(rows, watermark)
    assert found_in_time.column(START_COLUMN).to_pylist() == in_time
    assert found_late.column(START_COLUMN).to_pylist() == late
