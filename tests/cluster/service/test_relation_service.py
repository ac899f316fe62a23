"""Relations are created and dropped; queries wait for the first version of their relations."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest

from cluster.language.catalog import CatalogError
from cluster.language.errors import FjordSqlError
from cluster.relations.source import SourceSchemaError, SourceTooLargeError
from cluster.service.catalog import relation_service
from cluster.service.registry.query_names import QueryExistsError, TooManyQueriesError, UnknownQueryError
from cluster.service.registry.registry_tables import WaitingQuery
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.relation_cases import CREATE, DECLARED, JOINED, Relations


@pytest.fixture
def relations(service, tmp_path):
    return Relations(service, tmp_path / "relations")


async def test_a_relation_without_declared_columns_is_not_created_while_its_source_is_away(relations):
    relations.source.away("no route to host")
    with pytest.raises(FjordSqlError, match="cannot be reached: no route to host") as caught:
        await relations.create()
    assert caught.value.offending == "'roads.csv'"
    assert "declare its columns" in caught.value.hint
    assert relations.store.all() == []
    shown = await relations.create(DECLARED)
    assert (shown["state"], shown["version"], shown["reason"]) == ("away", None, "no route to host")
    relations.source.back()
    await relations.passes(30)
    assert (relations.shown["state"], relations.shown["version"]) == ("fresh", 1)


@pytest.mark.parametrize(
    ("columns", "offending", "reason", "hint"),
    [
        ("segmnt TEXT", "segmnt", "no column 'segmnt'", "segment"),
        ("segment TEXT, closed REAL", "closed", "cannot be real", "BOOLEAN"),
    ],
)
async def test_declared_columns_are_checked_against_the_source(relations, columns, offending, reason, hint):
    with pytest.raises(FjordSqlError, match=reason) as caught:
        await relations.create(CREATE.replace("roads FROM", f"roads ({columns}) FROM"))
    assert caught.value.offending == offending
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("error", "offending"),
    [
        (SourceSchemaError("column 'closed' holds 'x', which is no boolean", column="closed"), "closed"),
        (SourceTooLargeError("it takes 3 bytes, the limit is 2 bytes"), "'roads.csv'"),
    ],
)
async def test_errors_of_the_first_reading_are_errors_of_the_statement(relations, error, offending):
    relations.source.rows = refuse(error)
    with pytest.raises(FjordSqlError, match=error.message) as caught:
        await relations.create(DECLARED)
    assert caught.value.offending == offending
    assert relations.store.all() == []
    assert relations.service.registry.relations.relations() == []


def refuse(error):
    def rows(*_):
        raise error

    return rows


async def test_a_long_first_reading_goes_on_after_the_creation(relations):
    begun, ends = threading.Event(), threading.Event()

    async def until_it_has_begun(seconds):
        if seconds != relation_service.FIRST_READ_SECONDS:
            await asyncio.sleep(seconds)
        relations.pause = asyncio.sleep
        await asyncio.to_thread(begun.wait)

    relations.pause = until_it_has_begun
    rows, relations.source.rows = relations.source.rows, lambda *given: (begun.set(), ends.wait(), rows(*given))[2]
    shown = await relations.create()
    assert (shown["rows"], shown["estimated_rows"], shown["version"]) == (None, 1, None)
    ends.set()
    async with relations.known.reading:
        assert relations.shown["rows"] == 1


async def test_units_and_fewer_columns_may_be_declared(relations):
    shown = await relations.create(CREATE.replace("roads FROM", "roads (segment TEXT UNIT 'km') FROM"))
    assert shown["columns"] == [{"name": "segment", "type": "text", "unit": "km"}]
    assert relations.rows() == [("s1",)]


async def test_fewer_rows_may_be_declared(relations):
    relations.source.table = [("s1", True), ("s2", False), ("s3", True), (None, True)]
    chosen = CREATE.replace("'roads.csv'", "'roads.csv' WHERE Closed AND segment IN ('s1', 's2', 's3')")
    shown = await relations.create(chosen)
    assert shown["rows"] == 2
    assert relations.rows() == [("s1", True), ("s3", True)]
    relations.source.table = [("s2", True), ("s3", False)]
    relations.start()
    await relations.passes(30)
    assert relations.rows() == [("s2", True)], "also after a restart"


async def test_a_condition_on_an_unknown_column_is_refused_before_anything_is_registered(relations):
    for where, offending in (("lane = 2", "lane"), ("segment = 2", "segment")):
        with pytest.raises(FjordSqlError) as caught:
            await relations.create(CREATE.replace("'roads.csv'", f"'roads.csv' WHERE {where}"))
        assert caught.value.offending == offending
    assert relations.known is None


async def test_streams_and_relations_have_different_names(relations):
    await relations.create()
    with pytest.raises(CatalogError, match="already a relation 'roads'"):
        await relations.create(CREATE.replace("roads FROM", "Roads FROM"))
    with pytest.raises(CatalogError, match="already a stream 'traffic'"):
        await relations.create(CREATE.replace("roads FROM", "traffic FROM"))
    for text in ("AS SELECT sensor FROM traffic", "(a REAL) SOURCE mqtt()"):
        with pytest.raises(CatalogError, match="already a relation 'roads'"):
            await relations.queries.streams.execute(f"CREATE STREAM roads {text}")
    offer = StreamOffer(1, "p", StreamSchema("roads", (Field("a", FieldType.REAL),)))
    await relations.service.handle(topics.stream_offer("p", "roads"), encode(offer))
    assert relations.service.ingest.rejected == {"identity": 1}
    assert "relation 'roads'" in relations.service.registry.quarantine.newest()[0].reason


async def test_a_relation_in_use_is_not_dropped(relations):
    await relations.create()
    query, _ = await relations.queries.add(JOINED)
    assert isinstance(query, RegisteredQuery)
    assert relations.shown["used_by"] == [query.name]
    with pytest.raises(CatalogError, match=f"relation 'roads' is in use by {query.name}"):
        await relations.queries.relations.drop("roads")
    await relations.queries.drop(query.name)
    await relations.queries.streams.execute(f"CREATE STREAM known AS {JOINED}")
    with pytest.raises(CatalogError, match="in use by known"):
        await relations.create("DROP RELATION roads")
    await relations.queries.streams.execute("DROP STREAM known")
    assert await relations.create("DROP RELATION Roads") == {"name": "Roads", "dropped": True}
    with pytest.raises(CatalogError, match="no relation 'roads'"):
        await relations.queries.relations.drop("roads")


async def test_derived_streams_over_relations_outlive_a_restart(relations):
    await relations.create()
    await relations.queries.streams.execute(f"CREATE STREAM known AS {JOINED}")
    relations.start()
    assert sorted(relations.queries.streams.catalog().names) == ["known", "roads", "traffic"]


@pytest.mark.parametrize("text", ["SELECT sensor FROM traffic", "CREATE STREAM a AS SELECT sensor FROM traffic"])
async def test_statements_that_do_not_concern_relations_are_refused(relations, text):
    with pytest.raises(FjordSqlError, match="CREATE RELATION or DROP RELATION"):
        await relations.create(text)
    with pytest.raises(FjordSqlError, match="about a relation"):
        await relations.queries.streams.execute("DROP RELATION roads")


# Waiting


async def waiting(relations, name="near", sql=JOINED):
    relations.source.away()
    await relations.create(DECLARED)
    query, _ = await relations.queries.add(sql, name)
    assert isinstance(query, WaitingQuery)
    return query


async def test_a_query_waits_for_the_first_version_and_then_begins(relations):
    epoch = relations.service.registry.plan.epoch
    query = await waiting(relations)
    assert relations.queries.waiting.state(query) == "waiting for relation roads (connection refused)"
    assert relations.service.registry.plan.epoch == epoch
    assert relations.service.link.published == []
    assert relations.shown["used_by"] == ["near"]
    relations.source.back()
    await relations.passes(30)
    assert [each.name for each in relations.service.registry.queries()] == ["near"]
    assert relations.queries.waiting.all() == []
    assert relations.service.registry.plan.epoch == epoch + 1
    assert [message.topic for message in relations.service.link.published] == [topics.demand("traffic")]


async def test_a_billing_period_ends_before_each_change_of_the_queries_that_run(relations, monkeypatch):
    epochs, registry = [], relations.service.registry
    monkeypatch.setattr(relations.service.billing, "close", lambda: epochs.append(registry.plan.epoch))
    relations.start()
    relations.source.away()
    await relations.create(DECLARED)
    await relations.queries.add(JOINED, "waits")
    assert epochs == [], "it has not begun"
    relations.source.back()
    await relations.passes(60)
    await relations.queries.drop("waits")
    assert epochs == [1, 2]


async def test_a_waiting_query_outlives_a_restart(relations):
    await waiting(relations)
    relations.start()
    assert [each.name for each in relations.queries.waiting.all()] == ["near"]
    relations.source.back()
    await relations.passes(30)
    assert [each.name for each in relations.service.registry.queries()] == ["near"]


async def test_the_name_of_a_waiting_query_is_reserved_and_its_streams_stay(relations):
    await waiting(relations, name=None)
    assert [each.name for each in relations.queries.waiting.all()] == ["q1"]
    with pytest.raises(QueryExistsError):
        await relations.queries.add("SELECT sensor FROM traffic", "q1")
    assert (await relations.queries.add("SELECT sensor FROM traffic"))[0].name == "q2"
    with pytest.raises(CatalogError, match="'traffic' is in use by q1, q2"):
        await relations.queries.streams.drop("traffic")
    with pytest.raises(CatalogError, match="'roads' is in use by q1"):
        await relations.queries.relations.drop("roads")
    await relations.queries.drop("q1")
    await relations.queries.relations.drop("roads")
    with pytest.raises(UnknownQueryError):
        await relations.queries.drop("q1")


async def test_waiting_queries_count_towards_the_limit(relations):
    await waiting(relations)
    for _ in range(4):
        await relations.queries.add(JOINED)
    with pytest.raises(TooManyQueriesError):
        await relations.queries.add(JOINED)


async def test_a_query_that_cannot_begin_shows_the_reason(relations):
    query = await waiting(relations)
    relations.source.back()
    relations.queries.limits.check = refused
    await relations.passes(30)
    assert relations.queries.waiting.state(query) == "cannot begin: too much state"
    assert relations.service.registry.queries() == []


def refused(*_, **__):
    from cluster.errors import ClusterError

    raise ClusterError("too much state")


async def test_a_query_of_a_relation_with_a_version_does_not_wait(relations):
    await relations.create()
    relations.source.away()
    await relations.passes(30)
    query, _ = await relations.queries.add(JOINED)
    assert isinstance(query, RegisteredQuery)


# Stale


async def test_results_name_stale_relations_and_since_when(relations):
    await relations.create()
    query, _ = await relations.queries.add(JOINED)
    await relations.queries.add("SELECT sensor FROM traffic")
    current_at = relations.wall()  # what becomes an age in a result is no time of the monotonic clock
    assert relations.queries.relations.stale() == {}
    relations.source.away()
    await relations.passes(30)
    await relations.passes(12)
    assert relations.queries.relations.stale() == {query.name: {"roads": pytest.approx(current_at, abs=1e-3)}}


async def test_explain_shows_lookups_with_the_figures_of_the_newest_version(relations):
    await relations.create()
    explained = await relations.queries.explain(JOINED)
    assert "It would look up\n  look up in roads on sensor = roads.segment\n    roads: 1 row, " in explained
    assert "whole in the memory of each worker (up to 256.0 MiB), by a hash table on roads.segment" in explained


# A real source


async def test_a_relation_from_a_file(service, tmp_path):
    with closing(sqlite3.connect(tmp_path / "roads.db")) as database, database:
        database.execute("CREATE TABLE roads (segment TEXT, closed BOOLEAN)")
        database.execute("INSERT INTO roads VALUES ('s1', 1), (NULL, 0)")
    queries = service.started()
    shown = await queries.relations.execute(
        f"CREATE RELATION roads FROM 'sqlite:///{tmp_path}/roads.db' REFRESH EVERY 1 MINUTE"
    )
    assert (shown["rows"], shown["state"]) == (2, "fresh")
    assert (await queries.add(JOINED))[0].name == "q1"
