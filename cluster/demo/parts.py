"""Starts Fjord's parts on this machine, each ready before the next, and stops them in reverse order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cluster.errors import ClusterError
from cluster.service.client.api_client import ApiClient, ApiUnreachableError
from cluster.spark.java import find_java
from protocols.child_process import child_environment, ending_with_this_process, python_module
from protocols.event_log import LEVEL_VARIABLE
from protocols.mqtt.link import BrokerAddress

if TYPE_CHECKING:
    from rich.console import Console

STOP_SECONDS = 15.0


class ChildError(ClusterError):
    """A child process ended, or was not ready in time."""

    def __init__(self, name: str, what: str, log: Path) -> None:
        tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-15:]) if log.exists() else ""
        super().__init__(f"{name} {what}; its log ends with:\n{tail.rstrip()}", hint=f"the whole log is in {log}")
        self.name = name


@dataclass(slots=True)
class Child:
    """One running part."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


class Children:
    """Child processes that never outlive this context.

    Parameters
    ----------
    folder
        Where their logs go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        module: str = "protocols.command_line",
    ) -> Child:
        """Start ``fjord``, or another module, in a session of its own, so that Ctrl-C reaches only the parent.

        It gets the variables of this process, without secrets, and then those of `environment`.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ending_with_this_process(python_module(module, *arguments)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**child_environment(), LEVEL_VARIABLE: "info", **(environment or {})},
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raise if a child has ended.

        Raises
        ------
        ChildError
            If one has ended; with the end of its log.
        """
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                raise ChildError(child.name, f"ended with exit code {code}", child.log)

    def wait_until(self, ready: Callable[[], bool], child: Child, *, seconds: float) -> None:
        """Wait until `ready`.

        Raises
        ------
        ChildError
            If a child ends, or `child` is not ready in time.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise ChildError(child.name, f"was not ready within {seconds:.0f} s", child.log)
            time.sleep(0.1)

    def forget(self, child: Child) -> None:
        """Stop watching a child: the caller ends it, or expects its end."""
        self._children.remove(child)

    def stop(self) -> None:
        """Stop all children, last started first; kill those that do not stop, with all they started."""
        for child in reversed(self._children):
            if child.process.poll() is None:
                child.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for child in reversed(self._children):
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
            _kill_session(child.process.pid)
            child.process.wait()
        self._children.clear()


def _kill_session(leader: int) -> None:
    """Kill what is left of a child's process group (Spark's Java among it)."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


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
