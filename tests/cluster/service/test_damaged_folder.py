"""A data folder that a power cut left damaged does not stop the cluster from starting: it reports what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.ingest.service import Ingest
from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.physical import plan_files
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.service.catalog.relation_store import RelationStore
from cluster.service.registry.registry import Registry
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.spark.offsets import Offset
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.table_folders import FOLDER
from protocols.wire.streams import FieldType
from tests.cluster.service.test_api import client
from tests.cluster.spark.test_positions import lay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.service.conftest import Service


SPEED = (Column("speed", FieldType.REAL),)


async def test_a_damaged_stream_is_listed_with_its_loss(service: Service, tmp_path: Path) -> None:
    writer = service.ingest.writers["traffic"]
    writer.table.append([], writer.table.position(), {("p", "e"): 1})
    writer.table.append([], writer.table.position(), {("p", "e"): 2})
    (tmp_path / "streams" / "traffic" / "_delta_log" / f"{1:020d}.json").write_bytes(b"")
    service.ingest = Ingest(tmp_path / "streams", quarantine=service.registry.quarantine.keep)
    async with client(service) as api:
        (stream,) = (await api.get("/v1/streams")).json()
    assert stream["damage"] == "1 commits of its table were damaged, and what they held is lost"


async def test_queries_are_added_and_dropped_while_another_stream_is_away(service: Service) -> None:
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
    assert PlanFiles(tmp_path / "plans").read(1) == registry.physical


def test_plans_that_spark_still_has_to_run_are_checked_before_it_starts(tmp_path: Path) -> None:
    plans = PlanFiles(tmp_path / "plans")
    registry = Registry(tmp_path / "registry.sqlite", plans)
    with patch.object(plan_files, "WHOLE_EVERY", 2):
        for number in range(4):
            registry.add(None, "SELECT speed FROM traffic", Source("traffic", SPEED), {"traffic": number})
    checkpoint = tmp_path / f"checkpoint-{registry.engine_id}"
    registry.close()
    plans.path(3).write_text(plans.path(3).read_text().replace('"group"', '"crowd"'))
    for host in Host:
        lay(checkpoint, host, [Offset(2)], done=1)
    with pytest.raises(PlanError, match=r"plan of epoch 3 at .* is not a plan: .*`group`"):
        ClusterServer(ClusterSettings(folder=tmp_path))


def test_a_damaged_version_of_a_relation_is_ignored(tmp_path: Path) -> None:
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


def test_damaged_sequence_numbers_of_a_dropped_stream_do_not_stop_the_ingest(service: Service, tmp_path: Path) -> None:
    (tmp_path / "streams" / FOLDER).mkdir()
    (tmp_path / "streams" / FOLDER / "traffic.json").write_bytes(b"")
    assert list(Ingest(tmp_path / "streams", quarantine=service.registry.quarantine.keep).writers) == ["traffic"]
