"""The parts of Fjord as a user starts them, in processes of their own, and the faults of each.

motes ---- broker ---- link ---- proxy
              |
              +------- link ---- cluster          subscriber: `fjord query tail`
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import psutil

from cluster.demo.parts import Child, Children, accepts, free_port, is_ready
from cluster.errors import ClusterError
from cluster.service.client.api_client import ApiClient, ApiUnreachableError
from cluster.service.publishing.supervised_publishers import MODULE
from protocols.mqtt.link import BrokerAddress
from tests.faults.links import Link
from tests.faults.schedules import WORKERS, Fault, Kind, Part, Setting
from tests.faults.standalone import WORKERS as SPARK_WORKERS
from tests.faults.standalone import StandaloneSpark, standalone_spark
from tests.faults.subscribing import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

PROXY = "roadside"
MOTES = 8
PERIOD_US = 200_000
QUERIES = {
    "rows": "SELECT sensor, speed, flow FROM traffic",
    "sums": "SELECT segment, COUNT(*) AS n, SUM(flow) AS flow, MIN(speed) AS slowest "
    "FROM traffic WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) GROUP BY segment",
    "pairs": "SELECT a.segment, a.flow AS one, b.flow AS two FROM traffic a WINDOW(RANGE 500 MILLISECONDS), traffic b "
    "WHERE a.segment = b.segment AND a.lane = 1 AND b.lane = 2",
    "seen": "SELECT sensor, COMPLETENESS() AS seen FROM traffic WINDOW(RANGE 1 SECOND SLIDE 1 SECOND) GROUP BY sensor",
    "probes": "SELECT n FROM probes",
}
STREAMS = ("traffic", "probes")
DEVICE_TOPIC = "probes/cellar/up"
DRIVERS = """
[[driver]]
kind = "json"
name = "probes"
topic = "probes/{mote}/up"
stream = "probes"

[[driver.field]]
name = "n"
path = "n"
type = "integer"
"""
FOLLOWED = ("rows", "sums")
"""Queries that have a subscriber."""
SHORT = Path(__file__).parent / "short_retention"
SECONDS = 900.0
"""On an idle machine, parts start within half a minute."""
TIMES = 3


class RunningParts:
    """All parts that can have faults; a context.

    Parameters
    ----------
    folder
        Of data and logs.
    setting
        Their setting.
    """

    def __init__(self, folder: Path, setting: Setting) -> None:
        self.folder = folder
        self.setting = setting
        self.broker = BrokerAddress(port=free_port())
        self.api_port = free_port()
        self.api = ApiClient(f"http://127.0.0.1:{self.api_port}")
        self.metrics_port = free_port()
        self.subscribers: dict[str, Subscriber] = {}
        self._stack = ExitStack()
        self._lives: dict[str, int] = {}
        self._running: dict[Part, Child] = {}
        self._spark: StandaloneSpark | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._children = stack.enter_context(Children(self.folder / "logs"))
            stack.enter_context(self.api)
            self.links = {
                part: stack.enter_context(Link(self.broker.port)) for part in (Part.PROXY_LINK, Part.CLUSTER_LINK)
            }
            if self.setting is Setting.STANDALONE:
                self._spark = stack.enter_context(standalone_spark(self.folder / "spark"))
            self._begin()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        for subscriber in self.subscribers.values():
            subscriber.close()
        self._stack.close()

    def begin(self, fault: Fault) -> None:
        """Begin a fault; an instantaneous one is over when this returns."""
        part = fault.part
        match fault.kind:
            case Kind.KILL | Kind.OUTAGE:
                self._kill(part)
            case Kind.FORGET:
                self._kill(part)
                shutil.rmtree(self._broker_folder, ignore_errors=True)
            case Kind.STOP:
                for each in self._processes(part):
                    _signal(each, signal.SIGSTOP)
            case Kind.CUT:
                self.links[part].cut()
            case Kind.HOLD:
                self.links[part].hold()
            case Kind.DELAY:
                self.links[part].delay(fault.delay)
            case Kind.FULL:
                self._let_files_grow(part, 0)
            case Kind.EXECUTOR:
                _executor().kill()

    def end(self, fault: Fault) -> None:
        """End a fault, without waiting for its effects to end."""
        part = fault.part
        match fault.kind:
            case Kind.KILL | Kind.OUTAGE | Kind.FORGET:
                self._start(part)
            case Kind.STOP:
                for each in reversed(self._processes(part)):
                    _signal(each, signal.SIGCONT)
            case Kind.CUT | Kind.HOLD | Kind.DELAY:
                self.links[part].mend()
            case Kind.FULL:
                self._let_files_grow(part, resource.RLIM_INFINITY)
            case Kind.EXECUTOR:
                pass

    def ended(self) -> list[str]:
        """Return the parts that have ended by themselves."""
        return [
            f"{part} ended by itself with exit code {child.process.returncode}: {child.log.name}"
            for part, child in self._running.items()
            if child.process.poll() is not None
        ]

    def proxy_metrics(self) -> dict[str, float]:
        """Return the proxy's counters, summed over labels; empty if it does not answer."""
        try:
            text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5.0).text
        except httpx.HTTPError:
            return {}
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line.startswith("fjord_proxy_"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0].removeprefix("fjord_proxy_").removesuffix("_total")
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def _begin(self) -> None:
        self._start(Part.BROKER)
        self._wait(lambda: accepts(self.broker), "the broker does not listen")
        self._start(Part.CLUSTER)
        self._wait(lambda: is_ready(self.api), "the cluster is not ready")
        self._start(Part.PROXY)
        self._start(Part.MOTES)
        self._start(Part.DEVICE)
        self._wait(lambda: len(self.api.streams()) == len(STREAMS), "the cluster has not got the streams")
        for name, sql in QUERIES.items():
            self.api.add(sql, name)
        self.subscribers = {name: Subscriber(name, self._start_subscriber, self._children.forget) for name in FOLLOWED}

    def _wait(self, reached: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(ApiUnreachableError):
                if reached():
                    return
            if ended := self.ended():
                raise ClusterError(", ".join(ended))
            if time.monotonic() > deadline:
                raise ClusterError(what)
            time.sleep(0.1)

    @property
    def device_log(self) -> Path:
        """Where the device notes what the broker has acknowledged."""
        return self.folder / "device.log"

    @property
    def _broker_folder(self) -> Path:
        return self.folder / "broker"

    def _start(self, part: Part) -> None:
        match part:
            case Part.SUBSCRIBER:
                for each in self.subscribers.values():
                    each.start()
            case Part.WORKER_1 | Part.WORKER_2:
                assert self._spark is not None
                self._spark.start_worker(SPARK_WORKERS[WORKERS.index(part)])
            case Part.PUBLISHER:
                pass  # the cluster does
            case Part.DEVICE:
                arguments = [str(self.broker.port), DEVICE_TOPIC, str(self.device_log)]
                self._running[part] = self._child(part, arguments, module="tests.faults.device")
            case _:
                self._start_child(part)

    def _start_child(self, part: Part) -> None:
        through = {part: f"127.0.0.1:{link.port}" for part, link in self.links.items()}
        small = self.setting is Setting.SMALL
        environment: dict[str, str] = {}
        match part:
            case Part.BROKER:
                self._broker_folder.mkdir(exist_ok=True)
                arguments = ["broker", "--port", str(self.broker.port), "--persist", str(self._broker_folder)]
            case Part.PROXY:
                arguments = [
                    "proxy", "--broker", through[Part.PROXY_LINK], "--name", PROXY,
                    "--data", str(self.folder / "proxy"), "--metrics-port", str(self.metrics_port),
                    "--broker-silence", "5s", "--drivers", str(self.folder / "devices.toml"),
                ]  # fmt: skip
                (self.folder / "devices.toml").write_text(DRIVERS, encoding="utf-8")
                if small:
                    arguments += ["--spool-size", "64KiB"]
                    environment = {"FJORD_PROXY_WAITING_SAMPLES": "200"}
            case Part.CLUSTER:
                arguments = [
                    "cluster", "--broker", through[Part.CLUSTER_LINK], "--data", str(self.folder / "cluster"),
                    "--api-port", str(self.api_port), "--broker-silence", "5s",
                    "--master", self._spark.address if self._spark else "local[2]",
                ]  # fmt: skip
                if small:
                    arguments += ["--results-backlog", "1B"]
                if self.setting in {Setting.SHORT, Setting.SMALL}:
                    environment = {"PYTHONPATH": os.pathsep.join([str(SHORT), os.environ.get("PYTHONPATH", "")])}
            case Part.MOTES:
                arguments = [
                    "motes", "run", "--broker", str(self.broker), "--proxy", PROXY,
                    "--motes", str(MOTES), "--period", f"{PERIOD_US // 1000}ms",
                ]  # fmt: skip
            case _:
                raise ValueError(part)
        self._running[part] = self._child(part, arguments, environment)

    def _child(
        self,
        name: str,
        arguments: list[str],
        environment: dict[str, str] | None = None,
        module: str = "protocols.command_line",
    ) -> Child:
        self._lives[name] = self._lives.get(name, 0) + 1
        return self._children.start(f"{name}-{self._lives[name]}", arguments, environment, module=module)

    def _start_subscriber(self, query: str, after: int) -> Child:
        arguments = ["query", "tail", query, "--after", str(after), "--broker", str(self.broker)]
        return self._child(f"tail-{query}", [*arguments, "--api", f"http://127.0.0.1:{self.api_port}"])

    def _kill(self, part: Part) -> None:
        match part:
            case Part.SUBSCRIBER:
                for each in self.subscribers.values():
                    each.kill()
            case Part.WORKER_1 | Part.WORKER_2:
                assert self._spark is not None
                self._spark.kill_worker(SPARK_WORKERS[WORKERS.index(part)])
            case Part.PUBLISHER:
                for each in self._processes(part):
                    _signal(each, signal.SIGKILL)
            case _:
                self._kill_child(part)

    def _kill_child(self, part: Part) -> None:
        doomed = self._processes(part)
        child = self._running.pop(part)
        self._children.forget(child)
        for each in doomed:
            _signal(each, signal.SIGKILL)
        child.process.wait(20)

    def _processes(self, part: Part) -> list[psutil.Process]:
        """Return a part's process, and those it has started."""
        if part is Part.PUBLISHER:
            return [each for each in self._processes(Part.CLUSTER) if _runs(each, MODULE)]
        try:
            process = psutil.Process(self._running[part].process.pid)
            return [process, *process.children(recursive=True)]
        except (psutil.NoSuchProcess, KeyError):
            return []

    def _let_files_grow(self, part: Part, limit: int) -> None:
        wanted = (limit, resource.RLIM_INFINITY)
        for _ in range(TIMES):  # a process may have begun another one meanwhile, which has its limit
            for each in self._processes(part):
                with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                    resource.prlimit(each.pid, resource.RLIMIT_FSIZE, wanted)


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, subprocess.SubprocessError):
        process.send_signal(number)


def _executor() -> psutil.Process:
    """Return an executor that one of our workers has started."""
    for each in psutil.Process().children(recursive=True):
        if _runs(each, "org.apache.spark.executor.CoarseGrainedExecutorBackend"):
            return each
    raise ClusterError("no executor runs")


def _runs(process: psutil.Process, program: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return program in process.cmdline()
    return False
