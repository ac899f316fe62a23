"""A registry that is older than its plans and Spark's log continues after them, and Spark does not wait.

registry    1 2 3                  restored from a copy, or on a disk that does not keep what it syncs
plans       1 2 3 4 5
Spark             3 ... 5          has begun 5; it would never read another 4 and 5
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest

from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.service.http.api import status_of
from cluster.service.registry.plan_transitions import LostEpochs
from cluster.service.registry.registry import Registry, newest_known_epoch, skip_lost_epochs
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.wire.streams import FieldType

NODE = Source("traffic", (Column("speed", FieldType.REAL),))


def opened(folder: Path) -> Registry:
    return Registry(folder / "registry.sqlite", PlanFiles(folder / "plans"))


def log_offset(folder: Path, host: Host, epoch: int) -> None:
    log = folder / "checkpoint" / host.value / "offsets"
    log.mkdir(parents=True, exist_ok=True)
    (log / "7").write_text(f"v1\n{{}}\n{json.dumps({'epoch': epoch, 'versions': {'traffic': 5}})}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a cluster that ran q1 to q4, whose registry was restored from a copy with q1 and q2."""
    registry = opened(tmp_path)
    for name in ("q1", "q2"):
        registry.add(name, "SELECT speed FROM traffic", NODE, {"traffic": 1})
    registry.close()
    shutil.copy(tmp_path / "registry.sqlite", tmp_path / "copy")
    registry = opened(tmp_path)
    registry.drop("q1", {"traffic": 2})
    registry.add("q3", "SELECT speed FROM traffic", NODE, {"traffic": 3})
    registry.close()
    shutil.move(tmp_path / "copy", tmp_path / "registry.sqlite")
    return tmp_path


def test_the_newest_known_epoch_comes_from_plans_or_spark_s_log(folder: Path) -> None:
    plans = PlanFiles(folder / "plans")
    assert newest_known_epoch(plans, folder / "checkpoint") == 5
    log_offset(folder, Host.STATELESS, 8)
    assert newest_known_epoch(plans, folder / "checkpoint") == 8
    assert newest_known_epoch(PlanFiles(folder / "none"), folder / "none") == 0


def test_queries_are_added_and_dropped_after_lost_epochs(folder: Path) -> None:
    log_offset(folder, Host.STATEFUL, 5)
    registry = opened(folder)
    assert skip_lost_epochs(registry, 5, {"traffic": 9}) == 2
    assert registry.plan.epoch == 6
    assert [query.name for query in registry.plan.queries] == ["q1", "q2"]
    assert registry.plan.positions == {"traffic": 9}
    registry.add("q3", "SELECT speed FROM traffic", NODE, {"traffic": 9})
    plans = PlanFiles(folder / "plans")
    assert [[each.query for each in plans.read(epoch).oldest_first] for epoch in range(3, 8)] == [
        ["q1", "q2"], ["q2"], ["q2", "q3"], ["q1", "q2"], ["q1", "q2", "q3"],
    ]  # fmt: skip
    assert skip_lost_epochs(registry, 6, {"traffic": 9}) == 0
    registry.close()


def test_status_and_metrics_count_lost_epochs_over_restarts(folder: Path) -> None:
    for epochs in (2, 2, 5):
        if epochs == 5:
            plans = PlanFiles(folder / "plans")
            plans.write(replace(plans.read(6), epoch=9))
        server = ClusterServer(ClusterSettings(folder=folder))
        try:
            lost = status_of(server.parts)["fjord"]["lost"]
            assert (lost["epochs"], lost["last"] is None) == (epochs, False)
            assert f"fjord_plan_lost_epochs_total {epochs}.0" in generate_latest(server.metrics.registry).decode()
        finally:
            server.close()


def test_spark_finds_a_plan_for_every_epoch_it_may_have_begun(folder: Path) -> None:
    for epoch in (4, 5):
        PlanFiles(folder / "plans").path(epoch).unlink()
    registry = opened(folder)
    skip_lost_epochs(registry, 5, {"traffic": 9})
    plans = PlanFiles(folder / "plans")
    assert all(plans.exists(epoch) for epoch in range(7))
    assert plans.read(6) == registry.physical
    registry.close()


def test_nothing_changes_if_no_epoch_is_lost(folder: Path) -> None:
    registry = opened(folder)
    before = registry.plan
    assert skip_lost_epochs(registry, before.epoch, {"traffic": 9}) == 0
    assert registry.plan == before
    assert registry.lost_epochs() == LostEpochs()
    registry.close()


def test_an_unfinished_plan_file_is_not_a_known_epoch(folder: Path) -> None:
    plans = PlanFiles(folder / "plans")
    plans.path(5).write_bytes(b"")
    plans.path(9).with_suffix(".unfinished").write_bytes(b"{}")
    assert newest_known_epoch(plans, folder / "checkpoint") == 4
