"""A proxy from the messages that it receives to the batches that it spools, in memory, by a clock of the test's."""

from __future__ import annotations

from dataclasses import astuple
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.batches import decode_batch
from protocols.wire.catalog import Presence, Status, decode_mote_entry
from protocols.wire.frames import VERSION, encode
from proxy.drivers.driver_registry import DriverRegistry
from proxy.drivers.settings import read_drivers
from proxy.fleet.batching import BatchLimits, CutBatch
from proxy.fleet.demand_assembly import DemandAssemblies
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits, Neighbours
from proxy.motes.mote_clock import ClockBounds
from proxy.motes.mote_presence import TrackingLimits
from proxy.running.driven_devices import DrivenDevices
from proxy.running.frame_intake import FrameIntake
from proxy.running.link_interface import Clocks
from proxy.running.metrics import ProxyMetrics
from proxy.running.receiving import Receiver
from proxy.running.session_messages import SessionMessages
from proxy.running.unpublished import EntrySchedule, Unpublished
from proxy.storage.flushing import store_batches
from tests.proxy.drivers.test_recorded_messages import DOCUMENT, documented

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from random import Random

    from protocols.wire.demands import RefusedDemand, StreamDemand
    from proxy.drivers.driver import Driver
    from proxy.fleet.stream_state import StreamProgress
    from proxy.records.waiting_tuples import MotePosition
    from proxy.storage.spool import SpooledBatch

NAME = "p"
BEGAN_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
BOUNDED = ClockBounds(30 * SECOND_US, 60 * SECOND_US)


def documented_drivers() -> list[Driver]:
    """Return the drivers of the example in docs/how-to/connect-devices.md."""
    return read_drivers(documented(), DOCUMENT.name)


class ProxyWorld:
    """The parts of a proxy that decide. Its disk and its link accept everything.

    Parameters
    ----------
    dice
        Chooses its limits.
    drivers
        Of devices of other makers.
    clock
        The bounds of motes' clocks; None lets the dice choose.
    """

    def __init__(self, dice: Random, drivers: Iterable[Driver] = (), clock: ClockBounds | None = None) -> None:
        self.passed_us = 0
        tracking = TrackingLimits(
            clock=clock or dice.choice((ClockBounds(), BOUNDED)),
            reorder_within_us=dice.choice((0, 15 * SECOND_US)),
        )
        limits = FleetLimits(tracking=tracking, batches=BatchLimits(200, dice.choice((100, 10_000))))
        clocks = Clocks(lambda: self.passed_us, lambda: BEGAN_US + self.passed_us)
        registry = DriverRegistry(drivers)
        neighbours = Neighbours(NAME, BEGAN_US)
        self.fleet = Fleet(
            NAME, limits, now_us=0, neighbours=neighbours, abilities_of=registry.abilities_of,
            checked=registry.__contains__,
        )  # fmt: skip
        metrics, demands = ProxyMetrics(), DemandAssemblies(NAME)
        self._intake = FrameIntake(
            self.fleet,
            quarantine=SimpleNamespace(put=lambda _: None),  # type: ignore[arg-type]
            metrics=metrics,
            unpublished=Unpublished(NAME, self.fleet, demands, EntrySchedule(1, 1), now_us=0),
            clocks=clocks,
            registry=registry,
        )
        session = SessionMessages()
        self.devices = DrivenDevices(
            registry, self.fleet, self._intake, self, session=session, metrics=metrics, clocks=clocks
        )
        self._waiting: dict[str, tuple[StreamDemand, tuple[RefusedDemand, ...], Message]] = {}
        accepting = SimpleNamespace(acknowledged=lambda *_: None, cluster_began=lambda *_: None)
        self._receiver = Receiver(
            NAME, self.fleet, accepting, neighbours, merging=self,  # type: ignore[arg-type]
            demands=demands, intake=self._intake, devices=self.devices, link=self, metrics=metrics,
            clocks=clocks, session=session,
            status=Message(topics.proxy_status(NAME), encode(Status(VERSION, NAME, Presence.ONLINE, "e", 1))),
        )  # fmt: skip
        self._metrics = metrics
        self._cut: list[CutBatch] = []

    @property
    def now_us(self) -> int:
        """The time of day."""
        return BEGAN_US + self.passed_us

    async def publish(self, message: Message) -> None:
        """Take a message for a mote or a device."""

    def received(self, demand: StreamDemand, unreadable: tuple[RefusedDemand, ...], message: Message) -> None:
        """Note a demand, to be merged."""
        self._waiting[demand.stream] = demand, unreadable, message

    def receive(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Handle a message."""
        _finish(self._receiver.receive([Message(topic, payload, retain=retain)]))

    def merge(self) -> None:
        """Merge the demands that wait, in a hurry: a thread does it in a running proxy, and takes longer."""
        while self._waiting:
            stream, (demand, unreadable, message) = self._waiting.popitem()
            task = self.fleet.merging(stream, demand)
            if task is not None:
                task.merger.hurry()
                task.run()
            instructions = self.fleet.receive_demand(
                stream, demand, radio_us=self.passed_us, unreadable=unreadable, merging=task
            )
            self._intake.carry_out(instructions, message)
            self.devices.demand_changed()

    def pass_time(self, by_us: int) -> None:
        """Let time pass."""
        self.passed_us += by_us
        self._intake.carry_out(self.fleet.time_passed(self.passed_us, replan=False))
        self.devices.time_passed()

    def replan(self) -> None:
        """Choose programs again, if it is time to."""
        for stream, task in self.fleet.replanning(self.passed_us).items():
            task.merger.hurry()
            task.run()
            self._intake.carry_out(self.fleet.replan(stream, task, self.passed_us))

    def cut(self) -> None:
        """Cut the batches that are due."""
        self._cut = [*self._cut, *self.fleet.cut(self.passed_us)]

    def spool(self) -> None:
        """Spool what was cut, as a thread of a running proxy does; clusters can decode it."""
        spooled: list[bytes] = []

        def append(
            batches: Iterable[SpooledBatch], *rows: Iterable[StreamProgress | MotePosition], **_: object
        ) -> None:
            spooled.extend(each.payload for each in batches)
            numbers = [each for row in chain(*rows) for each in _values(row) if isinstance(each, int)]
            assert all(-(2**63) <= each < 2**63 for each in numbers), f"SQLite has no room for {max(numbers)}"

        stores = SimpleNamespace(spool=SimpleNamespace(epoch="e", writer=b"", append=append))
        cut, self._cut = self._cut, []
        store_batches(stores, NAME, cut, self.fleet.positions(), 0)  # type: ignore[arg-type]
        for payload in spooled:
            decode_batch(payload)

    def show(self) -> None:
        """Make all that the proxy publishes about itself; clusters can decode it."""
        self._intake.take_changes()
        for mote in self.fleet.motes:
            entry = self.fleet.entry(mote)
            if entry is not None:
                decode_mote_entry(encode(entry))
        self.fleet.states()
        self.fleet.clock_faults()
        list(self._metrics.collect())


def _values(row: StreamProgress | MotePosition) -> tuple[object, ...]:
    return row if isinstance(row, tuple) else astuple(row)


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise AssertionError("it waits for something")
