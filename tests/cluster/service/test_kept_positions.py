"""A cluster keeps the versions of its tables that their readers still need."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prometheus_client import generate_latest

from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.service.data_folder.folder import REGISTRY
from cluster.service.publishing.publication import Publication
from cluster.service.publishing.published import LostResults, Position, Published, shard_of
from cluster.service.publishing.publisher_channel import Report
from cluster.service.registry.registry import Registry
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.spark.offsets import Offset
from cluster.storage import compaction
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamPosition
from tests.cluster.service.conftest import TRAFFIC
from tests.cluster.spark.test_positions import lay


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int | None]]:
    """The oldest version that each table is to keep, noted at every commit."""
    found: dict[str, list[int | None]] = {}

    def take(root: Path, *, needed: int | None, **_: Any) -> int:
        found.setdefault(root.name, []).append(needed)
        return 0

    monkeypatch.setattr(compaction, "SECONDS_BETWEEN", 0)
    monkeypatch.setattr(compaction, "forget_archived", take)
    return found


def test_results_are_kept_for_the_slowest_publisher_and_streams_for_spark(
    tmp_path: Path, kept: dict[str, list[int | None]]
) -> None:
    server = ClusterServer(ClusterSettings(folder=tmp_path, publishers=2))
    try:
        row = {"query": ["q"], "start_us": [0], "end_us": [1], "kind": ["row"], "row": ["{}"]}
        for number in range(3):
            server.parts.results.append(pl.DataFrame(row), number)
            for each, version in zip(server.parts.publishers.each, (3, 1), strict=True):
                each.progress.last = Report(version)
        assert kept["results"][-1] == 1
        server.parts.ingest.declare(TRAFFIC)
        checkpoint = tmp_path / f"checkpoint-{server.parts.registry.engine_id}"
        lay(checkpoint, Host.STATEFUL, [Offset(1, {"traffic": 0}), Offset(1, {"traffic": 1})], done=1)
        table = server.parts.ingest.writers["traffic"].table
        for number in range(3):
            table.append([], StreamPosition(number, {}), {("p", "e"): number})
        assert kept["traffic"][-1] == 0
    finally:
        server.close()


def test_status_and_metrics_show_each_publisher_and_the_slowest_for_all(tmp_path: Path) -> None:
    #  results   1 2 3 4       publisher 0 has published up to 4, publisher 1 up to 1
    server = ClusterServer(ClusterSettings(folder=tmp_path, publishers=2))
    try:
        row = {"query": ["q"], "start_us": [0], "end_us": [1], "kind": ["row"], "row": ["{}"]}
        for number in range(4):
            server.parts.results.append(pl.DataFrame(row), number)
        publishers = server.parts.publishers
        for each, report in zip(
            publishers.each,
            (Report(4, 3, connected=True), Report(1, 2, front=3, queries_behind=2, behind={"q": 1})),
            strict=True,
        ):
            each.progress.last = report
        status = publishers.status()
        assert (status["published_version"], status["unpublished_commits"]) == (1, 3)
        assert [(each["number"], each["rows_published"]) for each in status["publishers"]] == [(0, 3), (1, 2)]
        assert [each["unpublished_commits"] for each in status["publishers"]] == [0, 3]
        assert [each["unpublished_commits_in_front"] for each in status["publishers"]] == [0, 1]
        assert [each["queries_behind"] for each in status["publishers"]] == [{}, {"q": 3}]
        other = next(name for name in map(str, range(99)) if shard_of(name) % 2 == 0)
        assert shard_of("q") % 2 == 1
        assert [publishers.unpublished_commits_of(name) for name in ("q", other)] == [3, 0]
        unnamed = next(name for name in map(str, range(99)) if shard_of(name) % 2 == 1)
        assert publishers.unpublished_commits_of(unnamed) is None, "one more is behind that has no name"
        assert not status["publisher"]["running"]
        assert publishers.trouble == "publisher 0 of 2 does not run: it has not been started yet"
        shown = generate_latest(server.metrics.registry).decode()
        assert 'fjord_publisher_unpublished_commits{publisher="1"} 3.0' in shown
        assert 'fjord_publisher_front_unpublished_commits{publisher="1"} 1.0' in shown
        assert 'fjord_publisher_queries_behind{publisher="1"} 2.0' in shown
        assert 'fjord_publisher_rows_total{publisher="0"} 3.0' in shown
        assert "fjord_results_published_rows_total 5.0" in shown
        assert "fjord_results_unpublished_commits 3.0" in shown
    finally:
        server.close()


def test_the_position_of_an_earlier_program_is_taken_over_once(tmp_path: Path) -> None:
    #  registry   2, one row of the next, 4 rows lost     publication.json   the same; later its own
    registry = Registry(tmp_path / REGISTRY, PlanFiles(tmp_path / "plans"))
    table = ResultsTable(str(tmp_path / "results"), registry.engine_id)
    row = {"query": ["q", "q"], "start_us": [0, 1], "end_us": [1, 2], "kind": ["row"] * 2, "row": ["{}"] * 2}
    for number in range(3):
        table.append(pl.DataFrame(row), number)
    registry.close()
    with closing(sqlite3.connect(tmp_path / REGISTRY)) as database, database:
        database.execute("INSERT OR REPLACE INTO published VALUES (0, 2, 1)")
        lost = '{"times":1,"commits":1,"rows":4,"seen_us":7}'
        database.execute("INSERT INTO meta VALUES ('lost_results', ?)", (lost,))
    before = Published(2, LostResults(1, 1, 4, 7), 1)
    for wanted in (before, Published(3, before.lost)):
        server = ClusterServer(ClusterSettings(folder=tmp_path))
        assert Publication(tmp_path).now == wanted
        assert server.parts.publishers.status()["published_version"] == wanted.version
        assert server.parts.publishers.lost.rows == 4
        server.close()
        Publication(tmp_path).note(Position(3))
