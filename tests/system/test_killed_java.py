"""Spark's processes are killed where a cluster's data are in a folder called as Fjord's package, and last its Java.

Python, which then runs in place of forks, finds Fjord all the same; a cluster without Java ends with an error that has
a hint, and goes on when it is started again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from cluster.demo.parts import Child, Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.spark.forking import stand_in
from tests.system.test_killed_workers import PARENT
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

LIMIT_SECONDS = 180.0


def of(cluster: Child, wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """Return those of a cluster's processes that are wanted, of which there is one at least, and all below them."""
    found = []
    for each in psutil.Process(cluster.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if wanted(each):
                found += [each, *each.children(recursive=True)]
    assert found
    return found


def kill(processes: list[psutil.Process]) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def wait_for_more(api: ApiClient, query: str) -> None:
    """Wait until a query has answered more than it has."""
    before = last_number(api, query)
    wait_for(lambda: last_number(api, query) > before, f"{query} answers nothing more", seconds=LIMIT_SECONDS)


def last_number(api: ApiClient, query: str) -> int:
    return max((row["sequence"] for row in api.results(query, limit=10_000)), default=0)


def test_a_cluster_goes_on_without_forks_and_ends_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        cluster = parts.start_cluster()
        assert (tmp_path / "cluster").is_dir(), "the data, as a folder that Python would take for a package"
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--motes", "2")
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add("SELECT sensor, speed FROM traffic", "samples")
            api.add("SELECT sensor, MAX(speed) FROM traffic WINDOW(RANGE 3 SECONDS) GROUP BY sensor", "fastest")
            wait_for_more(api, "fastest")
            kill(of(cluster, lambda each: each.name() == PARENT or stand_in.__file__ in each.cmdline()))
            for query in ("samples", "fastest"):
                wait_for_more(api, query)
            kill(of(cluster, lambda each: each.name() == "java"))
            assert cluster.process.wait(LIMIT_SECONDS) == 1
            error, hint = cluster.log.read_text().splitlines()[-2:]
            assert error.startswith("error: the Java in which Spark runs has ended")
            assert hint.startswith("hint:  start the cluster again")
            with Children(tmp_path / "logs-again") as again:
                replace(parts, children=again).start_cluster()
                for query in ("samples", "fastest"):
                    wait_for_more(api, query)
                    numbers = [row["sequence"] for row in api.results(query, limit=10_000)]
                    assert numbers == list(range(1, len(numbers) + 1))
