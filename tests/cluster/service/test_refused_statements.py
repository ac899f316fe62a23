"""A registry with statements that an earlier version accepted and this one refuses: the others continue."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from cluster.language.catalog import CatalogError
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.relations.refresh_decisions import State
from cluster.service.catalog.stream_command import stream as stream_command
from cluster.service.queries.query_service import QueryService
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.conftest import TRAFFIC, Service
from tests.cluster.service.relation_cases import CREATE, JOINED, Relations
from tests.cluster.service.test_api import client

COLUMNS = '[{"name":"segment","type":"text","unit":""},{"name":"closed","type":"boolean","unit":""}]'
HOUR = "WINDOW(RANGE 1 HOUR)"
WITHOUT_ON = f"CREATE STREAM pairs AS SELECT a.lane AS one, b.lane AS two FROM traffic a {HOUR} JOIN traffic b {HOUR}"
OVER_IT = "CREATE STREAM first AS SELECT one FROM pairs"
FINE = f"CREATE STREAM fine AS SELECT MAX(lane) AS lane FROM traffic {HOUR}"
STREAMS = {
    "pairs": WITHOUT_ON,
    "first": OVER_IT,
    "outer_one": "CREATE STREAM outer_one AS SELECT a.lane FROM traffic a OUTER JOIN traffic b ON a.lane = b.lane",
    "last_one": "CREATE STREAM last_one AS SELECT lane FROM traffic FINAL",
    "fine": FINE,
}
IGNORED = {
    "renamed": "CREATE STREAM renamed AS WITH a(x) AS (SELECT lane FROM traffic) SELECT lane FROM a",
    "numbered": "CREATE STREAM numbered AS SELECT lane FROM traffic@5",
    "twice": "CREATE STREAM twice (a REAL FIXED FIXED) SOURCE mqtt('p')",
}
RUNS = f"SELECT a.lane FROM traffic a {HOUR} JOIN traffic b {HOUR}"
WAITS = "SELECT t.sensor FROM traffic AS t FINAL, roads AS r WHERE t.sensor = r.segment"


def insert(service: Service, statements: dict[str, str]) -> None:
    """Insert rows as an earlier version wrote them."""
    for name, text in statements.items():
        service.registry._database.execute("INSERT INTO streams (name, text) VALUES (?, ?)", (name, text))


def started(service: Service) -> QueryService:
    return service.started()


@pytest.fixture
def old(service: Service) -> QueryService:
    insert(service, STREAMS)
    return started(service)


def test_the_cluster_starts_with_the_readable_statements(old):
    assert [each.name for each in old.streams.derived] == ["fine"]
    assert [each.name for each in old.streams.unreadable.all()] == ["pairs", "first", "outer_one", "last_one"]
    reasons = [each.reason for each in old.streams.unreadable.all()]
    for reason, part in zip(
        reasons,
        ["JOIN needs a condition", "stream 'pairs' cannot be read", "OUTER JOIN is not", "'FINAL'"],
        strict=True,
    ):
        assert part in reason


def test_the_reason_is_logged(service):
    insert(service, STREAMS)
    with capture_logs() as logs:
        started(service)
    assert {each["stream"] for each in logs if "cannot be read" in each["event"]} == STREAMS.keys() - {"fine"}


def test_syntax_that_was_ignored_before_is_still_ignored(service):
    insert(service, IGNORED)
    with capture_logs() as logs:
        queries = started(service)
    plain = translate("SELECT lane FROM traffic", queries.streams.catalog()).node
    assert [each.name for each in queries.streams.derived] == ["renamed", "numbered"]
    assert [each.node for each in queries.streams.derived] == [plain, plain]
    assert queries.streams.unreadable.all() == []
    assert service.ingest.offers.declared("twice").only_proxy == "p"
    warned = {each["stream"]: each["warnings"] for each in logs if "warnings" in each}
    assert warned.keys() == {"renamed", "numbered"}
    assert all("is ignored" in warning for (warning,) in warned.values())


async def test_new_statements_are_refused(service):
    queries = started(service)
    for text in (*IGNORED.values(), *STREAMS.values()):
        if text not in (FINE, OVER_IT):
            with pytest.raises(FjordSqlError):
                await queries.streams.execute(text)


async def test_a_query_of_an_unreadable_stream_is_refused_with_the_reason(old):
    with pytest.raises(FjordSqlError, match="stream 'Pairs' cannot be read: JOIN needs a condition") as caught:
        await old.add("SELECT one FROM Pairs", "new")
    assert caught.value.offending == "Pairs"
    assert "create it anew" in str(caught.value.hint)


async def test_an_unreadable_stream_is_listed_with_the_reason(old, service, monkeypatch):
    service.queries = old
    async with client(service) as api:
        listed = (await api.get("/v1/streams")).json()
    found = {each["name"]: (each["kind"], each.get("error"), each.get("text")) for each in listed}
    assert found["pairs"] == ("unreadable", old.streams.unreadable.find("pairs").reason, WITHOUT_ON)
    assert (found["fine"], found["traffic"]) == (("derived", None, FINE), ("base", None, None))
    monkeypatch.setattr(
        "cluster.service.catalog.stream_command.make_client",
        lambda _: nullcontext(SimpleNamespace(streams=lambda: listed, status=dict)),
    )
    shown = CliRunner().invoke(stream_command, ["list"]).stdout
    assert "stream pairs was created by an earlier version and cannot be read: JOIN needs a condition" in shown
    assert "drop it with `fjord stream drop pairs`, and create it anew" in shown


async def test_the_name_of_an_unreadable_stream_is_reserved_until_it_is_dropped(old, service):
    with pytest.raises(CatalogError, match="already a stream 'pairs', which cannot be read"):
        await old.streams.execute("CREATE STREAM Pairs AS SELECT lane AS one FROM traffic")
    with pytest.raises(CatalogError, match="already a stream 'pairs', which cannot be read"):
        await old.relations.execute(CREATE.replace("roads FROM", "pairs FROM"))
    offered = StreamSchema("pairs", (Field("one", FieldType.INTEGER),))
    await service.handle(topics.stream_offer("p", "pairs"), encode(StreamOffer(1, "p", offered)))
    assert "pairs" not in service.ingest.writers


async def test_recreating_an_unreadable_stream_makes_its_derived_streams_readable(old, service):
    await old.streams.drop("pairs")
    assert await old.streams.execute("CREATE STREAM pairs AS SELECT lane AS one FROM traffic") == "pairs"
    # Streams derived from it can be read again.
    assert [each.name for each in old.streams.derived] == ["fine", "pairs", "first"]
    await old.streams.execute("DROP STREAM outer_one")
    await old.streams.execute("DROP STREAM last_one")
    assert old.streams.unreadable.all() == []
    again = started(service)
    assert sorted(each.name for each in again.streams.derived) == ["fine", "first", "pairs"]


async def test_a_running_query_keeps_its_plan(service):
    catalog = service.queries.streams.catalog()
    node = translate(f"SELECT a.lane FROM traffic a {HOUR}, traffic b {HOUR}", catalog).node
    positions = service.queries._positions(frozenset({"traffic"}))
    service.registry.add("runs", RUNS, node, positions, frozenset({"traffic", "pairs"}))
    insert(service, STREAMS)
    queries = started(service)
    (runs,) = service.registry.queries()
    assert (runs.sql, runs.node) == (RUNS, node)
    assert [each.node for each in service.registry.plan.queries] == [node]
    queries.demands.follow(service.registry.physical.oldest_first)
    assert tuple(queries.demands.pieces("traffic").ordered()) != ()
    await queries.streams.drop("pairs")
    assert [each.name for each in service.registry.queries()] == ["runs"]


async def test_a_waiting_query_shows_why_it_cannot_begin(service, tmp_path):
    insert_waiting(service)
    relations = Relations(service, tmp_path)
    await relations.create()
    with capture_logs() as logs:
        await relations.queries.start_waiting()
    (waiting,) = relations.queries.waiting.all()
    state = relations.queries.waiting.state(waiting)
    assert state.startswith("cannot begin: 'FINAL' was not expected here")
    assert state.endswith("drop it and add it anew")
    assert [each["query"] for each in logs if each["event"] == "query cannot begin"] == ["waits"]
    await relations.queries.drop("waits")
    assert relations.queries.waiting.all() == []


def insert_waiting(service: Service) -> None:
    service.registry._database.execute(
        "INSERT INTO waiting (name, sql, created_us, reads, relations) VALUES (?, ?, ?, ?, ?)",
        ("waits", WAITS, 1, '["roads", "traffic"]', '["roads@1"]'),
    )


async def test_a_relation_keeps_its_last_rows(service, tmp_path):
    relations = Relations(service, tmp_path)
    await relations.create()
    query, _ = await relations.queries.add(JOINED, "joined")
    refused = CREATE.replace("REFRESH", "{# daily #} REFRESH")
    service.registry._database.execute("UPDATE relations SET text = ?", (refused,))
    relations.start()
    assert relations.rows() == [("s1", False)]
    await relations.passes(7200)
    shown = relations.shown
    assert (shown["state"], shown["rows"], shown["used_by"]) == (State.STALE.value, 1, ["joined"])
    assert "its statement cannot be read" in shown["reason"]
    assert "drop the relation and create it anew" in shown["reason"]
    assert shown["text"] == refused
    relations.store.remove_dropped()
    assert relations.rows() == [("s1", False)]
    await relations.queries.drop("joined")
    await relations.queries.relations.drop("roads")
    await relations.create()
    assert relations.shown["state"] == State.FRESH.value
    assert query.node is not None
    assert TRAFFIC.name in service.ingest.writers
