"""Batches that are stored in one commit are stored as if each had a commit of its own, whatever is wrong with some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ingest.arrow_batches import AdmittedRows, to_arrow
from cluster.ingest.batch_layouts import Layouts
from cluster.ingest.writer import StreamWriter
from cluster.storage.stream_tables import StreamTable, arrow_schema
from protocols.errors import SchemaError
from protocols.wire.batches import (
    COMPLETENESS_FIELDS,
    DEFAULT_RATE_COLUMN,
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    MOTE_COLUMN,
    PREVIOUS_COLUMN,
    PUBLISHED_FIELDS,
    START_COLUMN,
    Ack,
    Batch,
    Column,
    aggregate_fields,
    make_column,
    pack_batch,
    wire_fields,
)
from protocols.wire.packed_batches import NEVER_NULL
from protocols.wire.streams import FIELD_TYPES, Field, FieldType, StreamSchema
from tests.protocols.test_batches import VALUES

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import DrawFn

    from protocols.wire.frames import Value

SCHEMA = StreamSchema("all", tuple(Field(f"{kind.value}_field", kind) for kind in FIELD_TYPES))
AGGREGATES, COMPLETENESS = aggregate_fields(SCHEMA), COMPLETENESS_FIELDS
STAMPS = st.integers(0, 20)
FAULTS = ("", "missing", "no next", "other type", "doubled", "null stamp", "null mote", "null rate", "unknown")
Joined = list[tuple[Batch, int | None]]


def drawn_column(draw: DrawFn, field: Field, rows: int, *, kind: FieldType | None = None, nulls: bool = True) -> Column:
    values = STAMPS if field.name == START_COLUMN else VALUES[kind or field.type]
    some = draw(st.lists(st.none() | values if nulls else values, min_size=rows, max_size=rows))
    return make_column(field.name, kind or field.type, some)


@st.composite
def batches(draw: DrawFn, faults: tuple[str, ...] = ("",)) -> Batch:
    """Return a batch: its columns in any order, some of them not of the stream; or one with a fault."""
    rows, fault = draw(st.integers(1, 4) | st.just(70)), draw(st.sampled_from(faults))
    nullable = {"null stamp": START_COLUMN, "null mote": MOTE_COLUMN, "null rate": DEFAULT_RATE_COLUMN}.get(fault)
    found = []
    for field in (
        *wire_fields(SCHEMA),
        *(AGGREGATES if draw(st.booleans()) else ()),
        *(COMPLETENESS if draw(st.booleans()) else ()),
        *(PUBLISHED_FIELDS if draw(st.booleans()) else ()),
        *(Field(f"more{number}", FieldType.TEXT) for number in range(draw(st.integers(0, 2)))),
    ):
        own = field.name in NEVER_NULL
        found.append(drawn_column(draw, field, rows, nulls=not own or field.name == nullable))
    if nullable is not None:
        place = next(place for place, column in enumerate(found) if column.name == nullable)
        kind = found[place].type
        found[place] = make_column(nullable, kind, [None] * rows)
    real = next(place for place, column in enumerate(found) if column.name == "real_field")
    match fault:
        case "missing":
            del found[real]
        case "other type":  # a proxy whose mote sends whole numbers
            found[real] = drawn_column(draw, Field("real_field", FieldType.REAL), rows, kind=FieldType.INTEGER)
        case "no next":
            found = [column for column in found if column.name not in {each.name for each in PUBLISHED_FIELDS}]
            found.append(make_column(PREVIOUS_COLUMN, FieldType.INTEGER, [1] * rows))
        case "doubled":
            found.append(make_column("REAL_field", FieldType.REAL, [1.0] * rows))
        case "unknown":
            found.append(make_column("fjord_unknown", FieldType.REAL, [1.0] * rows))
        case _:
            pass
    return Batch(1, "p", "e", "all", 1, draw(STAMPS), True, rows, tuple(draw(st.permutations(found))))


def rows_of(batch: Batch, not_before_us: int | None) -> list[dict[str, Value]]:
    """Return the rows of a batch as Python values, read by another way."""
    values = {column.name: column.values(batch.rows) for column in batch.columns}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return [row for row in rows if not_before_us is None or row[START_COLUMN] >= not_before_us]  # type: ignore[operator] # stamps are whole numbers


def admitted(batch: Batch, not_before_us: int | None, layouts: Layouts) -> AdmittedRows:
    packed = pack_batch(batch)
    return AdmittedRows(packed.data, packed.rows, layouts.of(packed), not_before_us)


@st.composite
def alike(draw: DrawFn) -> list[Batch]:
    """Return batches in turn of a few kinds, each with its columns and their order; with few rows or many."""
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        more = draw(st.sampled_from([(), AGGREGATES, PUBLISHED_FIELDS]))
        fields = [*wire_fields(SCHEMA), *more]
        kinds.append(draw(st.permutations(fields)))
    found = []
    for rows in draw(st.lists(st.sampled_from((1, 2, 7, 8, 9)), min_size=2, max_size=8)):
        count = 10 * rows if draw(st.booleans()) else rows
        columns = []
        for field in draw(st.sampled_from(kinds)):
            column = drawn_column(draw, field, rows, nulls=field.name not in NEVER_NULL)
            values = (column.values(rows) * 10)[:count]
            columns.append(make_column(field.name, field.type, values))
        found.append(Batch(1, "p", "e", "all", 1, draw(STAMPS), True, count, tuple(columns)))
    return found


@given(
    st.lists(st.tuples(batches(), st.none() | STAMPS), min_size=1, max_size=6)
    | alike().map(lambda found: [(each, None) for each in found])
)
def test_batches_are_converted_together_as_each_by_itself(joined: Joined) -> None:
    layouts = Layouts(SCHEMA)
    together = to_arrow([admitted(*each, layouts) for each in joined], SCHEMA)
    alone = [to_arrow([admitted(*each, layouts)], SCHEMA) for each in joined]
    together.validate(full=True)
    has = {column.name for batch, _ in joined for column in batch.columns}
    expected = arrow_schema(
        SCHEMA,
        aggregates=FINGERPRINT_COLUMN in has,
        completeness=EXPECTED_COLUMN in has,
        published=PREVIOUS_COLUMN in has,
    )
    assert together.schema == expected
    assert together.to_pylist() == pa.concat_tables(alone, promote_options="default").select(expected.names).to_pylist()
    rows = [row for each in joined for row in rows_of(*each)]
    assert together.to_pylist() == [{name: row.get(name) for name in expected.names} for row in rows]


@given(batches(faults=FAULTS[1:]))
def test_a_faulty_batch_is_found_before_it_can_spoil_a_commit(batch: Batch) -> None:
    with pytest.raises(SchemaError):
        Layouts(SCHEMA).of(pack_batch(batch))


class Commits:
    """A writer that stores batches, and what it says of them."""

    def __init__(self, folder: Path) -> None:
        self.quarantined: list[tuple[str, ...]] = []
        self.rejected: dict[int, str] = {}
        self.writer = StreamWriter(
            StreamTable(str(folder), SCHEMA), acknowledge=self._acknowledge, quarantine=self._quarantine
        )

    async def store(self, sent: list[Batch], *, together: bool) -> None:
        for number, batch in enumerate(sent, 1):
            self.writer.receive(pack_batch(renumbered(batch, number)))
            if not together:
                await self.writer.commit()
        if together:
            await self.writer.commit()

    def outcome(self) -> dict[str, Any]:
        counters = self.writer.admission.counters
        return {
            # Which of a commit's new columns comes first depends on which batches it has.
            "rows": sorted(repr(sorted(row.items())) for row in pl.read_delta(self.writer.table.root).to_dicts()),
            "counted": (counters.rows, counters.late_rows, counters.rejected, counters.rejected_rows),
            "quarantined": self.quarantined,
            "rejected": self.rejected,
            "acknowledged": self.writer.admission.stored("p", "e"),
            "position": self.writer.table.position(),
            "next": self.writer.admission.next_us,
        }

    def _quarantine(self, *what: object) -> None:
        self.quarantined.append(tuple(map(str, what)))

    async def _acknowledge(self, ack: Ack) -> None:
        self.rejected |= {each.sequence: each.reason for each in ack.rejected}


def renumbered(batch: Batch, sequence: int) -> Batch:
    return Batch(1, batch.proxy, batch.epoch, "all", sequence, batch.watermark_us, True, batch.rows, batch.columns)


@settings(max_examples=15)
@given(st.lists(batches(faults=("", "", "", *FAULTS)), min_size=2, max_size=5))
async def test_one_commit_stores_what_many_would(tmp_path_factory: pytest.TempPathFactory, sent: list[Batch]) -> None:
    folder = tmp_path_factory.mktemp("commits")
    together, apart = Commits(folder / "together"), Commits(folder / "apart")
    await together.store(sent, together=True)
    await apart.store(sent, together=False)
    names = set(pl.read_delta(apart.writer.table.root).columns)
    assert set(pl.read_delta(together.writer.table.root).columns) == names
    assert together.outcome() == apart.outcome()
