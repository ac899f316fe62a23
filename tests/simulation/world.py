"""A simulated deployment, run by a schedule: motes, gateways, proxies, a broker and a cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Protocol

from firmware_sim.phenomena.traffic import TRAFFIC, Traffic
from protocols.mqtt.link import BrokerAddress
from tests.simulation.bounds import bounds_of
from tests.simulation.bridge import Bridge
from tests.simulation.broker import PORT
from tests.simulation.broker_host import BrokerHost
from tests.simulation.device_log import DeviceLog
from tests.simulation.device_plans import BY_STREAM, streams_of
from tests.simulation.device_watch import DeviceWatch
from tests.simulation.devices import JsonDevice
from tests.simulation.disk import Disk
from tests.simulation.fault_kinds import KINDS, Target
from tests.simulation.hosts import Host, HostClock, WorldTime
from tests.simulation.keyed import drawn_keys
from tests.simulation.liveness import Watch
from tests.simulation.motes import Gateway, Radio, SimulatedMote
from tests.simulation.network import Network
from tests.simulation.proxy_host import ProxyHost
from tests.simulation.schedules import CALM_SECONDS, COMPARED_SECONDS
from tests.simulation.stand_in import StandInCluster
from tests.simulation.subscriber import Subscriber
from tests.simulation.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from protocols.wire.batches import Batch
    from protocols.wire.streams import StreamSchema
    from tests.simulation.proxy_host import BatchId
    from tests.simulation.schedules import Fault, Schedule
    from tests.simulation.violations import Violation

AGAIN_SECONDS = 2.0
"""A user whose query was not accepted tries again after so long; so does a fault that finds nothing to go wrong."""
PATIENCE_SECONDS = 400.0
"""For so long: any machine is switched on again, and any mote, before that."""


class Machine(Protocol):
    """What faults need of a machine."""

    host: Host

    def start(self) -> None:
        """Begin its process."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...


class PoweredMachine(Machine, Protocol):
    """A machine that may lose its power."""

    def cut_power(self, dice: Random | None) -> None:
        """Cut its power."""
        ...

    def restore_power(self) -> None:
        """Switch it on again."""
        ...


class Cluster(PoweredMachine, Protocol):
    """A cluster, real or not."""

    async def add_query(self, sql: str, name: str) -> str | None:
        """Add a query; return why not."""
        ...

    async def drop_query(self, name: str) -> str | None:
        """Drop a query; return why not."""
        ...

    @property
    def batches(self) -> dict[BatchId, Batch]:
        """All batches that it has stored, as they were sent."""
        ...

    @property
    def runs(self) -> bool:
        """Whether its process runs, and has started."""
        ...

    @property
    def watermark_us(self) -> int | None:
        """The low watermark of what it has stored; None if that is unknown."""
        ...

    @property
    def fails_next(self) -> bool:
        """Whether a fault that has begun waits for its next operations, which will fail."""
        ...

    @property
    def demanded(self) -> set[str]:
        """The queries that demand anything of sensors."""
        ...

    def calm_down(self) -> None:
        """Note that no more faults come."""
        ...

    def violations(self) -> list[Violation]:
        """Return what else is wrong with it."""
        ...


class World:
    """The deployment.

    Parameters
    ----------
    schedule
        What it is, and what happens.
    folder
        For its disks, in memory.
    make_cluster
        Makes another cluster than the one that stands in.
    """

    def __init__(
        self, schedule: Schedule, folder: Path, make_cluster: Callable[[World, Path], Cluster] | None = None
    ) -> None:
        self.schedule = schedule
        seed = str(schedule.seed)
        self.dice = Random(f"world/{seed}")
        self.loop = VirtualLoop(Random(f"loop/{seed}"), WorldTime())
        self.network = self.loop.network = Network(self.loop, Random(f"network/{seed}"))
        self.broker = BrokerHost(self.loop, self.network, self._host("broker"))
        address = BrokerAddress("broker", PORT)
        names = [f"p{number}" for number in range(len(schedule.proxies))]
        self.keys = drawn_keys(schedule.seed, names) if make_cluster is None else None
        keys, of_cluster = self.keys, None
        if keys is not None:
            of_cluster = lambda: keys.of_cluster(folder / "cluster")  # noqa: E731 - as short as that
        self.cluster: Cluster = (
            StandInCluster(self.loop, self.network, self._host("cluster"), address, self._schemas(), of_cluster)
            if make_cluster is None
            else make_cluster(self, folder / "cluster")
        )
        self.subscriber = Subscriber(self.loop, self.network, self._host("subscriber"), address)
        self.proxies: dict[str, ProxyHost] = {}
        self.gateways: dict[str, Gateway] = {}
        for number, plan in enumerate(schedule.proxies):
            name = f"p{number}"
            clock = HostClock(self.loop.world, drift_ppm=plan.drift_ppm, ahead_ns=plan.ahead_us * 1_000)
            disk = Disk(folder / name, Random(f"disk/{seed}/{name}"))
            self.proxies[name] = ProxyHost(
                self.loop,
                self.network,
                Host(name, clock, seed),
                disk,
                broker=self.broker.address,
                keys=keys,
                drivers=None if schedule.devices is None else schedule.devices.drivers(number),
                **plan.settings,
            )
            gateway = self._host(f"g{number}")
            self.gateways[f"g{number}"] = Gateway(self.loop, self.network, gateway, name, address, keys)
        road = Traffic(len(schedule.motes), seed=schedule.seed, default_period_us=schedule.period_us)
        self.motes = [
            SimulatedMote(
                self.gateways[f"g{plan.proxy}"],
                road,
                place,
                drift_ppm=plan.drift_ppm,
                error_us=plan.error_us,
                dice=Random(f"mote/{seed}/{place}"),
                radio=Radio(),
            )
            for place, plan in enumerate(schedule.motes)
        ]
        self.device_log = DeviceLog(self.loop)
        self.devices: dict[str, JsonDevice | Bridge] = dict(self._devices(address))
        if self.devices:
            self.broker.watch(DeviceWatch(self.device_log))
            self.broker.observers.append(self.device_log.accepted)
        self.without_power: set[str] = set()
        self.happened: Counter[str] = Counter()
        """Faults by kind."""
        self.watch = Watch(self, bounds_of(schedule))
        self.queries_refused: list[str] = []

    def machine(self, name: str) -> PoweredMachine:
        """Return the machine of a name."""
        few = {"broker": self.broker, "cluster": self.cluster, "subscriber": self.subscriber}
        return (few | self.proxies | self.gateways | self.devices)[name]  # type: ignore[return-value]

    @property
    def seconds(self) -> float:
        """True time since the beginning."""
        return self.loop.world.now_ns / 1e9

    async def run(self) -> None:
        """Run the schedule, and let things calm down."""
        self.cluster.start()
        self.subscriber.start()
        for machine in (*self.proxies.values(), *self.gateways.values(), *self.devices.values()):
            machine.start()
        watching = self.loop.create_task(self.watch.run(), name="watch")
        async with asyncio.TaskGroup() as tasks:
            for place, plan in enumerate(self.schedule.motes):
                self.loop.schedule_in(int(plan.on_at * 1e9), self._switch_on, place)
            for query in self.schedule.queries:
                tasks.create_task(self._query(query.name, query.sql, query.added, query.dropped), name=query.name)
            for fault in self.schedule.faults:
                tasks.create_task(self._fault(fault), name=fault.kind)
            await self.loop.passed(self.schedule.seconds)
        await self.loop.passed(CALM_SECONDS - COMPARED_SECONDS)
        self.cluster.calm_down()
        await self.loop.passed(COMPARED_SECONDS)
        watching.cancel()
        self.watch.finish()
        self.broker.count()

    def _schemas(self) -> tuple[StreamSchema, ...]:
        devices = self.schedule.devices
        return (TRAFFIC, *([] if devices is None else [BY_STREAM[each] for each in streams_of(devices)]))

    def _devices(self, address: BrokerAddress) -> Iterator[tuple[str, JsonDevice | Bridge]]:
        plan = self.schedule.devices
        if plan is None:
            return
        for place, each in enumerate(plan.devices):
            name = f"d{place}"
            given = self.loop, self.network, self._host(name), address, self.device_log, f"p{each.proxy}"
            dice = Random(f"device/{self.schedule.seed}/{name}")
            yield name, JsonDevice(*given, plan=each, merges=plan.merges, dice=dice)
        for number, thermometers in plan.bridges.items():
            name = f"b{number}"
            given = self.loop, self.network, self._host(name), address, self.device_log, f"p{number}"
            dice = Random(f"bridge/{self.schedule.seed}/{name}")
            update = plan.updates.get(number)
            yield name, Bridge(*given, number=number, thermometers=thermometers, update=update, dice=dice)

    def _host(self, name: str) -> Host:
        return Host(name, HostClock(self.loop.world), str(self.schedule.seed))

    def _switch_on(self, place: int) -> None:
        if not self.motes[place].on:
            self.motes[place].switch_on()

    async def _query(self, name: str, sql: str, added: float, dropped: float | None) -> None:
        await self.loop.passed(added)
        if not await self._until_accepted(lambda: self.cluster.add_query(sql, name)) or dropped is None:
            return
        await self.loop.passed(max(0.0, dropped - self.seconds))
        await self._until_accepted(lambda: self.cluster.drop_query(name))

    async def _until_accepted(self, change: Callable[[], asyncio.Future[str | None]]) -> bool:
        while (reason := await change()) is not None:
            if "away" not in reason:
                self.queries_refused.append(reason)
                return False
            await self.loop.passed(AGAIN_SECONDS)
        return True

    def _concerns(self, kind: Target, name: str) -> bool:
        """Return whether a fault finds what it concerns: a machine whose process runs, or a mote that is on."""
        if kind is Target.MOTE:
            return self.motes[int(name) % len(self.motes)].on
        if kind is Target.CLUSTER:
            return self.cluster.runs
        return self.machine(name).host.incarnation is not None

    async def _fault(self, fault: Fault) -> None:
        kind = KINDS[fault.kind]
        await self.loop.passed(fault.at)
        until = self.seconds + PATIENCE_SECONDS
        while not self._concerns(kind.target, fault.target):
            if self.seconds >= until:
                return
            await self.loop.passed(AGAIN_SECONDS)
        self.watch.begin()
        kind.begin(self, fault.target, fault.amount)
        self.happened[fault.kind] += 1
        await self.loop.passed(fault.lasts)
        kind.end(self, fault.target, fault.amount)
        self.watch.end()
