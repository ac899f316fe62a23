"""The parts as separate processes, started as a user starts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cluster.demo.parts import Parts
from cluster.demo.processes import Children
from cluster.service.client import ApiClient


@dataclass(frozen=True)
class RunningCluster:
    """A broker and a cluster that are ready; tests add proxies and motes of their own."""

    parts: Parts
    api: ApiClient


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One broker and one cluster for all system tests; each test uses a stream of its own."""
    folder = tmp_path_factory.mktemp("system")
    with Children(folder / "logs") as children:
        parts = Parts.on_free_ports(children, folder)
        parts.start_broker()
        parts.start_cluster("--silence-after", "10s")
        with ApiClient(parts.api_address) as api:
            yield RunningCluster(parts, api)
