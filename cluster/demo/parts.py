"""Starts Fjord's parts on this machine, each ready before the next: for the demonstration, tests and benchmarks."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.demo.processes import Child, Children
from cluster.service.client.api_client import ApiClient, ApiUnreachableError
from cluster.spark.java import find_java
from protocols.mqtt.link import BrokerAddress

if TYPE_CHECKING:
    from rich.console import Console

BROKER_SECONDS = 30.0
CLUSTER_SECONDS = 120.0
STREAM_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that run as processes of their own, on free ports of the loopback interface.

    Parameters
    ----------
    children
        Holds the processes, and ends them.
    folder
        Where the parts keep their data.
    broker
        Where the broker listens.
    api_address
        Where the cluster's API listens.
    """

    children: Children
    folder: Path
    broker: BrokerAddress
    api_address: str

    @classmethod
    def on_free_ports(cls, children: Children, folder: Path) -> Parts:
        """Choose ports; nothing is started yet."""
        return cls(children, folder, BrokerAddress(port=free_port()), f"http://127.0.0.1:{free_port()}")

    def start_broker(self) -> Child:
        """Start a broker and wait until it accepts connections."""
        child = self.children.start("broker", ["broker", "--port", str(self.broker.port)])
        self.children.wait_until(lambda: accepts(self.broker), child, seconds=BROKER_SECONDS)
        return child

    def start_cluster(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Child:
        """Start a cluster and wait until a new query does not have to wait for Spark.

        Its folder may be a kept one that was copied: no other parts are at this broker.
        """
        port = self.api_address.rpartition(":")[2]
        child = self.children.start(
            "cluster",
            [
                "cluster", "--broker", str(self.broker), "--data", str(self.folder / "cluster"),
                "--api-port", port, "--adopt", *arguments,
            ],
            environment,
        )  # fmt: skip
        with ApiClient(self.api_address) as api:
            self.children.wait_until(lambda: is_ready(api), child, seconds=CLUSTER_SECONDS)
        return child

    def start_proxy(self, name: str, *arguments: str) -> Child:
        """Start a proxy."""
        data = str(self.folder / f"proxy-{name}")
        return self.children.start(
            f"proxy-{name}",
            ["proxy", "--broker", str(self.broker), "--name", name, "--data", data, "--adopt", *arguments],
        )

    def start_motes(self, proxy: str, *arguments: str) -> Child:
        """Start motes of a proxy."""
        at = ["--broker", str(self.broker), "--proxy", proxy]
        return self.children.start(f"motes-{proxy}", ["motes", "run", *at, *arguments])

    def wait_for_stream(self, stream: str, child: Child) -> None:
        """Wait until the cluster knows a stream."""
        with ApiClient(self.api_address) as api:
            self.children.wait_until(lambda: _has_stream(api, stream), child, seconds=STREAM_SECONDS)


@contextmanager
def stage(keep: Path | None, console: Console) -> Iterator[Parts]:
    """Yield parts of which none is started yet; those that are started end with this context, also by SIGTERM.

    Parameters
    ----------
    keep
        The folder of all data and logs; None for one that is removed.
    console
        Where it is printed which Java runs Spark.
    """
    console.print(f"Java: {find_java().description}", highlight=False)
    # SIGTERM ends it as Ctrl-C does, so that no child process is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fjord-demo-")))
        yield Parts.on_free_ports(stack.enter_context(Children(folder / "logs")), folder)


def free_port() -> int:
    """Return a TCP port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(address: BrokerAddress) -> bool:
    """Return whether the broker accepts connections."""
    try:
        with socket.create_connection((address.host, address.port), timeout=1.0):
            return True
    except OSError:
        return False


def is_ready(api: ApiClient) -> bool:
    """Return whether the cluster runs new queries without delay."""
    try:
        return bool(api.status()["fjord"]["ready"])
    except ApiUnreachableError:
        return False


def _has_stream(api: ApiClient, stream: str) -> bool:
    return any(each["name"] == stream for each in api.streams())
