"""A Spark cluster of its own on this machine: a master and two workers, each with one core."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from cluster.demo.parts import free_port
from cluster.errors import ClusterError
from cluster.spark.java import find_java, use_java

if TYPE_CHECKING:
    from collections.abc import Iterator

MASTER, WORKER = (f"org.apache.spark.deploy.{kind}" for kind in ("master.Master", "worker.Worker"))
SECONDS = 300.0


@contextmanager
def standalone_spark(folder: Path) -> Iterator[str]:
    """Run a master and two workers; yield the master's address."""
    use_java(find_java())
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port, logs = free_port(), folder / "logs"
    logs.mkdir(parents=True)
    running: list[subprocess.Popen[bytes]] = []

    def run(name: str, *arguments: str) -> None:
        with (logs / name).open("w") as log:
            running.append(
                subprocess.Popen(
                    [str(program), *arguments, "--host", "127.0.0.1", "--webui-port", "0"],
                    stdout=log, stderr=log, cwd=folder, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
                    start_new_session=True,
                )
            )  # fmt: skip

    def wait(name: str, words: str) -> None:
        deadline = time.monotonic() + SECONDS
        while words not in (log := (logs / name).read_text()):
            if time.monotonic() > deadline:
                raise ClusterError(f"Spark's {name} did not start: {log[-2000:]}")
            time.sleep(0.2)

    address = f"spark://127.0.0.1:{port}"
    try:
        run("master", MASTER, "--port", str(port))
        wait("master", "Starting Spark master at")
        for name in ("worker-1", "worker-2"):
            run(name, WORKER, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / name), address)
            wait(name, "Successfully registered with master")
        yield address
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)
