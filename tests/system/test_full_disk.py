"""A cluster whose disk is full for a while: its API answers and reports it, and afterwards nothing is lost.

The disk is full for this process and its children alone: their files may not grow (RLIMIT_FSIZE), which takes no
privileges. Writes of Java, SQLite, Delta and Python then fail with an error of the operating system.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from tests.system.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

QUERY = "SELECT segment, speed FROM traffic"
FULL, EMPTY = 0, resource.RLIM_INFINITY


def let_files_grow(process: psutil.Process, limit: int) -> None:
    for each in (process, *process.children(recursive=True)):
        resource.prlimit(each.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def test_a_full_disk_is_reported_and_survived(tmp_path: Path) -> None:
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        cluster = parts.start_cluster()
        process = psutil.Process(cluster.process.pid)
        with ApiClient(parts.api_address) as api, httpx.Client(base_url=parts.api_address) as raw:
            let_files_grow(process, FULL)
            parts.start_proxy("roadside")
            parts.start_motes("roadside", "--motes", "4", "--period", "200ms")
            wait_for(lambda: api.status()["storage"]["failures"].get("stream table", 0) > 1)
            create = "CREATE STREAM other (speed REAL) SOURCE mqtt()"
            refused = raw.post("/v1/streams", json={"sql": create})
            assert (refused.status_code, refused.json()["error"]) == (507, "UnwritableError")
            let_files_grow(process, EMPTY)
            wait_for(lambda: any(each["name"] == "traffic" for each in api.streams()))
            assert raw.post("/v1/streams", json={"sql": create}).status_code == 201
            query = raw.post("/v1/queries", json={"sql": QUERY}).json()["name"]
            wait_for(lambda: raw.get(f"/v1/queries/{query}").json()["rows"] > 10)

            let_files_grow(process, FULL)  # now while samples come
            wait_for(lambda: api.status()["storage"]["failures"].get("commit", 0) > 1)
            let_files_grow(process, EMPTY)
            before = raw.get(f"/v1/queries/{query}").json()["rows"]
            wait_for(lambda: raw.get(f"/v1/queries/{query}").json()["rows"] > before + 10)
            assert cluster.process.poll() is None
