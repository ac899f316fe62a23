"""The live fleet and the virtual one are the same motes: over a link that answers at once, a seed spends the same."""

from __future__ import annotations

import asyncio

import pytest

from firmware_sim import fleet as live
from firmware_sim.fleet import Fleet, FleetSettings
from firmware_sim.phenomena.traffic import Traffic
from firmware_sim.power.battery import find_battery
from firmware_sim.radio.channel import Bernoulli, RadioFaults
from firmware_sim.virtual_time.fleet import Gateway, VirtualFleet, VirtualSettings
from protocols.mqtt.link import Message
from protocols.power.profiles import find_profile
from protocols.wire import topics
from protocols.wire.frames import encode
from protocols.wire.programs import ListenSchedule, Panes, SamplingProgram, SendOnChange

SECOND = 1_000_000
PROGRAMS = {
    "raw": SamplingProgram(("speed", "flow"), SECOND, 7, ListenSchedule(30 * SECOND, 50_000)),
    "panes": SamplingProgram(("speed",), SECOND, 1, ListenSchedule(60 * SECOND, 50_000), report=Panes(60 * SECOND)),
    "change": SamplingProgram(
        ("speed",), 5 * SECOND, 1, ListenSchedule(30 * SECOND, 50_000), report=SendOnChange((), 60 * SECOND)
    ),
}


class Clock:
    """Radio time that passes only while the fleet waits."""

    def __init__(self, ends_us):
        self.now_us = 0
        self.ends_us = ends_us
        self._pause_us = 0

    def __call__(self):
        return self.now_us

    def timeout(self, seconds):
        """Take the place of asyncio's own."""
        self._pause_us = max(1, round(seconds * SECOND))
        return self

    async def __aenter__(self):
        """Let the time pass at once; end the run at its end."""
        for _ in range(5):  # what was answered is received first
            await asyncio.sleep(0)
        self.now_us += self._pause_us
        if self.now_us >= self.ends_us:
            raise asyncio.CancelledError
        raise TimeoutError

    async def __aexit__(self, *error):
        """Nothing is ever waited for."""


class AnsweringLink:
    """In the place of the broker and a proxy: what the gateway answers is received at once."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.connected = asyncio.Event()
        self.connected.set()
        self._answers = asyncio.Queue()

    async def run_in_bursts(self, take):
        while True:
            await take([await self._answers.get()])

    async def publish(self, message):
        if not message.topic.endswith("/packet"):
            return
        control = self.gateway.receive(0, message.payload)
        if control is not None:
            self._answers.put_nowait(Message(topics.control("roadside", control.mote), encode(control), qos=0))


async def run_live(monkeypatch, program, seconds, **settings):
    world = Traffic(2, seed=3)
    clock = Clock(seconds * SECOND)
    link = AnsweringLink(Gateway({each.name: program for each in world.motes}))
    monkeypatch.setattr(live, "MqttLink", lambda *_, **__: link)
    fleet = Fleet(world, FleetSettings(seed=3, **settings), clock=clock)
    monkeypatch.setattr(live.asyncio, "timeout", clock.timeout)
    running = asyncio.create_task(fleet.run())
    with pytest.raises(asyncio.CancelledError):
        await running
    for mote in fleet.motes:
        mote.meter.settle(seconds * SECOND)
    return fleet


@pytest.mark.parametrize(("name", "faults"), [
    *((name, None) for name in sorted(PROGRAMS)), ("raw", RadioFaults(loss=Bernoulli(share=0.1))),
])  # fmt: skip
async def test_live_and_virtual_runs_of_one_seed_agree_within_a_percent(monkeypatch, name, faults):
    seconds, battery = 3 * 3600, find_battery("alkaline-aa-pair")
    program = PROGRAMS[name]
    alive = await run_live(monkeypatch, program, seconds, preset="telosb", battery=battery, faults=faults)
    world = Traffic(2, seed=3)
    settings = VirtualSettings(find_profile("telosb"), battery, faults=faults or RadioFaults(), seed=3)
    virtual = VirtualFleet(world, {each.name: program for each in world.motes}, settings)
    virtual.run(seconds * SECOND)
    for one, other in zip(alive.motes, virtual.motes, strict=True):
        assert one.sampling
        assert one.counters.samples == pytest.approx(other.counters.samples, abs=5)
        if faults is None:
            assert float(one.meter.joules.sum()) == pytest.approx(float(other.meter.joules.sum()), rel=0.01)
    spent = [sum(float(mote.meter.joules.sum()) for mote in fleet.motes) for fleet in (alive, virtual)]
    assert spent[0] == pytest.approx(spent[1], rel=0.01)
    assert alive.motes[0].meter.drained_joules == pytest.approx(float(alive.motes[0].meter.joules.sum()))


async def test_counters_tell_energy_by_component(monkeypatch):
    fleet = await run_live(monkeypatch, PROGRAMS["raw"], 300)
    counters = fleet.counters()["s001l1"]
    assert counters["joules"]["total"] == pytest.approx(sum(counters["joules"].values()) / 2)
    assert counters["joules"]["radio_transmit"] > 0
    assert (counters["battery"], counters["refusal"]) == (None, "")


async def test_what_a_bad_radio_garbles_is_refused_and_no_program_arrives(monkeypatch):
    faults = RadioFaults(garbled=1.0, latency_us=1_500_000)
    fleet = await run_live(monkeypatch, PROGRAMS["raw"], 60, faults=faults)
    gateway = fleet._link.gateway
    # A few wrong bits may still make a packet; most do not.
    assert gateway.rejected > 20
    assert not any(mote.sampling for mote in fleet.motes)
    assert fleet.motes[0].counters.packets > 20
