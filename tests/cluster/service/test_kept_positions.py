"""A cluster keeps the versions of its tables that their readers still need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cluster.physical.nodes import Host
from cluster.service.publishing.publisher_channel import Report
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.spark.offsets import Offset
from cluster.storage import compaction
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


def test_results_are_kept_for_the_publisher_and_streams_for_spark(
    tmp_path: Path, kept: dict[str, list[int | None]]
) -> None:
    server = ClusterServer(ClusterSettings(folder=tmp_path))
    try:
        row = {"query": ["q"], "start_us": [0], "end_us": [1], "kind": ["row"], "row": ["{}"]}
        for number in range(3):
            server.parts.results.append(pl.DataFrame(row), number)
            server.parts.publisher.progress.last = Report(1)
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
