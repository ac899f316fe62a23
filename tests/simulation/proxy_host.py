"""A simulated machine with a proxy: the product's own service, its SQLite databases and its MQTT client."""

from __future__ import annotations

import asyncio
import sqlite3
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from protocols.errors import FjordError
from proxy.drivers.settings import read_drivers
from proxy.running import catalog_publisher, service
from proxy.running.link_interface import mqtt_link
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores
from tests.simulation import disk as disks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from random import Random

    from proxy.storage.spool import Spool, SpooledBatch
    from tests.simulation.disk import Disk
    from tests.simulation.hosts import Host
    from tests.simulation.keyed import WorldKeys
    from tests.simulation.network import Network
    from tests.simulation.virtual_loop import VirtualLoop

LOOK_SECONDS = 2.0
"""Between two looks of a proxy that mostly find nothing: at its clocks, and at what its catalog has to say."""
RESTART_NS = 2_000_000_000
"""After so long a proxy that has ended is started again, as a service manager does."""


class BatchId(NamedTuple):
    """What a batch is known by."""

    proxy: str
    epoch: str
    stream: str
    sequence: int


class Spooled(NamedTuple):
    """A batch that was put on disk, and when, by true time."""

    payload: bytes
    at_ns: int


@dataclass
class Life:
    """What is known of one process of a proxy, also after its death.

    Parameters
    ----------
    began_ns
        True time.
    ended_ns
        When it was killed, or ended; None while it runs.
    counted
        Its counters, by name and label.
    of_devices
        Returns what it has counted of a device, by reason.
    spooled_ns
        When it put something on its disk.
    """

    began_ns: int
    ended_ns: int | None = None
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    of_devices: Callable[[str], Mapping[str, int]] = lambda _: {}
    spooled_ns: list[int] = field(default_factory=list)


class ProxyHost:
    """The machine.

    Parameters
    ----------
    loop, network
        Where it is.
    host, disk
        Its clocks and processes, and its disk.
    broker
        HOST:PORT.
    keys
        Of the deployment; None for none.
    drivers
        Entries of its file of drivers.
    settings
        Of the proxy, beside its name, broker and folder.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        host: Host,
        disk: Disk,
        *,
        broker: str,
        keys: WorldKeys | None = None,
        drivers: list[dict[str, Any]] | None = None,
        **settings: object,
    ) -> None:
        self.keys = keys
        self.drivers = drivers or []
        self.lives: dict[int, Life] = {}
        """Its processes, by number."""
        self.loop = loop
        self.network = network
        self.host = host
        self.disk = disk
        self.name = host.name
        self.settings = ProxySettings.model_validate(
            {
                "name": host.name,
                "broker": broker,
                "data": str(disk.folder / "data"),
                "keys": "" if keys is None else "in memory",
                **settings,
            }
        )
        self.service: ProxyService | None = None
        self.spooled: dict[BatchId, Spooled] = {}
        """All batches that were put on disk, also those of which a process was informed that they were not."""
        self.failures: list[str] = []
        """Why it ended by itself, by an error that is one of Fjord's own."""
        self.crashes: list[str] = []
        """The same, by another error."""
        self.deleted_ns = 0
        """When batches were last deleted that the cluster had acknowledged, by true time."""
        self._deleted: dict[tuple[str, str], int] = {}
        self._powered = True
        disks.give(host.name, disk)
        service._CLOCK_SECONDS = catalog_publisher._ROUND_SECONDS = LOOK_SECONDS

    def start(self) -> None:
        """Begin its process."""
        process = self.host.start()
        self.lives[process.number] = Life(self.loop.world.now_ns)
        self.loop.spawn(process, self._run(), "proxy")

    def kill(self) -> None:
        """Kill its process."""
        if self.host.incarnation is not None:
            self._end_life()
            self.loop.kill(self.host)
            self.network.killed(self.host)
            self.disk.process_died(power_cut=False)
            self.service = None

    def kill_at_commit(self, number: int | None) -> None:
        """Kill its process when its spool has made so many more commits, before what follows; None for not at all.

        It is started again soon.
        """
        left = number or 0

        def committed(database: Path) -> None:
            nonlocal left
            left -= database.stem == "spool"
            if left == 0:
                self.disk.on_commit = None
                self.kill()
                self.loop.schedule_in(RESTART_NS, self.ensure_runs)

        self.disk.on_commit = committed if left else None

    def cut_power(self, dice: Random | None = None) -> None:
        """Cut its power."""
        del dice  # the disk has its own
        self._powered = False
        self._end_life()
        self.network.power_lost(self.host)
        self.loop.kill(self.host)
        self.disk.process_died(power_cut=True)
        self.service = None

    def restore_power(self) -> None:
        """Switch it on again."""
        self._powered = True
        self.host.clock.boot()
        self.network.power_returned(self.host)
        self.start()

    def ensure_runs(self) -> None:
        """Start it unless it runs or has no power."""
        if self._powered and self.host.incarnation is None:
            self.start()

    def acknowledged(self, batch: BatchId) -> bool:
        """Return whether it has been deleted from the spool, as the cluster has acknowledged it."""
        return batch.sequence <= self._deleted.get((batch.epoch, batch.stream), 0)

    async def _run(self) -> None:
        """Do what `fjord proxy` does."""
        process = self.host.incarnation
        try:
            settings = self.settings
            address = settings.broker_address(None)
            # What a disk has after a power cut is a copy of the folder here.
            with open_stores(
                settings.folder, settings.name, quarantine_entries=settings.quarantine_entries, adopt=True
            ) as stores:
                self._observe(stores.spool)
                seals = None if self.keys is None else self.keys.of_proxy(self.name, settings.folder)
                make_link = mqtt_link(address, silence_seconds=settings.broker_silence / 1e6, seals=seals)
                drivers = read_drivers({"driver": self.drivers}, "drawn") if self.drivers else []
                self.service = ProxyService(settings, stores, make_link, drivers=drivers)
                self._note_counts(self.service)
                await self.service.run(asyncio.Event())
        except Exception as error:  # noqa: BLE001 - a process that ends, whatever the reason
            if process is not self.host.incarnation:
                return  # it was killed at a commit, while it started
            if isinstance(error, FjordError):
                self.failures.append(str(error))
            else:
                self.crashes.append(traceback.format_exc())
        self.loop.schedule_in(0, self._ended, process)

    def _note_counts(self, service: ProxyService) -> None:
        assert self.host.incarnation is not None
        life = self.lives[self.host.incarnation.number]
        life.counted = service.metrics._counts
        life.of_devices = getattr(service.devices._registry, "counts_of", life.of_devices)

    def _end_life(self) -> None:
        if self.host.incarnation is not None:
            self.lives[self.host.incarnation.number].ended_ns = self.loop.world.now_ns

    def _ended(self, process: object) -> None:
        if process is self.host.incarnation:
            self.kill()
            self.loop.schedule_in(RESTART_NS, self.ensure_runs)

    def _observe(self, spool: Spool) -> None:
        """Note what is on disk, and what is put there."""
        append, delete = spool.append, spool.delete_through
        # A commit that failed after it had taken effect is found by the next process. It is read past the faults.
        for stream, sequence, payload in sqlite3.Connection.execute(
            spool._connection, "SELECT stream, sequence, payload FROM batches ORDER BY stream, sequence"
        ):
            identity = BatchId(self.name, spool.epoch, stream, sequence)
            self.spooled.setdefault(identity, Spooled(payload, self.loop.world.now_ns))

        process = self.host.incarnation
        life = Life(0) if process is None else self.lives[process.number]

        def noted(batches: Iterable[SpooledBatch], *arguments: object, **more: object) -> None:
            batches = list(batches)
            append(batches, *arguments, **more)  # type: ignore[arg-type]
            life.spooled_ns.append(self.loop.world.now_ns)
            for each in batches:
                self.spooled[BatchId(self.name, spool.epoch, each.stream, each.sequence)] = Spooled(
                    each.payload, self.loop.world.now_ns
                )

        def noted_deletion(stream: str, sequence: int) -> None:
            delete(stream, sequence)
            self.deleted_ns = self.loop.world.now_ns
            self._deleted[spool.epoch, stream] = max(sequence, self._deleted.get((spool.epoch, stream), 0))

        spool.append = noted  # type: ignore[assignment, method-assign]
        spool.delete_through = noted_deletion  # type: ignore[method-assign]
