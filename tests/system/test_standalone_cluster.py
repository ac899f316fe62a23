"""A standalone Spark cluster with two workers on this machine answers what local mode answers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from cluster.java import find_java, use_java
from tests.system.stored_day import Undisturbed, results, start, wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark]

MASTER, WORKER = (f"org.apache.spark.deploy.{kind}" for kind in ("master.Master", "worker.Worker"))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture
def two_workers(tmp_path: Path) -> Iterator[str]:
    """Start a master and two workers with a core each; return the master's address."""
    use_java(find_java())
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port, logs = free_port(), tmp_path / "logs"
    logs.mkdir()
    running = []

    def run(name: str, *arguments: str) -> None:
        with (logs / name).open("w") as log:
            running.append(
                subprocess.Popen(
                    [str(program), *arguments, "--host", "127.0.0.1", "--webui-port", "0"],
                    stdout=log, stderr=log, cwd=tmp_path, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
                )
            )  # fmt: skip

    def wait(name: str, words: str) -> None:
        deadline = time.monotonic() + 60
        while words not in (logs / name).read_text():
            assert time.monotonic() < deadline, (logs / name).read_text()[-2000:]
            time.sleep(0.2)

    address = f"spark://127.0.0.1:{port}"
    try:
        run("master", MASTER, "--port", str(port))
        wait("master", "Starting Spark master at")
        for name in ("worker-1", "worker-2"):
            folder = str(tmp_path / name)
            run(name, WORKER, "--cores", "1", "--memory", "1g", "--work-dir", folder, address)
            wait(name, "Successfully registered with master")
        yield address
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


def test_two_workers_answer_what_one_process_answers(
    tmp_path: Path, two_workers: str, undisturbed: Undisturbed
) -> None:
    spread = tmp_path / "spread"
    shutil.copytree(undisturbed.stored, spread)
    with start(spread, two_workers) as driver:
        wait_for(driver, "done")
    assert results(spread).equals(results(undisturbed.left))
    workers = [log for name in ("worker-1", "worker-2") for log in (tmp_path / name).glob("app-*/*/stderr")]
    assert len({log.parents[2] for log in workers}) == 2, "both workers have run something"
