"""Broker, cluster, proxies and motes as separate processes, started as a user starts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from tests.system.stored_day import Undisturbed, run_undisturbed


@dataclass(frozen=True)
class RunningCluster:
    """A broker and a cluster that are ready; tests add proxies and motes of their own."""

    parts: Parts
    api: ApiClient


@pytest.fixture(scope="session")
def running_parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """One broker and one cluster for all system tests."""
    folder = tmp_path_factory.mktemp("system")
    with Children(folder / "logs") as children:
        parts = Parts.on_free_ports(children, folder)
        parts.start_broker()
        parts.start_cluster("--silence-after", "10s")
        yield parts


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The results of an undisturbed run over the stored day."""
    return run_undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def cluster(running_parts: Parts, tmp_path: Path) -> Iterator[RunningCluster]:
    """The broker and the cluster; proxies and motes that a test starts end with it, so names can be used again."""
    with Children(tmp_path / "logs") as children, ApiClient(running_parts.api_address) as api:
        yield RunningCluster(replace(running_parts, children=children), api)
