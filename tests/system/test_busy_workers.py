"""Workers of Spark end with their cluster, also while Java goes on; those that do not go on are replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cluster.demo.parts import Child, Children, Parts
from cluster.service.client.api_client import ApiClient
from tests.system.test_killed_java import wait_for_more
from tests.system.test_killed_workers import PARENT
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

LIMIT_SECONDS = 60.0


def workers_of(cluster: Child) -> list[psutil.Process]:
    """Return what Spark's daemons have forked."""
    (parent,) = (each for each in psutil.Process(cluster.process.pid).children() if each.name() == PARENT)
    return [worker for fork in parent.children() for worker in fork.children()]


def is_java(process: psutil.Process) -> bool:
    return process.name() == "java"


@contextmanager
def answering(tmp_path: Path, *arguments: str) -> Iterator[tuple[Children, Child, ApiClient]]:
    """Yield a cluster with a query that answers."""
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        cluster = parts.start_cluster(*arguments)
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--motes", "2")
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add("SELECT sensor, MAX(speed) FROM traffic WINDOW(RANGE 3 SECONDS) GROUP BY sensor", "fastest")
            wait_for_more(api, "fastest")
            yield children, cluster, api


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_cluster(number: signal.Signals, tmp_path: Path) -> None:
    with answering(tmp_path) as (children, cluster, _):
        started = psutil.Process(cluster.process.pid).children(recursive=True)
        workers = workers_of(cluster)
        assert workers
        (java,) = filter(is_java, started)
        # Whatever holds the end of this pipe keeps Java, which waits for its tasks, running.
        held = os.open(f"/proc/{java.pid}/fd/0", os.O_WRONLY)
        try:
            children.forget(cluster)
            os.kill(cluster.process.pid, number)
            cluster.process.wait(LIMIT_SECONDS)
            wait_for(lambda: all(map(ended, workers)), "workers run on", seconds=LIMIT_SECONDS)
            os.close(held)
            wait_for(lambda: all(map(ended, started)), "others run on", seconds=LIMIT_SECONDS)
        finally:
            for each in started:
                if not ended(each):
                    each.kill()


def test_workers_that_do_not_go_on_are_replaced(tmp_path: Path) -> None:
    with answering(tmp_path, "--hang-after", "30s") as (_, cluster, api):
        stopped = workers_of(cluster)
        assert stopped
        for each in stopped:
            each.suspend()
        wait_for(lambda: api.status()["fjord"]["hangs"], "no hang is seen", seconds=3 * LIMIT_SECONDS)
        wait_for_more(api, "fastest")
        assert all(map(ended, stopped))
        numbers = [row["sequence"] for row in api.results("fastest", limit=10_000)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert api.status()["fjord"]["restarts"] >= 1
