"""Spark's own process for a source ends without output when Java has gone, as it does on Ctrl-C."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from pyspark import cloudpickle

from cluster.spark.source import RUNNER, FjordSource, SourceOptions, end_quietly_without_java


def framed(payload: bytes) -> bytes:
    return struct.pack("!i", len(payload)) + payload


def input_of_a_runner(folder: Path, options: str) -> bytes:
    """Return what Java writes to a runner until it requests an offset."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    source = FjordSource({"fjord": options})
    return b"".join(
        [
            framed(version.encode()),
            framed(str(folder).encode()),
            struct.pack("!i", 0),
            framed(cloudpickle.dumps(source)),
            framed(b'{"type":"struct","fields":[]}'),
            struct.pack("!i", 1000),
        ]
    )


def run(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    """Run a runner whose Java goes away as soon as it has written everything."""
    path = str(folder / "java")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        environment = {**os.environ, "PYTHON_WORKER_FACTORY_SOCK_PATH": path}
        process = subprocess.Popen(
            [sys.executable, "-m", RUNNER], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        connection, _ = listening.accept()
        connection.recv(4)
        connection.sendall(input_of_a_runner(folder, options))
        connection.close()
        output, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess([], process.returncode, output, errors)


@pytest.fixture
def options(tmp_path: Path) -> str:
    made = SourceOptions(
        streams_folder=str(tmp_path), plans_folder=str(tmp_path), buckets=1, max_partitions=1, max_rows=1
    )
    return msgspec.json.encode(made).decode()


def test_a_runner_without_java_prints_nothing(tmp_path: Path, options: str) -> None:
    found = run(tmp_path, options)
    assert (found.stdout, found.stderr) == ("", "")
    assert found.returncode != 0


def test_in_other_processes_errors_are_shown_as_before() -> None:
    before = sys.excepthook
    end_quietly_without_java()
    assert sys.excepthook is before
