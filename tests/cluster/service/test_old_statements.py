"""A registry from when durations needed no unit: its streams, relations and queries continue unchanged."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators import TimeWindow
from tests.cluster.service.conftest import Service
from tests.cluster.service.relation_cases import Relations

LOAD = (
    "CREATE STREAM load AS SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 60000000 SLIDE 30000000) "
    "GROUP BY sensor"
)
ABOVE = "CREATE STREAM busy AS SELECT sensor FROM load WHERE n > 10"
ROADS = (
    "CREATE RELATION roads (segment TEXT, closed BOOLEAN) FROM 'roads.csv' REFRESH EVERY 30000000 STALE AFTER 300000000"
)
WAITS = "SELECT t.sensor FROM traffic AS t WINDOW(RANGE 5000000), roads AS r WHERE t.sensor = r.segment"
RUNS = "SELECT MAX(speed) AS m FROM traffic WINDOW(RANGE 100 SLIDE 50)"
COLUMNS = '[{"name":"segment","type":"text","unit":""},{"name":"closed","type":"boolean","unit":""}]'


def windows(node):
    own = [(node.size_us, node.slide_us)] if isinstance(node, TimeWindow) else []
    return [*own, *(each for below in node.inputs for each in windows(below))]


@pytest.fixture
async def old(service: Service, tmp_path):
    """Return services over rows that an earlier version wrote."""
    node = translate(RUNS, service.queries.streams.catalog(), registered=True).node
    service.registry.add("runs", RUNS, node, service.queries._positions(frozenset({"traffic"})), frozenset({"traffic"}))
    database = service.registry._database
    for name, text in (("load", LOAD), ("busy", ABOVE)):
        database.execute("INSERT INTO streams (name, text) VALUES (?, ?)", (name, text))
    database.execute("INSERT INTO relations (name, text, columns) VALUES (?, ?, ?)", ("roads", ROADS, COLUMNS))
    database.execute(
        "INSERT INTO waiting (name, sql, created_us, reads, relations) VALUES (?, ?, ?, ?, ?)",
        ("waits", WAITS, 1, '["roads", "traffic"]', '["roads@1"]'),
    )
    with capture_logs() as logs:
        relations = Relations(service, tmp_path)
    relations.logs = logs
    return relations


async def test_derived_streams_relations_and_queries_continue(old):
    (load, busy) = old.queries.streams.derived
    assert windows(load.node) == windows(busy.node) == [(60_000_000, 30_000_000)]
    roads = old.queries.store.find("roads")
    assert (roads.freshness.refresh_seconds, roads.freshness.stale_seconds) == (30.0, 300.0)
    (runs,) = old.service.registry.queries()
    assert windows(runs.node) == [(100, 50)]
    query, warnings = await old.queries.add("SELECT sensor FROM busy", "new")
    assert windows(query.node) == [(60_000_000, 30_000_000)]
    assert warnings == ()


async def test_old_statements_are_warned_of_in_the_log(old):
    found = {(each.get("stream") or each.get("relation")): each["warnings"] for each in old.logs if "warnings" in each}
    assert found == {
        "load": (
            "60000000 without a unit is 60000000 microseconds",
            "30000000 without a unit is 30000000 microseconds",
        ),
        "roads": (
            "30000000 without a unit is 30000000 microseconds",
            "300000000 without a unit is 300000000 microseconds",
        ),
    }


async def test_a_query_that_waited_begins(old):
    roads = old.queries.store.find("roads")
    await old.queries.refresher.refresh(roads)
    with capture_logs() as logs:
        await old.queries.start_waiting()
    assert old.queries.waiting.all() == []
    assert windows(old.service.registry.query("waits").node) == [(5_000_000, 1)]
    (warned,) = (each for each in logs if "warnings" in each)
    assert warned["warnings"] == ("5000000 without a unit is 5000000 microseconds",)


async def test_new_statements_need_a_unit(old):
    for text in (RUNS, WAITS):
        with pytest.raises(FjordSqlError, match="needs a unit"):
            await old.queries.add(text, "again")
        with pytest.raises(FjordSqlError, match="needs a unit"):
            await old.queries.explain(text)
        with pytest.raises(FjordSqlError, match="needs a unit"):
            await old.queries.demands_for(text, "again")
    with pytest.raises(FjordSqlError, match="needs a unit"):
        await old.queries.streams.execute(LOAD.replace("load", "load_2"))
    assert [each.name for each in old.queries.streams.derived] == ["load", "busy"]
    with pytest.raises(FjordSqlError, match="needs a unit"):
        await old.queries.relations.execute(ROADS.replace("roads (", "roads_2 ("))
