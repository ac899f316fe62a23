"""
offsets   ...  6    7    8         8 was begun, and maybe ended: it is run again, from where 7 ended
commits   ...  6    7
"""  # fmt: skip

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from cluster.errors import ClusterError
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host, PhysicalPlan
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.spark.offsets import Offset, SparkPositions, needed_from
from tests.cluster.spark.hosted_run import CATALOG

ROWS, MEANS = (
    "SELECT speed FROM traffic",
    "SELECT AVG(speed) AS mean FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)",
)


def plan(epoch: int, *queries: str, positions: Mapping[str, int] | None = None) -> PhysicalPlan:
    planned = tuple(
        PlannedQuery(f"q{number}", epoch, rewrite(translate(sql, CATALOG).node).node)
        for number, sql in enumerate(queries)
    )
    return lower(Plan(epoch, planned, dict(positions or {})))


def lay(checkpoint: Path, host: Host, offsets: list[Offset], done: int) -> None:
    """Write Spark's logs of micro-batches, of which `done` are committed."""
    for log in ("offsets", "commits"):
        (checkpoint / host.value / log).mkdir(parents=True, exist_ok=True)
    for number, offset in enumerate(offsets):
        text = f"v1\n{{}}\n{msgspec.json.encode(offset.to_spark()).decode()}"
        (checkpoint / host.value / "offsets" / str(number)).write_text(text)
        if number < done:
            (checkpoint / host.value / "commits" / str(number)).write_text("v1\n{}")


@pytest.mark.parametrize(
    ("versions", "following", "needed"),
    [
        ({"traffic": 7}, [plan(2, ROWS, positions={"traffic": 9})], 7),
        ({}, [plan(2), plan(3, ROWS, positions={"traffic": 9}), plan(4, ROWS, positions={"traffic": 12})], 9),
        ({}, [plan(2, ROWS)], -1),
        ({}, [plan(2)], None),
        ({"other": 7}, [], None),
    ],
)
def test_where_a_stream_is_read_next(
    versions: dict[str, int], following: list[PhysicalPlan], needed: int | None
) -> None:
    assert needed_from("traffic", Offset(1, versions), following) == needed


def test_the_slower_query_counts_and_only_what_it_has_committed(tmp_path: Path) -> None:
    plans = PlanFiles(tmp_path / "plans")
    plans.write(plan(1, ROWS, MEANS, positions={"traffic": 3}))
    positions = SparkPositions(tmp_path, plans)
    assert positions("traffic") == 3, "nothing has run yet"
    assert positions("weather") is None
    offsets = [Offset(1, {"traffic": version}) for version in (10, 20, 30)]
    lay(tmp_path, Host.STATELESS, offsets, done=3)
    assert positions("traffic") == 3
    lay(tmp_path, Host.STATEFUL, offsets, done=2)
    assert positions("traffic") == 20, "from where the last that is done ended"


def test_a_query_that_does_not_read_a_stream_does_not_count(tmp_path: Path) -> None:
    plans = PlanFiles(tmp_path / "plans")
    plans.write(plan(1, ROWS, positions={"traffic": 3}))
    lay(tmp_path, Host.STATELESS, [Offset(1, {"traffic": 40})], done=1)
    assert SparkPositions(tmp_path, plans)("traffic") == 40


def test_an_offset_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    lay(tmp_path, Host.STATEFUL, [Offset(1, {"traffic": 40})], done=1)
    (tmp_path / Host.STATEFUL.value / "offsets" / "0").write_text("")
    with pytest.raises(ClusterError, match="Spark's position cannot be read"):
        SparkPositions(tmp_path, PlanFiles(tmp_path / "plans"))("traffic")


def test_a_commit_counts_for_what_is_removed_once_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))

    lay(tmp_path, Host.STATELESS, [Offset(1, {"traffic": 40}, history={3: {"traffic": 9}})], done=1)
    positions = SparkPositions(tmp_path, PlanFiles(tmp_path / "plans"))
    monkeypatch.setattr(os, "fsync", record)
    for ask in (
        lambda: positions("traffic"),
        lambda: positions.instants("traffic"),
        lambda: positions.begun(Host.STATELESS),
    ):
        synced.clear()
        ask()
        assert synced == ["stateless/commits/0", "stateless/commits"], "Spark syncs nothing itself"
    synced.clear()
    assert positions.read_by(Host.STATELESS, ["traffic"]) == {"traffic": 40}, "a lag is only shown"
    assert not synced


def test_how_far_queries_with_history_have_read(tmp_path: Path) -> None:
    history = {4: {"traffic": 500}, 7: {"traffic": 300, "weather": 9}}
    lay(tmp_path, Host.STATEFUL, [Offset(7, {"traffic": 4}, history=history)], done=1)
    positions = SparkPositions(tmp_path, PlanFiles(tmp_path / "plans"))
    assert positions.instants("traffic") == {Host.STATEFUL: 300}
    assert positions.instants("roads") == {}
