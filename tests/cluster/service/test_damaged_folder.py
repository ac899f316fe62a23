"""A data folder that a power cut left damaged does not keep the cluster from its start: what is lost is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from cluster.ingest.service import Ingest
from cluster.language.algebra import Column
from cluster.plan.epoch import PlanFiles
from cluster.service.registry import Registry
from cluster.service.relation_store import RelationStore
from cluster.storage.dropped_streams import FOLDER
from cluster.storage.relation_versions import RelationVersions
from protocols.streams import FieldType
from tests.cluster.service.test_api import client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.service.conftest import Service


async def test_a_stream_that_was_damaged_is_listed_with_what_it_lost(service: Service, tmp_path: Path) -> None:
    writer = service.ingest.writers["traffic"]
    writer.table.append([], writer.table.position(), {("p", "e"): 1})
    writer.table.append([], writer.table.position(), {("p", "e"): 2})
    (tmp_path / "streams" / "traffic" / "_delta_log" / f"{1:020d}.json").write_bytes(b"")
    service.ingest = Ingest(tmp_path / "streams", quarantine=service.registry.quarantine)
    async with client(service) as api:
        (stream,) = (await api.get("/v1/streams")).json()
    assert stream["damage"] == "1 commits of its table were damaged, and what they held is lost"


async def test_queries_come_and_go_while_a_stream_of_others_is_away(service: Service) -> None:
    await service.queries.add("SELECT sensor FROM traffic", "reader")
    before = service.registry.plan.positions
    writer = service.ingest.writers.pop("traffic")
    await service.queries.drop("reader")
    service.ingest.writers["traffic"] = writer
    assert service.registry.plan.positions == before


def test_a_plan_file_without_content_is_written_again(tmp_path: Path) -> None:
    plans = PlanFiles(tmp_path / "plans")
    Registry(tmp_path / "registry.sqlite", plans).close()
    plans.path(1).write_bytes(b"")
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    assert PlanFiles(tmp_path / "plans").read(1) == registry.plan


def test_a_damaged_version_of_a_relation_is_taken_for_none(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry.sqlite", PlanFiles(tmp_path / "plans"))
    text = "CREATE RELATION roads (lane INTEGER) FROM '/nowhere/roads.csv' REFRESH EVERY 1 HOUR"
    roads = registry.relations.create("roads", text, (Column("lane", FieldType.INTEGER),))
    versions = RelationVersions(tmp_path / "relations" / roads.identity)
    for lane in (1, 2):
        rows = pl.DataFrame({"lane": [lane]})
        versions.prepare(rows)
        versions.commit(rows, {})
    (versions.folder / f"{2:012d}.json").write_bytes(b"")
    found = RelationStore(registry.relations, tmp_path / "relations").find("roads")
    assert found is not None
    assert (found.last, versions.latest()) == (versions.version(1), 1)


def test_damaged_numbers_of_a_dropped_stream_stop_nothing(service: Service, tmp_path: Path) -> None:
    (tmp_path / "streams" / FOLDER).mkdir()
    (tmp_path / "streams" / FOLDER / "traffic.json").write_bytes(b"")
    assert list(Ingest(tmp_path / "streams", quarantine=service.registry.quarantine).writers) == ["traffic"]
