"""A bad demand affects its own query only: others are answered, and the bad one is reported.

A whole proxy with a fake link. What the broker keeps comes first, as after every start:

    demands (kept)   [good, bad]
    mote             announces itself     listens
    proxy                                 runs good's program, reports bad
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocols.acquisition.merging import Merger
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics
from protocols.wire.demands import (
    LONGEST_REASON,
    MOST_REFUSALS,
    DemandReport,
    RefusedDemand,
    decode_demand_report,
    demand_report,
)
from protocols.wire.frames import LONGEST_PERIOD_US, VERSION, encode
from protocols.wire.packets import RunProgram, decode_control
from proxy.fleet.demand_assembly import StoredDemand
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits
from proxy.running.service import ProxyService
from proxy.running.settings import ProxySettings
from proxy.storage.stores import open_stores

S = 1_000_000
DAY_US = 86_400 * S
GOOD = ["good", ["speed"], 2 * S]
REPORTS = topics.demand_report("p", "traffic")


def kept(*demands: object, stream: str = "traffic", epoch: int = 7) -> Message:
    """Return a retained message, which may violate the format of a demand."""
    payload = msgspec.msgpack.encode([VERSION, "c1", stream, epoch, list(demands)])
    return Message(topics.demand(stream), payload, retain=True)


class FakeLink:
    def __init__(self, client_session: Any) -> None:
        self.client_session = client_session
        self.connected = asyncio.Event()
        self.published: list[Message] = []
        self.take: Any = None
        self.fails = False
        self.hangs_total = 0

    async def run_in_bursts(self, take: Any) -> None:
        self.take = take
        self.connected.set()
        await self.client_session.on_connect()
        await asyncio.Event().wait()

    async def publish(self, message: Message) -> None:
        if self.fails:
            raise LinkError("not connected")
        self.published.append(message)

    def on(self, topic: str) -> list[Message]:
        return [each for each in self.published if each.topic == topic]


@pytest.fixture
def settings(tmp_path: Path) -> ProxySettings:
    return ProxySettings(name="p", data=str(tmp_path / "data"), flush_interval=10_000, entry_interval=1)


@contextlib.asynccontextmanager
async def running(settings: ProxySettings) -> AsyncIterator[tuple[ProxyService, Any]]:
    with open_stores(settings.folder, settings.name, quarantine_entries=10) as stores:
        links: list[FakeLink] = []

        def make(client_session: Any) -> FakeLink:
            links.append(FakeLink(client_session))
            return links[0]

        service = ProxyService(settings, stores, make)
        stop = asyncio.Event()
        task = asyncio.create_task(service.run(stop))
        async with asyncio.timeout(60):
            await links[0].connected.wait()
        yield service, links[0]
        assert not task.done()
        stop.set()
        await asyncio.wait_for(task, 60)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other threads make it true
            await asyncio.sleep(0.005)


def programs_of(link: FakeLink) -> list[RunProgram]:
    controls = [decode_control(each.payload) for each in link.on(topics.control("p", "m1"))]
    return [each for control in controls for each in control.instructions if isinstance(each, RunProgram)]


BAD = {
    "too long a period": ["bad", ["speed"], 13_343_000 * DAY_US],
    "a period beyond the bound": ["bad", ["speed"], LONGEST_PERIOD_US + 1],
    "too many bands": ["bad", ["speed"], S, [["speed", float(n), float(n)] for n in range(300)]],
    "too long a text": ["bad", ["speed"], S, [], [["segment", "x" * 2_000, None]]],
    "a band upside down": ["bad", ["speed"], S, [["speed", 2.0, 1.0]]],
    "an unknown element": ["bad", ["speed"], S, [], [], None, None, [], 0, 0, 0, None, "new"],
    "an unknown field": ["bad", ["colour"], S],
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_other_demands_are_answered_and_the_bad_one_is_reported(
    bad: list[object], settings: ProxySettings, frames: Any
) -> None:
    async with running(settings) as (service, link):
        await link.take([kept(GOOD, bad)])
        await link.take([Message(topics.announcement("p", "m1"), encode(frames.announcement()))])
        listening = frames.packet(0, listen=10 * S)
        await link.take([Message(topics.packet("p", "m1"), encode(listening))])
        (run,) = programs_of(link)
        assert (run.program.fields, run.program.period_us) == (("speed",), 2 * S)
        await until(lambda: link.on(REPORTS) and link.on(REPORTS)[-1].payload)
        report = decode_demand_report(link.on(REPORTS)[-1].payload)
        assert (report.proxy, report.stream, report.epoch) == ("p", "traffic", 7)
        assert [each.query for each in report.refused] == ["bad"]
        assert link.on(REPORTS)[-1].retain
        assert service.metrics.value("demands_refused") == 1
        (gauge,) = [each for each in service.metrics.collect() if each.name == "fjord_proxy_demands_unanswered"]
        assert [sample.value for sample in gauge.samples] == [1.0]
        # The report is removed when the query is dropped.
        await link.take([kept(GOOD, epoch=8)])
        await until(lambda: not link.on(REPORTS)[-1].payload)


async def test_a_proxy_restarts_with_retained_demands(settings: ProxySettings, frames: Any) -> None:
    bad = BAD["too long a period"]
    for _ in range(2):
        async with running(settings) as (service, link):
            await link.take([kept(GOOD, bad)])
            await link.take([Message(topics.announcement("p", "m1"), encode(frames.announcement()))])
            await service.flush()
            assert service.fleet.motes["m1"].desired.period_us == 2 * S
            await until(lambda link=link: link.on(REPORTS) and link.on(REPORTS)[-1].payload)


async def test_records_of_an_earlier_version_that_do_not_fit_are_ignored(settings: ProxySettings, frames: Any) -> None:
    wild = frames.announcement("m2", default=13_343_000 * DAY_US)
    with open_stores(settings.folder, "p", quarantine_entries=10) as stores:
        good, bad = frames.demand(("good", ["speed"], 2 * S)), frames.demand(("bad", ["speed"], 2**61), stream="other")
        demands = {each.stream: StoredDemand(encode(each)) for each in (good, bad)}
        stores.catalog.remember([frames.announcement(), wild], (), demands)
    async with running(settings) as (service, _):
        assert list(service.fleet.motes) == ["m1"]
        assert service.fleet.motes["m1"].desired.period_us == 2 * S


async def test_nameless_demands_are_reported_too(settings: ProxySettings, frames: Any) -> None:
    async with running(settings) as (service, link):
        await link.take([kept(7, {}, [], ["!", []], GOOD)])
        await link.take([Message(topics.announcement("p", "m1"), encode(frames.announcement()))])
        assert service.fleet.motes["m1"].desired.period_us == 2 * S
        assert service.metrics.value("demands_refused") == 4
        await until(lambda: link.on(REPORTS) and link.on(REPORTS)[-1].payload)
        assert [each.query for each in decode_demand_report(link.on(REPORTS)[-1].payload).refused] == ["*"]


async def test_a_report_that_was_not_published_is_published_later(settings: ProxySettings, frames: Any) -> None:
    async with running(settings) as (_, link):
        link.fails = True
        await link.take([kept(GOOD, BAD["an unknown field"])])
        await link.take([Message(topics.announcement("p", "m1"), encode(frames.announcement()))])
        link.fails = False
        await link.client_session.on_connect()
        await until(lambda: link.on(REPORTS) and link.on(REPORTS)[-1].payload)
        before = len(link.on(REPORTS))
        await link.client_session.on_connect()
        await until(lambda: len(link.on(REPORTS)) == before + 1)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    inner = Merger._merged

    def fail(merger: Merger, classes: Any, *more: Any, **named: Any) -> Any:
        if any("flow" in each.demand.fields for each in classes):
            raise ZeroDivisionError("a fault")
        return inner(merger, classes, *more, **named)

    monkeypatch.setattr(Merger, "_merged", fail)
    return None


@pytest.mark.usefixtures("failing")
def test_an_error_while_merging_ends_nothing(frames: Any) -> None:
    fleet = Fleet("p", FleetLimits(), now_us=0)
    fleet.receive_announcement(frames.announcement(), radio_us=0, received_us=0)
    demand = frames.demand(("good", ["speed"], 2 * S), ("bad", ["flow"], 3 * S))
    rejected = [
        each for each in fleet.receive_demand("traffic", demand, radio_us=0) if type(each).__name__ == "RejectDemand"
    ]
    assert [(each.rejected.query, "a fault" in each.rejected.reason) for each in rejected] == [("bad", True)]
    assert fleet.motes["m1"].desired.fields == ("speed",)
    assert [each.query for each in fleet.streams["traffic"].rejected_demands] == ["bad"]
    fleet.receive_demand("traffic", frames.demand(("good", ["speed"], 2 * S)), radio_us=0)
    assert fleet.streams["traffic"].rejected_demands == ()


def test_a_report_is_bounded() -> None:
    refused = [RefusedDemand(f"q{number}", "r" * 1_000) for number in range(MOST_REFUSALS + 5)]
    report = demand_report("p", "traffic", 1, [*refused, RefusedDemand("q0", "another reason")])
    assert decode_demand_report(encode(report)) == report
    assert (len(report.refused), report.more) == (MOST_REFUSALS, 5)
    assert report.refused[0].reason == "r" * LONGEST_REASON
    assert isinstance(report, DemandReport)
