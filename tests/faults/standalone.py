"""A Spark cluster of its own on this machine: a master and two workers, each with one core."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from cluster.demo.parts import free_port
from cluster.errors import ClusterError
from cluster.spark.java import find_java, use_java

if TYPE_CHECKING:
    from collections.abc import Iterator

MASTER, WORKER = (f"org.apache.spark.deploy.{kind}" for kind in ("master.Master", "worker.Worker"))
WORKERS = ("worker-1", "worker-2")
SECONDS = 300.0


class StandaloneSpark:
    """A master and two workers, as processes of their own.

    Parameters
    ----------
    folder
        Of their logs and their work.
    """

    def __init__(self, folder: Path) -> None:
        use_java(find_java())
        self.folder = folder
        self.address = f"spark://127.0.0.1:{free_port()}"
        self._program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all and wait until the workers have registered."""
        self._run("master", "Starting Spark master at", MASTER, "--port", self.address.rpartition(":")[2])
        for name in WORKERS:
            self.start_worker(name)

    def start_worker(self, name: str) -> None:
        """Start a worker and wait until it has registered."""
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name))
        self._run(name, "Successfully registered with master", WORKER, *size, self.address)

    def kill_worker(self, name: str) -> None:
        """Kill a worker and its executors, without a chance to say goodbye."""
        worker = self._running.pop(name)
        for process in [*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)]:
            process.kill()
        worker.wait()

    def executors(self, name: str) -> int:
        """Return how many processes a worker has started and not ended."""
        return len(psutil.Process(self._running[name].pid).children())

    def stop(self) -> None:
        """Stop all."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait(20)

    def _run(self, name: str, until: str, *arguments: str) -> None:
        log = self._logs / name
        with log.open("w") as output:
            self._running[name] = subprocess.Popen(
                [self._program, *arguments, "--host", "127.0.0.1", "--webui-port", "0"],
                stdout=output, stderr=output, cwd=self.folder, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + SECONDS
        while until not in (text := log.read_text()):
            if time.monotonic() > deadline:
                raise ClusterError(f"Spark's {name} did not start: {text[-2000:]}")
            time.sleep(0.2)


@contextmanager
def standalone_spark(folder: Path) -> Iterator[StandaloneSpark]:
    """Run a master and two workers."""
    spark = StandaloneSpark(folder)
    try:
        spark.start()
        yield spark
    finally:
        spark.stop()
