"""A cluster prints only Fjord's own lines on its terminal; those of Spark are in a file below the data folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark]

READY_SECONDS = 300.0
STREAM = "CREATE STREAM traffic (sensor STRING, speed DOUBLE) SOURCE mqtt()"
WINDOW = "SELECT AVG(speed) AS speed FROM traffic WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS)"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        yield parts


def cluster_command(parts: Parts, *arguments: str) -> list[str]:
    port = parts.api_address.rpartition(":")[2]
    here = ["--broker", str(parts.broker), "--data", str(parts.folder / "data"), "--api-port", port]
    return [sys.executable, "-m", "protocols.command_line", "cluster", *here, *arguments]


def test_a_cluster_that_runs_and_is_stopped_prints_its_own_lines_only(parts: Parts, tmp_path: Path) -> None:
    shown, errors = tmp_path / "stdout", tmp_path / "stderr"
    with shown.open("wb") as stdout, errors.open("wb") as stderr:
        running = subprocess.Popen(cluster_command(parts), stdout=stdout, stderr=stderr, start_new_session=True)
    try:
        wait_for(lambda: "is ready" in shown.read_text() or running.poll() is not None, seconds=READY_SECONDS)
        with ApiClient(parts.api_address) as api:
            api.declare(STREAM)
            api.add(WINDOW, "averages")
            wait_for(lambda: api.query("averages")["state"] == "running", seconds=READY_SECONDS)
    finally:
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: all processes that the cluster has started get it
        code = running.wait(60)
    log = parts.folder / "data" / "logs" / "spark.log"
    starting, ready = shown.read_text().splitlines()
    assert (code, errors.read_text()) == (0, "")
    assert starting.endswith(f"what Spark writes is in {log}")
    assert ready == f"the cluster is ready: API on {parts.api_address}"
    assert "TransformWithState" in log.read_text()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--master", "local[x]", "Could not parse Master URL: 'local[x]'"),
        ("--driver-memory", "999999999t", "Invalid maximum heap size"),
    ],
)
def test_the_reason_why_spark_does_not_start_is_quoted(parts: Parts, option: str, value: str, words: str) -> None:
    ended = subprocess.run(
        cluster_command(parts, option, value), capture_output=True, text=True, timeout=READY_SECONDS, check=False
    )
    log = parts.folder / "data" / "logs" / "spark.log"
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: Spark did not start")
    assert words in ended.stderr
    assert words in log.read_text()
    assert f"hint:  its whole output is in {log}" in ended.stderr
    assert "Traceback" not in ended.stderr
