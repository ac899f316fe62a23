"""Demands are merged in a thread beside the event loop, and those that arrive in quick succession together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from protocols.mqtt.link import Message
from protocols.wire.demands import RefusedDemand, StreamDemand
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import FleetInstruction
from proxy.fleet.merging_task import MergingTask
from proxy.running.link_interface import Clocks
from proxy.running.merge_schedule import MergeSchedule, ReceivedDemand, pause_seconds

PAUSE_SECONDS = 0.1
"""How long a demand waits for others on the way."""


class DemandMerging:
    """Merges demands, one at a time.

    Parameters
    ----------
    fleet
        Gives the tasks, and takes their results.
    clocks
        Give the time.
    carry_out
        Carries out the fleet's instructions, which a message has led to.
    demand_changed
        Called when motes have other programs to run.
    """

    def __init__(
        self,
        fleet: Fleet,
        clocks: Clocks,
        *,
        carry_out: Callable[[Sequence[FleetInstruction], Message | None], None],
        demand_changed: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._clocks = clocks
        self._carry_out = carry_out
        self._demand_changed = demand_changed
        self._schedule = MergeSchedule()
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._under_way: MergingTask | None = None
        self.merges = 0
        """How many tasks have been done."""

    def received(self, demand: StreamDemand, unreadable: tuple[RefusedDemand, ...], message: Message) -> None:
        """Let a demand be merged soon, instead of earlier ones on its stream; at once, if that has no motes yet."""
        latest = ReceivedDemand(demand, unreadable, message)
        if self._schedule.received(latest, has_motes=self._fleet.has_motes(demand.stream)):
            self._take(latest, None)
        else:
            self._settled.clear()
            self._wanted.set()

    def time_passed(self) -> None:
        """Let programs be chosen again soon, if it is time to."""
        if self._fleet.replan_due(self._clocks.radio()):
            self._wanted.set()

    async def settled(self) -> None:
        """Wait until all demands received have been merged."""
        await self._settled.wait()

    async def run(self) -> None:
        """Merge demands as they come, and again when much has been observed."""
        try:
            while True:
                await self._wanted.wait()
                await asyncio.sleep(PAUSE_SECONDS)
                self._wanted.clear()
                began_us = self._clocks.radio()
                await self._merge_waiting()
                await self._replan()
                took_seconds = (self._clocks.radio() - began_us) / 1e6
                await asyncio.sleep(pause_seconds(took_seconds))
        finally:
            if self._under_way is not None:
                self._under_way.stop()

    async def _merge_waiting(self) -> None:
        for latest in self._schedule.take():
            task = self._fleet.merging(latest.demand.stream, latest.demand)
            if task is not None:
                await self._do(task)
            self._take(latest, task)
        if self._schedule.settled:
            self._settled.set()

    async def _replan(self) -> None:
        for stream, task in self._fleet.replanning(self._clocks.radio()).items():
            await self._do(task)
            self._carry_out(self._fleet.replan(stream, task, self._clocks.radio()), None)
            self._demand_changed()

    def _take(self, latest: ReceivedDemand, task: MergingTask | None) -> None:
        instructions = self._fleet.receive_demand(
            latest.demand.stream,
            latest.demand,
            radio_us=self._clocks.radio(),
            unreadable=latest.unreadable,
            merging=task,
        )
        self._carry_out(instructions, latest.message)
        self._demand_changed()

    async def _do(self, task: MergingTask) -> None:
        self._under_way, self._schedule.under_way = task, True
        await asyncio.to_thread(task.run)
        self._under_way, self._schedule.under_way = None, False
        self.merges += 1
