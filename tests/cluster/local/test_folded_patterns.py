"""Queries with one pattern over different tuples run as one, and each finds its own matches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine, MemoryTables
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from tests.cluster.local.host_cases import ARRIVING, CATALOG, LAST, STREAMS, frame
from tests.cluster.oracle.comparison import difference_of_rows
from tests.cluster.oracle.definition import snapshots_of_plan

TEXTS = [
    f"SELECT * FROM (SELECT * FROM traffic WHERE lane > {lane}) MATCH_RECOGNIZE (PARTITION BY segment ORDER BY STAMP() "
    "MEASURES COUNT(*) AS n, MAX(A.speed) AS fastest, PREV(B.speed, 2) AS before PATTERN (A+ B) WITHIN 20 US "
    "DEFINE A AS A.speed > 0, B AS B.speed > MIN(A.speed) OR B.open) AS m"
    for lane in (0, 1, 2)
]


@pytest.mark.parametrize("forgets", [False, True])
def test_each_query_of_a_fold_finds_its_own_matches(forgets: bool) -> None:
    nodes = [translate(text, CATALOG).node for text in TEXTS]
    queries = tuple(PlannedQuery(f"q{n}", n, rewrite(node).node) for n, node in enumerate(nodes, 1))
    plan = Plan(len(queries), queries)
    assert len(lower(plan).fragments) == 1
    engine = LocalEngine(plan, buckets=3, tables=lambda: MemoryTables({}))
    found: dict[str, list[tuple[Any, ...]]] = {}
    for batch, watermark_us in ARRIVING:
        if forgets:
            engine.forget()
        arrivals = {name: Arrival((RowsInMemory(frame(name, rows)),), watermark_us) for name, rows in batch.items()}
        for query, start, end, kind, row in engine.run(arrivals, parts=2).rows.iter_rows():
            assert kind == "row", row
            found.setdefault(query, []).append((start, end, *msgspec.json.decode(row).values()))
    streams = {each: [row for batch, _ in ARRIVING for row in batch[each]] for each in STREAMS}
    for query, node in zip(queries, nodes, strict=True):
        meaning = snapshots_of_plan(node, streams, LAST + 1)
        assert any(meaning)
        assert difference_of_rows(found[query.name], meaning) is None
    assert len({len(rows) for rows in found.values()}) > 1
