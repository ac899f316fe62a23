"""The parts as separate processes, started as a user starts them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.demo.processes import Child, Children
from cluster.service.client import ApiClient, ApiUnreachableError
from protocols.mqtt import BrokerAddress


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(address: BrokerAddress) -> bool:
    try:
        with socket.create_connection((address.host, address.port), timeout=1.0):
            return True
    except OSError:
        return False


@dataclass(frozen=True)
class RunningCluster:
    """A broker and a cluster that are ready; tests add proxies and motes of their own."""

    broker: BrokerAddress
    api: ApiClient
    api_address: str
    children: Children
    folder: Path

    def start_proxy(self, name: str) -> Child:
        return self.children.start(
            f"proxy-{name}",
            ["proxy", "--broker", str(self.broker), "--name", name, "--data", str(self.folder / f"proxy-{name}")],
        )

    def start_motes(self, proxy: str, *arguments: str) -> Child:
        return self.children.start(
            f"motes-{proxy}", ["motes", "run", "--broker", str(self.broker), "--proxy", proxy, *arguments]
        )

    def wait_for_stream(self, stream: str, child: Child) -> None:
        self.children.wait_until(
            lambda: stream in {each["name"] for each in self.api.streams()}, child, seconds=60, tick=lambda: None
        )


def is_ready(api: ApiClient) -> bool:
    try:
        return bool(api.status()["fjord"]["ready"])
    except ApiUnreachableError:
        return False


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One broker and one cluster for all system tests; each test uses a stream of its own."""
    folder = tmp_path_factory.mktemp("system")
    broker = BrokerAddress(port=free_port())
    address = f"http://127.0.0.1:{free_port()}"
    with Children(folder / "logs") as children, ApiClient(address) as api:
        child = children.start("broker", ["broker", "--port", str(broker.port)])
        children.wait_until(lambda: accepts(broker), child, seconds=30, tick=lambda: None)
        child = children.start(
            "cluster",
            [
                "cluster", "--broker", str(broker), "--data", str(folder / "cluster"),
                "--api-port", address.rpartition(":")[2], "--silence-after", "10s",
            ],
        )  # fmt: skip
        children.wait_until(lambda: is_ready(api), child, seconds=120, tick=lambda: None)
        yield RunningCluster(broker, api, address, children, folder)
