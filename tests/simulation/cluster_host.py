"""A simulated machine with a whole cluster: everything but Spark, threads, sockets and the disk is the product's own.

    ClusterServer       ingest, registry, catalog, queries, demands: as it is
    engine              tests/simulation/engine.py
    publishers          further processes of the machine, tests/simulation/publisher_host.py
    data folder         in memory, tests/simulation/synced_disk.py

It is killed, loses its power and is started again from outside; what is there then is what was on its disk.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError
from cluster.operators import Filter
from cluster.plan.scalar_texts import read_scalar
from cluster.service import server as server_module
from cluster.service.catalog import relation_refresh, relation_store
from cluster.service.data_folder.folder import DataFolder, open_folder
from cluster.service.publishing import publisher_process
from cluster.service.registry.query_names import QueryExistsError, UnknownQueryError
from cluster.service.running import parts
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from protocols.mqtt.link import BrokerAddress
from protocols.wire.streams import FieldType
from tests.power_cuts.micro_batches import BUCKETS
from tests.simulation import publisher_host
from tests.simulation.committed_versions import CommittedVersions
from tests.simulation.engine import SimulatedEngine, forget_all
from tests.simulation.hosts import Host, HostClock, current
from tests.simulation.publisher_host import ChildProcess
from tests.simulation.synced_disk import SyncedDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path
    from random import Random

    from cluster.service.running.parts import ClusterParts
    from tests.simulation.hosts import Incarnation
    from tests.simulation.virtual_loop import VirtualLoop

ALWAYS_TRUE = read_scalar("1 = 1", FieldType.BOOLEAN)
RESTART_SECONDS = 2.0
"""After so long a cluster that could not start, or ended, is started again, as a service manager does."""

AWAY = "the cluster is away"
LOOK_SECONDS = 0.25
"""Between two looks at whether a request has been answered."""
SENSORS_SECONDS = 120.0
"""Between two looks at the relation of all sensors: it takes a tenth of a simulation otherwise."""
TICK_SECONDS, REPORT_SECONDS = 2.0, 1.0
"""Between two looks that mostly find nothing: at relations that are due, and at what a publisher has done."""


class _Countdown:
    """Does something when it has been called so many times."""

    def __init__(self, times: int, work: Callable[[], object]) -> None:
        self._times = times
        self._work = work

    def __call__(self) -> None:
        self._times -= 1
        if not self._times:
            self._work()


class HeldFolder(DataFolder):
    """A data folder that is let go once, by the process or when it has been killed."""

    def close(self) -> None:
        """Let it go."""
        for held in _opened.values():
            if self in held:
                held.remove(self)
                super().close()


_opened: dict[str, list[DataFolder]] = {}
"""By host: folders that its process holds, also one that failed while it started."""


def _open_folder(folder: Path, *, adopt: bool) -> DataFolder:
    assert not adopt
    process = current()
    assert process is not None
    opened = open_folder(folder, adopt=True)  # what a disk has after a power cut is a copy of the folder here
    held = HeldFolder(opened.path, opened.lock)
    _opened.setdefault(process.host.name, []).append(held)
    return held


class Server(ClusterServer):
    """A cluster without its HTTP API."""

    @asynccontextmanager
    async def _serving(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        yield


async def _migrated(running: ClusterParts, share: float) -> None:
    """Let one query migrate: to a plan with one more filter, or back; it may wait, or be refused."""
    queries = running.registry.queries()
    if not queries:
        return
    query = queries[int(share * len(queries)) % len(queries)]
    node = query.node if query.next_node is None else query.next_node
    other = node.input if isinstance(node, Filter) and node.predicate == ALWAYS_TRUE else Filter(node, ALWAYS_TRUE)
    with suppress(ClusterError):
        await running.queries.migrate(query.name, other, "simulated")


async def answer_arrives(loop: VirtualLoop, incarnation: Incarnation, task: asyncio.Task[Any]) -> bool:
    """Wait until a process has answered a request; return whether the answer arrived before the process ended."""
    while not task.done():
        await loop.passed(LOOK_SECONDS)
        if not incarnation.alive:
            if task.done() and not task.cancelled():
                task.exception()  # an error that its API would have answered with is none that no code handles
            return False
    return True


class ClusterHost:
    """The machine.

    Parameters
    ----------
    loop
        On which all runs.
    folder
        In memory; the disk of the machine.
    broker
        Name of the broker's host.
    port
        Of the broker.
    clock
        Of the machine.
    seed
        Of the simulation.
    name
        Of the host.
    publishers
        How many publishers there are at each start of the cluster, and then at all later ones.
    settings
        Further settings of the cluster.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        folder: Path,
        broker: str,
        port: int,
        *,
        clock: HostClock | None = None,
        seed: str = "",
        name: str = "cluster",
        publishers: Sequence[int] = (1,),
        **settings: object,
    ) -> None:
        self._loop = loop
        clock = clock or HostClock(loop.world)
        self.host = Host(name, clock, seed)
        self.publisher_host = Host(f"{name}-publisher", clock, seed)
        self.publisher_hosts = [
            self.publisher_host,
            *(Host(f"{name}-publisher-{number}", clock, seed) for number in range(1, max(publishers))),
        ]
        self._publishers = publishers
        self.disk = SyncedDisk(folder)
        given = {"commit_interval_seconds": 4.0, "trigger_seconds": 10.0, "gone_after_seconds": 20.0, "max_rows": 2_000}
        self.settings = ClusterSettings(
            folder=folder / "data", broker=BrokerAddress(broker, port), buckets=BUCKETS, **{**given, **settings}
        )  # type: ignore[arg-type] # names and types are those of settings
        self.committed = CommittedVersions(self.settings.folder, lambda: loop.world.now_ns / 1e9)
        """What its tables were given."""
        self.disk.on_commit = self.committed.note
        self.server: Server | None = None
        self.children: list[ChildProcess] = []
        """Its publishers that run."""
        self.failures: list[str] = []
        """Why it could not start, or ended by itself."""
        self.starts = 0
        self.late: Counter[int] = Counter()
        """By start of the process: rows that it counted as late or rejected."""
        self._powered = True
        publisher_host.starting[name] = self._start_child
        publisher_host.install()
        parts.Engine = SimulatedEngine  # type: ignore[assignment, misc]
        relation_store.BUILT_IN_REFRESH_SECONDS = SENSORS_SECONDS
        relation_refresh.TICK_SECONDS, publisher_process.REPORT_SECONDS = TICK_SECONDS, REPORT_SECONDS
        server_module.open_folder = _open_folder  # type: ignore[attr-defined]

    def start(self) -> None:
        """Switch the machine on, or start the cluster's process again."""
        self._powered = True
        incarnation = self.host.start()
        forget_all()
        self.starts += 1
        self._loop.spawn(incarnation, self._run(), "cluster")

    def kill(self) -> None:
        """Kill the cluster's process; its publishers end with it."""
        if self.host.incarnation is None:
            return
        self._loop.kill(self.host)
        if self._loop.network is not None:
            self._loop.network.killed(self.host)  # type: ignore[attr-defined]
        self._kill_publishers()
        self._let_go()

    def kill_publisher(self, share: float = 0.0) -> None:
        """Kill one publisher's process alone, the first or one further on; the cluster starts another one."""
        publisher = self.publisher(share)
        if publisher is not None:
            publisher.kill()

    def publisher(self, share: float) -> ChildProcess | None:
        """Return a publisher that runs, the first or one further on."""
        running = self._running_publishers()
        return running[int(share * len(running)) % len(running)] if running else None

    def migrate_query(self, share: float) -> None:
        """Let one of the queries go on with another plan of the same rows, the first or one further on."""
        server, incarnation = self.server, self.host.incarnation
        if server is not None and incarnation is not None:
            self._loop.spawn(incarnation, _migrated(server.parts, share), "migrate")

    def hang_engine(self, seconds: float) -> None:
        """Let the engine begin no micro-batch for so long, as Spark that waits for something."""
        if self.server is not None and self.host.incarnation is not None:
            engine: Any = self.server.parts.engine
            engine.hangs_until = self.host.incarnation.run(self._loop.time) + seconds

    def kill_within_micro_batch(self, steps: int | None) -> None:
        """Kill this process after so many steps of micro-batches, which begin now; None for not at all."""
        if self.server is not None and self.host.incarnation is not None:
            engine: Any = self.server.parts.engine
            engine.stepped = None if steps is None else _Countdown(steps, lambda: self._loop.schedule_in(0, self.kill))
            if steps is not None:
                self.host.incarnation.run(engine.hurry)

    def cut_power(self, dice: Random | None) -> None:
        """Cut the power: what was not synced is lost, or some of it."""
        self._powered = False
        network = self._loop.network
        if network is not None:
            network.power_lost(self.host)  # type: ignore[attr-defined]
            for host in self.publisher_hosts:
                network.power_lost(host)  # type: ignore[attr-defined]
        self._loop.kill(self.host)
        self._kill_publishers()
        self._let_go()
        self.disk.cut(dice)

    def restore_power(self) -> None:
        """Let the machine start again."""
        self.host.clock.boot()
        network = self._loop.network
        if network is not None:
            network.power_returned(self.host)  # type: ignore[attr-defined]
            for host in self.publisher_hosts:
                network.power_returned(host)  # type: ignore[attr-defined]
        self.start()

    @property
    def runs(self) -> bool:
        """Whether the cluster runs."""
        return self.host.incarnation is not None and self.server is not None

    async def add_query(self, sql: str, name: str) -> str | None:
        """Add a query as a user does; return why not, None if it was added."""
        return await self._asked(lambda parts: parts.queries.add(sql, name), f"add {name}")

    async def drop_query(self, name: str) -> str | None:
        """Drop a query as a user does; return why not."""
        return await self._asked(lambda parts: parts.queries.drop(name), f"drop {name}")

    async def _asked(self, request: Callable[[ClusterParts], Coroutine[Any, Any, object]], name: str) -> str | None:
        """Make a request of the running process, as its API does; return why it failed."""
        server, incarnation = self.server, self.host.incarnation
        if server is None or incarnation is None:
            return AWAY
        task = self._loop.spawn(incarnation, request(server.parts), name)
        if not await answer_arrives(self._loop, incarnation, task):
            return AWAY
        try:
            task.result()
        except (QueryExistsError, UnknownQueryError):  # it was done before, and the answer did not arrive
            return None
        except ClusterError as error:
            return error.message
        return None

    def _start_child(self) -> ChildProcess:
        host = next(each for each in self.publisher_hosts if each.incarnation is None)
        self.children = [*self._running_publishers(), ChildProcess(self._loop, host)]
        return self.children[-1]

    def _running_publishers(self) -> list[ChildProcess]:
        return [each for each in self.children if each.returncode is None]

    def _kill_publishers(self) -> None:
        for each in self.children:
            each.kill()

    def note_counts(self) -> None:
        """Note how many rows the process that runs has left out."""
        assert self.server is not None
        counters = [writer.admission.counters for writer in self.server.parts.ingest.writers.values()]
        self.late[self.starts] = sum(each.late_rows + each.rejected_rows for each in counters)

    def _let_go(self) -> None:
        """Let go of files, as the kernel does for a process that has ended."""
        if self.server is not None:
            self.note_counts()
            self.server._registry.close()
        for folder in list(_opened.get(self.host.name, ())):
            folder.close()
        self.server = None
        self.children.clear()

    async def _run(self) -> None:
        try:
            publishers = self._publishers[min(self.starts, len(self._publishers)) - 1]
            self.server = Server(replace(self.settings, publishers=publishers))
            await self.server.run()
        except Exception as error:  # noqa: BLE001 - a process that ends, whatever the reason
            self.failures.append(repr(error))
        self._kill_publishers()
        self._let_go()
        incarnation, self.host.incarnation = self.host.incarnation, None
        if incarnation is not None:
            self._loop.schedule_in(int(RESTART_SECONDS * 1e9), self._start_again)

    def _start_again(self) -> None:
        if self._powered and self.host.incarnation is None:
            self.start()
