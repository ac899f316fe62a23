"""A disk that is full: what cannot be written is refused or tried again, and counted; nothing ends, and all of it
recovers by itself when there is space again."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from deltalake import DeltaTable

from cluster.errors import UnwritableError
from cluster.physical.plan_files import PlanFiles
from cluster.service.publishing.publication import Publication
from cluster.service.queries import query_service
from cluster.service.registry.registry_file import RegistryFile
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.demands import decode_demand
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.test_api import GOOD, client
from tests.cluster.service.test_publisher import FlakyLink, Publishing, answers, sequences

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.service.registry.registry import Registry
    from tests.cluster.service.conftest import Service

WEATHER = StreamSchema("weather", (Field("wind", FieldType.REAL),))
OFFER = encode(StreamOffer(1, "p", WEATHER))


@contextmanager
def full(registry: Registry) -> Iterator[None]:
    """Make every write of SQLite fail, as on a full disk."""
    registry._database.execute("PRAGMA query_only = ON")
    registry._plan_database.execute("PRAGMA query_only = ON")
    yield
    registry._database.execute("PRAGMA query_only = OFF")
    registry._plan_database.execute("PRAGMA query_only = OFF")


def no_space(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_rejected_messages_that_cannot_be_kept_are_counted(service: Service) -> None:
    with full(service.registry):
        await service.handle(topics.batches("p"), b"\xc1")
        await service.handle(topics.batches("p"), b"\xc1")
        assert service.registry.quarantine.newest() == []
    assert service.ingest.rejected == {"garbled": 2}
    assert service.registry.troubles.counts == {"quarantine": 2}, "at once, and when it was asked for"
    await service.handle(topics.batches("p"), b"\xc1")
    assert len(service.registry.quarantine.newest()) == 3


async def test_a_query_is_refused_with_the_reason_and_accepted_once_there_is_room(service: Service) -> None:
    await service.queries.add(GOOD, "first")
    async with client(service) as api:
        with full(service.registry):
            refused = await api.post("/v1/queries", json={"sql": GOOD, "name": "second"})
            assert refused.status_code == 507
            assert refused.json()["error"] == "UnwritableError"
            assert "disk" in refused.json()["hint"]
            assert (await api.delete("/v1/queries/first")).status_code == 507
            assert [query["name"] for query in (await api.get("/v1/queries")).json()] == ["first"]
        assert (await api.post("/v1/queries", json={"sql": GOOD, "name": "second"})).status_code == 201
        assert (await api.delete("/v1/queries/first")).status_code == 204
    assert service.plans.read(service.registry.plan.epoch) == service.registry.physical


@contextmanager
def failing_after_commits() -> Iterator[None]:
    """Make every commit of the registry fail, after it has taken effect."""
    leave = RegistryFile.__exit__

    def left(self: RegistryFile, kind: Any, error: BaseException | None, trace: Any, /) -> NoReturn:
        leave(self, kind, error, trace)
        raise UnwritableError("the registry", sqlite3.OperationalError("disk I/O error"))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RegistryFile, "__exit__", left)
        yield


@pytest.mark.parametrize(
    ("change", "demanded"),
    [
        (lambda queries: queries.add(GOOD, "second"), ["first", "second"]),
        (lambda queries: queries.add_many([("second", GOOD), ("third", GOOD)]), ["first", "second", "third"]),
        (lambda queries: queries.drop("first"), []),
    ],
)
async def test_proxies_are_asked_for_what_was_registered_though_that_was_reported_as_failed(
    service: Service, monkeypatch: pytest.MonkeyPatch, change: Any, demanded: list[str]
) -> None:
    await service.queries.add(GOOD, "first")
    with failing_after_commits(), pytest.raises(UnwritableError):
        await change(service.queries)
    assert [query.name for query in service.registry.queries()] == demanded
    monkeypatch.setattr(query_service, "RETRY_SECONDS", 0.01)
    running = asyncio.create_task(service.queries.run())
    for _ in range(500):
        if asked(service) == demanded:
            break
        await asyncio.sleep(0.01)
    running.cancel()
    assert asked(service) == demanded


def asked(service: Service) -> list[str]:
    heads = [each for each in service.link.published if each.topic == topics.demand("traffic")]
    return [demand.query for demand in decode_demand(heads[-1].payload).demands]


async def test_a_query_whose_plan_cannot_be_written_is_not_registered(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = service.registry.plan
    with monkeypatch.context() as patched:
        patched.setattr("cluster.physical.plan_files.os.fsync", no_space)
        with pytest.raises(UnwritableError, match=r"the plan of epoch 2 cannot be written: .*No space left"):
            await service.queries.add(GOOD, "mine")
    assert service.registry.plan == before
    assert service.registry.queries() == []
    assert not service.plans.exists(2)
    await service.queries.add(GOOD, "mine")
    assert list(PlanFiles(service.plans.folder).read(2).subscribers) == ["mine@2"]


async def test_a_plan_file_that_cannot_be_renamed_is_renamed_later(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.rename", no_space)
        await service.queries.add(GOOD, "mine")
        assert [query.name for query in service.registry.queries()] == ["mine"]
        assert not service.plans.exists(2)
        with pytest.raises(UnwritableError):
            await service.queries.add(GOOD, "later")  # or the engine would miss an epoch
    assert service.registry.troubles.counts["plan file"] == 2
    assert service.registry.write_plan()
    assert PlanFiles(service.plans.folder).read(2) == service.registry.physical


async def test_the_publisher_goes_on_and_notes_its_position_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(path: Path, content: bytes) -> NoReturn:
        raise OSError(errno.ENOSPC, "no space left on device", str(path), content)

    link = FlakyLink()
    it = Publishing(tmp_path, link)
    for number in range(3):
        with monkeypatch.context() as disk:
            if number < 2:
                disk.setattr("cluster.service.publishing.publication.write_whole", full)
            it.table.append(answers(2), number)
            assert await it.publish()
        assert Publication(tmp_path).now.version == (0 if number < 2 else 3)
    assert it.troubles == ["published position"] * 2
    assert sequences(link) == [1, 2, 3, 4, 5, 6]


async def test_an_offer_whose_table_cannot_be_made_is_retried(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create", no_space)
        await service.handle(topics.stream_offer("p", "weather"), OFFER)
        service.ingest.retry_offers()
    assert "weather" not in service.ingest.writers
    assert service.ingest._troubles.counts == {"stream table": 2}
    service.ingest.retry_offers()
    assert service.ingest.writers["weather"].table.schema == WEATHER
    assert service.ingest.feeding("weather") == set()  # the proxy has not reported to be online
    service.ingest.retry_offers()
    assert service.ingest._troubles.counts == {"stream table": 2}


async def test_an_offer_that_was_withdrawn_is_not_retried(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create", no_space)
        await service.handle(topics.stream_offer("p", "weather"), OFFER)
    await service.handle(topics.stream_offer("p", "weather"), b"")
    service.ingest.retry_offers()
    assert "weather" not in service.ingest.writers


async def test_a_stream_that_cannot_be_registered_is_neither_created_nor_dropped(service: Service) -> None:
    create = "CREATE STREAM wind (speed REAL) SOURCE mqtt()"
    derive = "CREATE STREAM fast AS SELECT sensor FROM traffic WHERE speed > 60"
    async with client(service) as api:
        with full(service.registry):
            for sql in (create, derive):
                assert (await api.post("/v1/streams", json={"sql": sql})).status_code == 507
        assert [stream["name"] for stream in (await api.get("/v1/streams")).json()] == ["traffic"]
        for sql in (create, derive):
            assert (await api.post("/v1/streams", json={"sql": sql})).status_code == 201
        with full(service.registry):
            for name in ("wind", "fast"):
                assert (await api.delete(f"/v1/streams/{name}")).status_code == 507
        assert {stream["name"] for stream in (await api.get("/v1/streams")).json()} == {"traffic", "wind", "fast"}
        for name in ("wind", "fast"):
            assert (await api.delete(f"/v1/streams/{name}")).status_code == 204


async def test_a_stream_whose_sequence_numbers_cannot_be_kept_is_not_dropped(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client(service) as api:
        with monkeypatch.context() as patched:
            patched.setattr("os.fsync", no_space)
            assert (await api.delete("/v1/streams/traffic")).status_code == 507
        assert [stream["name"] for stream in (await api.get("/v1/streams")).json()] == ["traffic"]
        assert (await api.delete("/v1/streams/traffic")).status_code == 204


async def test_a_relation_stays_fresh_although_that_cannot_be_written(service: Service) -> None:
    service.registry.relations.create("roads", "CREATE ...", ())
    with full(service.registry):
        service.registry.relations.set_fresh("roads", 7)
        with pytest.raises(UnwritableError):
            service.registry.relations.drop("roads")
    assert service.registry.troubles.counts == {"freshness of a relation": 1}
