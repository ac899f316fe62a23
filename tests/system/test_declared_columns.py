"""A stream is created before motes announce it, with columns in another order, or with others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.system.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]

SENSORS, SAMPLES = 6, 100
WAKE_UPS = 4
"""Polls of a sleeping mote, one every 2 s: at this speed all samples would have been taken meanwhile."""
BEGIN = datetime(2012, 3, 1, tzinfo=UTC)


def recorded() -> list[tuple[datetime, str, float, int, float]]:
    """Samples as the motes take them: speed, lane, occ, all different."""
    return [
        (BEGIN + timedelta(seconds=second), f"s{sensor}", 60.0 + second + sensor / 8, sensor % 4, second / 128)
        for second in range(SAMPLES)
        for sensor in range(SENSORS)
    ]


def trace(folder: Path) -> str:
    path = folder / "trace.csv"
    lines = (f"{at:%Y-%m-%dT%H:%M:%S},{name},{speed},{lane},{occ!r}" for at, name, speed, lane, occ in recorded())
    path.write_text("\n".join(["time,sensor,speed,lane,occ", *lines]) + "\n")
    return str(path)


def declaration(stream: str, lane: str = "INTEGER") -> str:
    return f"CREATE STREAM {stream} (sensor TEXT FIXED, lane {lane}, occ REAL, speed REAL) SOURCE mqtt()"


def replayed(cluster: RunningCluster, folder: Path, stream: str, *arguments: str) -> None:
    cluster.parts.start_proxy(stream)
    cluster.parts.start_motes(
        stream, "--trace", trace(folder), "--stream", stream, "--speed", "20", "--hold", "600s", *arguments
    )
    wait_for(lambda: offers(cluster, stream), "the proxy offers its stream")


def offers(cluster: RunningCluster, stream: str) -> list[dict[str, Any]]:
    return next((each["offers"] for each in cluster.api.streams() if each["name"] == stream), [])


def answers(cluster: RunningCluster, query: str) -> list[tuple[datetime, str, float, int, float]]:
    wait_for(lambda: cluster.api.query(query)["rows"] >= SENSORS * SAMPLES, "every sample is answered")
    rows = ((datetime.fromisoformat(each["start"]), each["row"]) for each in cluster.api.results(query))
    return sorted((at, row["sensor"], row["speed"], row["lane"], row["occ"]) for at, row in rows)


def fjord(cluster: RunningCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "protocols.command_line",
        *arguments,
        "--api",
        cluster.parts.api_address,
    ]
    environment = {**os.environ, "COLUMNS": "250"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)


def test_columns_in_another_order_are_stored_under_their_names(cluster: RunningCluster, tmp_path: Path) -> None:
    cluster.api.declare(declaration("roads"))
    cluster.api.add("SELECT sensor, lane, occ, speed FROM roads", "all-roads")
    replayed(cluster, tmp_path, "roads")
    assert answers(cluster, "all-roads") == sorted(recorded())
    assert [each["fits"] for each in offers(cluster, "roads")] == [True]
    assert cluster.api.query("all-roads")["mismatches"] == []
    assert cluster.api.status()["rows_rejected"] == 0
    cluster.api.drop("all-roads")


def test_a_mismatch_is_shown_everywhere_and_motes_sleep_until_it_is_mended(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    counters = tmp_path / "counters.json"

    def counted(name: str) -> int:
        motes = json.loads(counters.read_text())["motes"] if counters.exists() else {}
        return sum(mote[name] for mote in motes.values())

    cluster.api.declare(declaration("lanes", lane="REAL"))
    replayed(cluster, tmp_path, "lanes", "--counters", str(counters))
    reason = "lane is declared as REAL and offered as INTEGER"
    sentence = f"proxy lanes does not feed stream lanes, and its sensors are not asked: {reason}"
    added = fjord(cluster, "query", "add", "SELECT sensor, lane, occ, speed FROM lanes", "--name", "all-lanes")
    assert f"warning: {sentence}" in added.stderr
    assert f"mismatch  {sentence}" in fjord(cluster, "query", "show", "all-lanes").stdout
    assert sentence in fjord(cluster, "stream", "list").stdout
    wait_for(lambda: reason in fjord(cluster, "sensors", "--where", "stream = 'lanes'").stdout)

    woken = counted("wake_ups")
    wait_for(lambda: counted("wake_ups") >= woken + WAKE_UPS * SENSORS)
    assert counted("samples") == 0, "no query demands samples of these motes"
    assert cluster.api.query("all-lanes")["rows"] == 0

    cluster.api.drop("all-lanes")
    cluster.api.drop_stream("lanes")
    cluster.api.declare(declaration("lanes"))
    added = fjord(cluster, "query", "add", "SELECT sensor, lane, occ, speed FROM lanes", "--name", "all-lanes")
    assert added.stderr == ""
    assert answers(cluster, "all-lanes") == sorted(recorded()), "proxy and motes were not restarted"
    wait_for(lambda: counted("samples") >= SENSORS * SAMPLES, "the counters, written from time to time, show them")
    cluster.api.drop("all-lanes")
