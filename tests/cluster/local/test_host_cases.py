"""The table of cases on the local host: all in one plan, and each answers what it means."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.fjord.stream_scan import RowsInMemory
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.plan.epoch import Plan
from tests.cluster.local.host_cases import ARRIVING, CASES, STATIC, difference, frame, planned, relation_frame

Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module", params=[False, True], ids=["one process", "a process for each micro-batch"])
def answered(request: pytest.FixtureRequest) -> Rows:
    tables = MemoryTables({each.identity: [RelationRows(relation_frame(name))] for name, each in STATIC.items()})
    engine = LocalEngine(Plan(1, planned()), buckets=3, tables=lambda: tables)
    found: Rows = {}
    for number, (batch, watermark_us) in enumerate(ARRIVING):
        if request.param:
            engine.forget()
        arrivals = {
            name: Arrival((RowsInMemory(frame(name, rows[:5])), RowsInMemory(frame(name, rows[5:]))), watermark_us)
            for name, rows in batch.items()
        }
        for query, start, end, kind, row in engine.run(arrivals, parts=1 + number % 3).rows.iter_rows():
            assert kind == "row", row
            found.setdefault(query, []).append((start, end, *msgspec.json.decode(row).values()))
    return found


def test_there_are_a_hundred() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize("name", CASES)
def test_a_case_answers_what_it_means(name: str, answered: Rows) -> None:
    assert difference(name, answered.get(name.replace(" ", "-"), [])) is None
