"""A relation from a PostgreSQL server that stops and starts again, refreshed as in a cluster."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from cluster.language.errors import FjordSqlError
from cluster.relations.source import Limits
from cluster.service.catalog.relation_store import RelationStore
from cluster.service.registry.registry_tables import WaitingQuery
from cluster.service.registry.running_queries import RegisteredQuery
from tests.cluster.service.relation_cases import JOINED
from tests.postgres_server import PASSWORD_WRITTEN

pytestmark = pytest.mark.system

LONGEST_SECONDS = 30.0
ENDING = "REFRESH EVERY 1 SECOND STALE AFTER 3 SECONDS"


@contextlib.asynccontextmanager
async def running(service, folder):
    """A service that refreshes for as long as the block lasts."""
    store = RelationStore(service.registry.relations, folder, limits=Limits(connect_seconds=2, read_seconds=5))
    queries = service.started(store)
    task = asyncio.create_task(queries.run())
    try:
        yield queries
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(queries, **wanted):
    """Wait until the relation is described so; return its description."""
    shown = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_SECONDS):
            while True:
                shown = queries.relations.describe(queries.relations.find("roads"))
                if all(shown[key] == value for key, value in wanted.items()):
                    return shown
                await asyncio.sleep(0.05)
    pytest.fail(f"wanted {wanted}, is {shown}")


@pytest.fixture
def database(postgres):
    name = postgres.new_database()
    postgres.execute("CREATE TABLE roads (segment text, closed boolean)", database=name)
    postgres.execute("INSERT INTO roads VALUES ('s1', true), (NULL, NULL), ('s1', true)", database=name)
    yield name
    if postgres.stopped:
        postgres.start()


async def test_a_relation_goes_away_with_its_server_and_comes_back(service, tmp_path, postgres, database):
    text = f"CREATE RELATION roads FROM '{postgres.url(database)}' {ENDING}"
    async with running(service, tmp_path / "relations") as queries:
        shown = await queries.relations.execute(text)
        assert (shown["rows"], shown["state"]) == (3, "fresh")
        postgres.execute("INSERT INTO roads VALUES ('s2', false)", database=database)
        await until(queries, rows=4, version=2)
        postgres.stop()
        # It is stale meanwhile (test_relation_refresh.py), for as long as a busy machine needs.
        away = await until(queries, state="away", version=3)
        assert "refused" in away["reason"]
        postgres.start()
        await until(queries, state="fresh", version=4, rows=4)
        postgres.execute("ALTER TABLE roads RENAME COLUMN closed TO shut", database=database)
        await until(queries, reason="it has no column 'closed'")
        postgres.execute(
            "ALTER TABLE roads RENAME COLUMN shut TO closed", "ALTER TABLE roads ADD COLUMN more int", database=database
        )
        await until(queries, state="fresh", rows=4)


async def test_a_declared_relation_waits_for_a_server_that_is_down(service, tmp_path, postgres, database):
    address = postgres.url(database)
    postgres.stop()
    async with running(service, tmp_path / "relations") as queries:
        with pytest.raises(FjordSqlError, match="cannot be reached") as caught:
            await queries.relations.execute(f"CREATE RELATION roads FROM '{address}' {ENDING}")
        assert PASSWORD_WRITTEN not in str(caught.value) + caught.value.underlined()
        await queries.relations.execute(
            f"CREATE RELATION roads (segment TEXT, closed BOOLEAN) FROM '{address}' {ENDING}"
        )
        query, _ = await queries.add(JOINED, "near")
        assert isinstance(query, WaitingQuery)
    async with running(service, tmp_path / "relations") as queries:
        assert queries.waiting.find("near") is not None
        postgres.start()
        await until(queries, state="fresh", rows=3)
        async with asyncio.timeout(LONGEST_SECONDS):
            while True:
                if not queries.waiting.all():
                    break
                await asyncio.sleep(0.05)
        assert isinstance(service.registry.query("near"), RegisteredQuery)
