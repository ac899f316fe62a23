"""Demands are merged in a thread beside the event loop, those that come together at once, with the same programs.

demands     1 2 3 4 ...    (100 of them, in quick succession)
a thread        merges the last
event loop      receives packets, takes the result
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from protocols.acquisition import merging
from protocols.acquisition.effort import MOST_STEPS, Effort
from protocols.acquisition.merging import Merger
from protocols.acquisition.needs import fold_demands
from protocols.acquisition.program_reports import ProgramStyle, traits_of
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.programs import Band, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.fleet import REPLAN_AFTER_US, Fleet
from proxy.fleet.fleet_instructions import FleetInstruction, RejectDemand
from proxy.fleet.fleet_members import FleetLimits
from proxy.records import program_routes
from proxy.records.program_routes import ProgramTable
from proxy.running import demand_merging, merge_schedule
from proxy.running.demand_merging import DemandMerging
from proxy.running.link_interface import Clocks

S = 1_000_000
MESSAGE = Message(topics.demand("traffic"), b"")


def slow_ones(count: int, epoch: int = 1) -> StreamDemand:
    """Return the demand of queries, each for slower vehicles than the next one's."""
    bands = ((Band("speed", high=10.0 + number),) for number in range(count))
    demands = tuple(QueryDemand(f"q{number}", ("speed",), None, band) for number, band in enumerate(bands))
    return StreamDemand(VERSION, "c1", "traffic", epoch, demands)


def announced(frames: Any, motes: int = 3) -> Fleet:
    fleet = Fleet("p", FleetLimits(), now_us=0)
    for number in range(motes):
        fleet.receive_announcement(frames.announcement(f"m{number}"), radio_us=0, received_us=0)
    return fleet


def test_a_task_that_is_not_wanted_any_more_stops_between_two_motes(
    frames: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = announced(frames, motes=1).merging("traffic", slow_ones(3))
    assert task is not None
    (kind,) = task.kinds
    several = dataclasses.replace(task, kinds=(kind,) * 5)
    merge, merged = Merger.merge, []

    def merge_once(merger: Merger, *kind: Any) -> Any:
        merged.append(kind)
        several.stop()
        return merge(merger, *kind)

    monkeypatch.setattr(Merger, "merge", merge_once)
    several.run()
    assert len(merged) == 1


class Running:
    """A fleet's merging, and what its instructions were."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.now_us = 0
        self.instructions: list[FleetInstruction] = []
        self.changes = 0
        self.merging = DemandMerging(
            fleet,
            Clocks(radio=lambda: self.now_us),
            carry_out=lambda instructions, _: self.instructions.extend(instructions),
            demand_changed=self._changed,
        )

    def _changed(self) -> None:
        self.changes += 1

    @property
    def programs(self) -> list[Any]:
        return [mote.desired for mote in self.fleet.motes.values()]


@contextlib.asynccontextmanager
async def running(fleet: Fleet) -> AsyncIterator[Running]:
    found = Running(fleet)
    task = asyncio.create_task(found.merging.run())
    yield found
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand_merging, "PAUSE_SECONDS", 0.0)


async def test_a_burst_of_demands_is_few_merges_with_the_programs_of_the_last(frames: Any) -> None:
    async with running(announced(frames)) as proxy:
        for count in range(1, 101):
            proxy.merging.received(slow_ones(count, epoch=count), (), MESSAGE)
        await proxy.merging.settled()
        assert proxy.merging.merges == 1
        assert proxy.changes == 1
        alone = announced(frames)
        alone.receive_demand("traffic", slow_ones(100), radio_us=0)
        assert proxy.programs == [mote.desired for mote in alone.motes.values()]
        assert proxy.fleet.streams["traffic"].demand_epoch == 100


async def test_demands_that_come_one_by_one_are_few_merges(frames: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, sleep = asyncio.Semaphore(0), asyncio.sleep

    async def paused(seconds: float) -> None:
        await sleep(0)
        if seconds >= merge_schedule.SHORTEST_PAUSE_SECONDS:
            await pauses.acquire()

    async with running(announced(frames)) as proxy:
        monkeypatch.setattr(demand_merging.asyncio, "sleep", paused)
        for until in (10, 20, 30):
            for count in range(until - 9, until + 1):
                proxy.merging.received(slow_ones(count, epoch=count), (), MESSAGE)
                await sleep(0.001)
            pauses.release()
            await proxy.merging.settled()
        assert proxy.merging.merges <= 4, "the first, and one for each pause that ends"
        assert proxy.fleet.streams["traffic"].demand_epoch == 30


async def test_the_event_loop_does_not_merge(frames: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    merged = Merger._merged

    def noted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return merged(*arguments)

    fleet = announced(frames)
    monkeypatch.setattr(Merger, "_merged", noted)
    async with running(fleet) as proxy:
        proxy.merging.received(slow_ones(5), (), MESSAGE)
        await proxy.merging.settled()
        assert all(not each.sleeping for each in proxy.programs)
        proxy.now_us += REPLAN_AFTER_US
        fleet.time_passed(proxy.now_us, replan=False)
        proxy.merging.time_passed()
        while proxy.merging.merges < 2:  # noqa: ASYNC110 - the thread makes it true; the second one replans
            await asyncio.sleep(0)
    assert threads
    assert threading.get_ident() not in threads


async def test_a_stream_without_motes_takes_its_demand_at_once(frames: Any) -> None:
    async with running(Fleet("p", FleetLimits(), now_us=0)) as proxy:
        proxy.merging.received(slow_ones(2, epoch=9), (), MESSAGE)
        assert proxy.fleet.streams["traffic"].demand_epoch == 9
        proxy.fleet.receive_announcement(frames.announcement("m1"), radio_us=0, received_us=0)
        assert not proxy.programs[0].sleeping


async def test_what_cannot_be_merged_is_reported(frames: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = Merger._merged

    def failing(self: Merger, classes: Any, *rest: Any) -> Any:
        if any("q1" in each.queries for each in classes):
            raise ArithmeticError("bad luck")
        return merged(self, classes, *rest)

    monkeypatch.setattr(Merger, "_merged", failing)
    async with running(announced(frames)) as proxy:
        proxy.merging.received(slow_ones(3), (), MESSAGE)
        await proxy.merging.settled()
    rejected = [each.rejected.query for each in proxy.instructions if isinstance(each, RejectDemand)]
    assert rejected == ["q1"], "once, for all motes"


def test_a_task_for_another_schema_or_demand_is_not_used(frames: Any) -> None:
    fleet = announced(frames, motes=1)
    task = fleet.merging("traffic", slow_ones(2))
    assert task is not None
    task.run()
    other = StreamSchema("traffic", (Field("speed", FieldType.REAL),))
    changed = frames.announcement("m0", boot=2, schema=other, properties={})
    fleet.receive_announcement(changed, radio_us=0, received_us=0)
    assert fleet.streams["traffic"].schema == other
    fleet.receive_demand("traffic", task.demand, radio_us=0, merging=task)
    assert fleet.streams["traffic"].merger is not task.merger, "the schema has changed"
    fleet.receive_demand("traffic", slow_ones(1), radio_us=0, merging=fleet.merging("traffic", slow_ones(2)))
    assert [each.demand.bands for each in fleet.streams["traffic"].merger.demands.classes] == [
        (Band("speed", high=10.0),)
    ]


def test_programs_chosen_again_beside_the_loop_are_those_chosen_in_it(frames: Any) -> None:
    here, beside = announced(frames), announced(frames)
    for fleet in (here, beside):
        fleet.receive_demand("traffic", slow_ones(4), radio_us=0)
        for number in range(500):
            fleet.streams["traffic"].observed.see("speed", number % 70, (number * 7) % 70)
    assert not beside.replanning(REPLAN_AFTER_US - 1)
    here.time_passed(REPLAN_AFTER_US)
    tasks = beside.replanning(REPLAN_AFTER_US)
    assert list(tasks) == ["traffic"]
    for task in tasks.values():
        task.run()
        beside.replan("traffic", task, REPLAN_AFTER_US)
        assert beside.streams["traffic"].merger is task.merger
        beside.receive_demand("traffic", None, radio_us=REPLAN_AFTER_US)
        assert beside.replan("traffic", task, REPLAN_AFTER_US) == [], "there is another demand by now"
    assert here.streams["traffic"].merger.searches.observed.seen == 500
    assert not beside.replanning(REPLAN_AFTER_US), "not before the next time"


def test_a_mote_that_comes_gets_a_program_at_once_and_the_cheapest_when_a_thread_has_found_it(
    frames: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for the cheapest may take seconds, in which no other mote would be served."""
    given: list[int] = []
    safely = Merger._safely_merged

    def noting(self: Merger, classes: Any, traits: Any, effort: Effort) -> Any:
        given.append(effort.left)
        return safely(self, classes, traits, effort)

    monkeypatch.setattr(Merger, "_safely_merged", noting)
    monkeypatch.setattr(merging, "STEPS_AT_ONCE", 30)
    unhurried, fleet = announced(frames, motes=1), Fleet("p", FleetLimits(), now_us=0)
    for each in (unhurried, fleet):
        each.receive_demand("traffic", slow_ones(4), radio_us=0)
    given.clear()
    fleet.receive_announcement(frames.announcement("m0"), radio_us=0, received_us=0)
    assert given == [30]
    assert not fleet.motes["m0"].desired.sleeping
    assert fleet.replan_due(1)
    (task,) = fleet.replanning(1).values()
    task.run()
    fleet.replan("traffic", task, 1)
    assert given[1:] == [MOST_STEPS]
    assert fleet.motes["m0"].desired == unhurried.motes["m0"].desired
    assert not fleet.replan_due(1)
    assert not unhurried.replan_due(1)


def test_motes_that_are_alike_share_the_routes_of_their_records(monkeypatch: pytest.MonkeyPatch, frames: Any) -> None:
    """Which queries a record is for is worked out once for 50 motes, not for each."""
    found: list[object] = []
    known = ProgramTable.routes

    def noted(*arguments: Any) -> Any:
        found.append(known(*arguments))
        return found[-1]

    monkeypatch.setattr(ProgramTable, "routes", noted)
    fleet = announced(frames, motes=50)
    fleet.receive_demand("traffic", slow_ones(3), radio_us=0)
    number = program_number(fleet.motes["m0"].desired)
    for mote in fleet.motes:
        fleet.receive_packet(
            frames.packet(0, (S, 5.0), mote=mote, clock=2 * S, program=number), radio_us=0, received_us=2 * S
        )
    assert len(found) >= 50
    assert len({id(each) for each in found}) == 1


def test_few_routes_are_kept(frames: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_routes, "MOST_ROUTES", 2)
    fleet = announced(frames, motes=1)
    fleet.receive_demand("traffic", slow_ones(3), radio_us=0)
    program, table = fleet.motes["m0"].desired, ProgramTable()
    mergers = [Merger(fold_demands(slow_ones(count).demands, frames.TRAFFIC), ProgramStyle()) for count in (1, 2, 3)]
    needs = [each.merge(traits_of(frames.announcement()), {}).needs for each in mergers]
    first = table.routes(program, needs[0])
    assert table.routes(program, needs[0]) is first
    for each in needs[1:]:
        table.routes(program, each)
    assert table.routes(program, needs[0]) is not first
