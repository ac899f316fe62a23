"""Live motes over a real broker, for benchmarks/motes.py, with a stand-in for their proxy in a process of its own.

python benchmarks/live_motes.py HOST:PORT MOTES       # the stand-in: gives every mote that listens its program
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from cluster.demo.parts import Children, accepts, free_port
from firmware_sim.fleet import Fleet, FleetSettings, radio_clock_us
from firmware_sim.phenomena.traffic import Traffic
from firmware_sim.virtual_time.fleet import Gateway, VirtualFleet, VirtualSettings
from protocols.event_log import configure_logging
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription
from protocols.power.profiles import find_profile
from protocols.wire import topics
from protocols.wire.frames import encode
from protocols.wire.programs import ListenSchedule, SamplingProgram

PROXY = "stand-in"
PRESET = "telosb"
TENTH_HERTZ = SamplingProgram(("speed",), 10_000_000, 1, ListenSchedule(8_000_000, 50_000))
LAST_WAIT_SECONDS = 180.0


async def run_live(folder: Path, *, motes: int, settle: float, seconds: float) -> dict[str, Any]:
    """Run motes until all have their program and have settled, and then for so long; return the measurements."""
    broker = BrokerAddress(port=free_port())
    with Children(folder) as children:
        child = children.start("broker", ["broker", "--port", str(broker.port)])
        await asyncio.to_thread(children.wait_until, lambda: accepts(broker), child, seconds=30.0)
        answering = await asyncio.create_subprocess_exec(sys.executable, __file__, str(broker), str(motes))
        try:
            return await _measure(broker, motes, settle, seconds)
        finally:
            answering.terminate()
            await answering.wait()


async def _measure(broker: BrokerAddress, motes: int, settle: float, seconds: float) -> dict[str, Any]:
    world = Traffic(motes, seed=1, default_period_us=10_000_000)
    fleet = Fleet(world, FleetSettings(proxy=PROXY, broker=broker, preset=PRESET))
    running = asyncio.create_task(fleet.run())
    began = time.monotonic()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_all_sampling(fleet), LAST_WAIT_SECONDS)
    ready = time.monotonic() - began
    await asyncio.sleep(settle)
    before, joules_before, from_us = _counted(fleet)
    processor = time.process_time()
    await asyncio.sleep(seconds)
    processor = time.process_time() - processor
    after, joules_after, until_us = _counted(fleet)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    samples, late = after[0] - before[0], after[1] - before[1]
    live_mw = (joules_after - joules_before) / (until_us - from_us) * 1e9 / motes
    return {
        "live_motes": motes,
        "live_all_sampling_after_s": round(ready, 1),
        "live_seconds": seconds,
        "live_samples": samples,
        "live_expected_samples": round(motes * seconds / 10),
        "live_late_share": round(late / max(samples, 1), 5),
        "live_packets_not_heard": fleet.packets_lost,
        "live_core_share": round(processor / seconds, 2),
        "live_draw_over_virtual": round(live_mw / await asyncio.to_thread(_virtual_mw, min(motes, 200), seconds), 4),
    }


async def _all_sampling(fleet: Fleet) -> None:
    while not all(mote.sampling for mote in fleet.motes):  # noqa: ASYNC110 - the fleet has no such event
        await asyncio.sleep(0.5)


def _counted(fleet: Fleet) -> tuple[tuple[int, int], float, int]:
    now_us = radio_clock_us()
    for mote in fleet.motes:
        mote.meter.settle(now_us)
    samples = sum(mote.counters.samples for mote in fleet.motes)
    late = sum(mote.counters.late_ticks for mote in fleet.motes)
    return (samples, late), float(np.sum([mote.meter.joules for mote in fleet.motes])), now_us


def _virtual_mw(motes: int, seconds: float) -> float:
    """Return the mean draw of the same motes in virtual time, over an equal period long after their start."""
    world = Traffic(motes, seed=1, default_period_us=10_000_000)
    programs = {each.name: TENTH_HERTZ for each in world.motes}
    fleet = VirtualFleet(world, programs, VirtualSettings(find_profile(PRESET)))
    fleet.run(120_000_000)
    before = sum(float(mote.meter.joules.sum()) for mote in fleet.motes)
    fleet.run(120_000_000 + round(seconds * 1e6))
    after = sum(float(mote.meter.joules.sum()) for mote in fleet.motes)
    return (after - before) / seconds * 1e3 / motes


async def answer(broker: BrokerAddress, motes: int) -> None:
    """Give every mote its program in its first listen window."""
    names = [each.name for each in Traffic(motes).motes]
    gateway = Gateway(dict.fromkeys(names, TENTH_HERTZ))

    async def receive(message: Message) -> None:
        control = gateway.receive(0, message.payload)
        if control is not None:
            with contextlib.suppress(LinkError):
                await link.publish(Message(topics.control(PROXY, control.mote), encode(control), qos=0))

    link = MqttLink(
        broker,
        client_id=f"stand-in-{socket.gethostname()[:20]}",
        subscriptions=[Subscription(topics.packet(PROXY, "+"), qos=0)],
    )
    await link.run(receive)


if __name__ == "__main__":
    configure_logging("warning")
    host, _, port = sys.argv[1].rpartition(":")
    asyncio.run(answer(BrokerAddress(host, int(port)), int(sys.argv[2])))
