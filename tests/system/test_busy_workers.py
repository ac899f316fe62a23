"""Workers of Spark that compute and look at nothing else end with their cluster, and with Java.

They are stopped (SIGSTOP) in place of computing: no signal reaches them then but SIGKILL, and no end of a file.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from cluster.demo.parts import Parts
from cluster.demo.processes import Child, Children
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


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_busy_workers_end_with_their_cluster(number: signal.Signals, tmp_path: Path) -> None:
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        cluster = parts.start_cluster()
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--motes", "2")
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add("SELECT sensor, MAX(speed) FROM traffic WINDOW(RANGE 3 SECONDS) GROUP BY sensor", "fastest")
            wait_for_more(api, "fastest")
        started = psutil.Process(cluster.process.pid).children(recursive=True)
        workers = workers_of(cluster)
        try:
            assert workers
            for each in workers:
                each.suspend()
            children.forget(cluster)
            os.kill(cluster.process.pid, number)
            cluster.process.wait(LIMIT_SECONDS)
            wait_for(lambda: all(ended(each) for each in workers), "workers run on", seconds=LIMIT_SECONDS)
            wait_for(lambda: all(ended(each) for each in started), "others run on", seconds=LIMIT_SECONDS)
        finally:
            for each in started:
                if not ended(each):
                    each.kill()
