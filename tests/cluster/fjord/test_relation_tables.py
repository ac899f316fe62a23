"""Which version of a relation a tuple meets, which tables a worker keeps, and which are too large for it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cluster.fjord import relation_tables
from cluster.fjord.lookup_tables import LookupTable, UnreadableRelationError
from cluster.fjord.relation_tables import TABLES_KEPT, RelationTables, SlicedTable
from cluster.operators import Distinct, Join, Node, Relation
from cluster.operators.columns import Column
from cluster.storage.relation_versions import RelationVersions
from protocols.wire.streams import FieldType

TRAFFIC = frozenset({"traffic"})


def relation(name: str) -> Relation:
    return Relation(name, f"{name}@1", (Column(name, FieldType.INTEGER),))


ITEMS, OTHERS = relation("item"), relation("other")


def commit(folder: Path, of: Relation, values: list[int], begin_us: int | None = None) -> None:
    versions = RelationVersions(folder / of.identity)
    rows = pl.DataFrame({of.name: values}, schema={of.name: pl.Int64})
    versions.prepare(rows)
    versions.commit(rows, {} if begin_us is None else {"traffic": begin_us})


@pytest.fixture(autouse=True)
def _no_tables_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation_tables, "_kept", type(relation_tables._kept)())


def values(tables: RelationTables, table: Node, first_us: int, last_us: int) -> list[tuple[int, list[int]]]:
    found = []
    for since, parts in tables.pieces(table, None, TRAFFIC, first_us, last_us):
        assert isinstance(parts, LookupTable)
        found.append((since, parts.rows.to_series().to_list()))
    return found


def test_a_tuple_meets_the_version_that_holds_when_it_is_sampled(tmp_path: Path) -> None:
    commit(tmp_path, ITEMS, [1])
    commit(tmp_path, ITEMS, [1, 2], begin_us=100)
    commit(tmp_path, ITEMS, [3], begin_us=200)
    tables = RelationTables(str(tmp_path), {ITEMS.identity: 2})
    assert values(tables, ITEMS, 0, 99) == [(0, [1])]
    assert values(tables, ITEMS, 0, 100) == [(0, [1]), (100, [1, 2])]
    assert values(tables, ITEMS, 100, 300) == [(100, [1, 2])]
    tables.advance({ITEMS.identity: 3})
    assert values(tables, ITEMS, 150, 300) == [(150, [1, 2]), (200, [3])]
    with pytest.raises(UnreadableRelationError, match="relation other has not been read yet"):
        tables.pieces(OTHERS, None, TRAFFIC, 0, 1)


def test_what_was_asked_for_last_is_kept_as_far_as_memory_allows(tmp_path: Path) -> None:
    for number in range(1, 10):
        commit(tmp_path, ITEMS, [number] * 100, begin_us=number)
    memory_bytes = 1_000
    tables = RelationTables(str(tmp_path), {ITEMS.identity: 9}, memory_bytes=memory_bytes)

    def at(instant_us: int) -> LookupTable:
        ((_, found),) = tables.pieces(ITEMS, None, TRAFFIC, instant_us, instant_us)
        assert isinstance(found, LookupTable)
        return found

    first = at(1)
    most = TABLES_KEPT * memory_bytes // first.bytes
    assert 1 <= most < 9
    for instant_us in range(2, 10):
        at(instant_us)
        assert len(relation_tables._kept) == min(instant_us, most)
    assert at(9) is at(9)
    assert at(1) is not first


def test_one_table_is_kept_however_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LookupTable, "bytes", 1_000_000)
    commit(tmp_path, ITEMS, [1])
    commit(tmp_path, OTHERS, [2])
    tables = RelationTables(str(tmp_path), {ITEMS.identity: 1, OTHERS.identity: 1}, memory_bytes=1_000)
    for table in (ITEMS, OTHERS):
        assert tables.pieces(table, None, TRAFFIC, 0, 1)[0][1] is tables.pieces(table, None, TRAFFIC, 0, 1)[0][1]
        assert len(relation_tables._kept) == 1


@pytest.mark.parametrize(("table", "key", "sliced"), [
    (ITEMS, "item", True), (ITEMS, None, False), (Distinct(ITEMS), "item", False),
    (Join(ITEMS, OTHERS, None), "item", False),
])  # fmt: skip
def test_what_is_too_large_is_cut_by_its_key_if_it_has_one(
    tmp_path: Path, table: Node, key: str | None, *, sliced: bool
) -> None:
    commit(tmp_path, ITEMS, list(range(100)))
    commit(tmp_path, OTHERS, [1])
    tables = RelationTables(str(tmp_path), {ITEMS.identity: 1, OTHERS.identity: 1}, memory_bytes=200)
    ((_, found),) = tables.pieces(table, key, TRAFFIC, 0, 1)
    if sliced:
        assert isinstance(found, SlicedTable)
    else:
        assert isinstance(found, UnreadableRelationError)
        assert "is larger than the 200 bytes that a table may take" in found.message
