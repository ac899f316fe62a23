"""Every query of examples/nexmark, all in one plan of the local host, against its definition in DuckDB."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.fjord.stream_scan import RowsInMemory
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.plan.epoch import Plan
from tests.cluster.nexmark.definitions import DEFINITIONS, Row, changes, evaluated
from tests.cluster.nexmark.running import QUERIES, SIDE_INPUT, SIDE_ROWS, generator, micro_batches, planned

EVENTS, RATE = 20_000, 400
"""50 seconds of events."""


@pytest.fixture(scope="module")
def streams() -> dict[str, Any]:
    return dict(generator().events(EVENTS, rate=RATE).streams)


@pytest.fixture(scope="module")
def answered(streams: dict[str, Any]) -> dict[str, list[Row]]:
    tables = MemoryTables({SIDE_INPUT.identity: [RelationRows(SIDE_ROWS)]})
    engine = LocalEngine(Plan(1, planned()), buckets=3, tables=lambda: tables)
    found: dict[str, list[Row]] = {}
    for batch, watermark_us in micro_batches(streams, 7):
        arrivals = {name: Arrival((RowsInMemory(rows),), watermark_us) for name, rows in batch.items()}
        for query, start, end, kind, row in engine.run(arrivals, parts=2).rows.iter_rows():
            assert kind == "row", row
            found.setdefault(query, []).append((start, end, *msgspec.json.decode(row).values()))
    return found


def test_every_query_has_a_definition() -> None:
    assert set(QUERIES) == set(DEFINITIONS)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_query_answers_what_duckdb_does(name: str, streams: dict[str, Any], answered: dict[str, list[Row]]) -> None:
    expected = evaluated(name, {**streams, SIDE_INPUT.name: SIDE_ROWS})
    assert expected
    expected_changes, found = changes(expected), changes(answered.get(name, []))
    missing, too_many = expected_changes - found, found - expected_changes
    assert not missing | too_many, f"missing {missing.most_common(3)}, too many {too_many.most_common(3)}"
