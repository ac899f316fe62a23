"""Demands are merged in a thread beside the event loop, and those that arrive in quick succession together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocols.mqtt.link import Message
from protocols.wire.demands import RefusedDemand, StreamDemand
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import FleetInstruction
from proxy.fleet.merging_task import MergingTask
from proxy.running.link_interface import Clocks

PAUSE_SECONDS = 0.1
"""How long a demand waits for others on the way."""
SHARE = 4
"""Between two merges lies a pause so many times as long as the first took: they take a fifth of the time at most."""
SHORTEST_PAUSE_SECONDS = 0.5
"""The least pause between two merges. Motes take programs in their listen windows, seconds apart: more merges make
little earlier, and while queries are added one by one each costs as much as hundreds of packets."""
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ReceivedDemand:
    """The latest demand on a stream, the demands in it that could not be decoded, and the message that contained it."""

    demand: StreamDemand
    unreadable: tuple[RefusedDemand, ...]
    message: Message


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
        self._waiting: dict[str, ReceivedDemand] = {}
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._under_way: MergingTask | None = None
        self.merges = 0
        """How many tasks have been done."""

    def received(self, demand: StreamDemand, unreadable: tuple[RefusedDemand, ...], message: Message) -> None:
        """Let a demand be merged soon, instead of earlier ones on its stream; at once, if that has no motes yet."""
        latest = ReceivedDemand(demand, unreadable, message)
        if self._under_way is None and not self._fleet.has_motes(demand.stream):
            self._waiting.pop(demand.stream, None)
            self._take(latest, None)
        else:
            self._waiting[demand.stream] = latest
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
                await asyncio.sleep(max(SHORTEST_PAUSE_SECONDS, min(SHARE * took_seconds, LONGEST_PAUSE_SECONDS)))
        finally:
            if self._under_way is not None:
                self._under_way.stop()

    async def _merge_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for stream, latest in waiting.items():
            task = self._fleet.merging(stream, latest.demand)
            if task is not None:
                await self._do(task)
            self._take(latest, task)
        if not self._waiting:
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
        self._under_way = task
        await asyncio.to_thread(task.run)
        self._under_way = None
        self.merges += 1
