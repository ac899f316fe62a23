"""What motes send waits in order for the broker, and motes wait when too much waits."""

from __future__ import annotations

import asyncio

import pytest

from firmware_sim import fleet as module
from firmware_sim.fleet import Air
from firmware_sim.mote.mote_events import SendPacket
from firmware_sim.radio.channel import Channel, RadioFaults
from protocols.mqtt.link import LinkError
from protocols.wire.packets import Packet


class Link:
    def __init__(self):
        self.sent = []
        self.away = False
        self.permits = asyncio.Semaphore(1_000)

    async def publish(self, message):
        await self.permits.acquire()
        if self.away:
            raise LinkError("away")
        self.sent.append(message.topic)


class Motely:
    """As much of a mote as the air sees."""

    def __init__(self):
        self.left = []

    def transmitted(self, packet, ended_us):
        self.left.append((packet.sequence, ended_us))


def packet(sequence):
    return SendPacket(Packet(1, "m1", 1, sequence, 0, 0, 100, 0, ()))


@pytest.fixture
async def link_and_air():
    link = Link()
    air = Air(link, None, lambda: 77)
    running = asyncio.create_task(air.run())
    yield link, air
    running.cancel()


async def test_messages_leave_in_order_and_the_mote_learns_when(link_and_air):
    link, air = link_and_air
    mote = Motely()
    air.announce("a", b"")
    air.send(mote, "b", packet(4))
    assert (link.sent, mote.left) == ([], [])
    await air.drain()
    assert (link.sent, mote.left) == (["a", "b"], [(4, 77)])


async def test_without_a_broker_messages_are_lost_and_counted(link_and_air):
    link, air = link_and_air
    link.away = True
    for _ in range(3):
        air.announce("a", b"")
    await air.drain()
    assert (air.lost, link.sent) == (3, [])


async def test_motes_wait_when_too_much_waits(link_and_air, monkeypatch):
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    link, air = link_and_air
    link.permits = asyncio.Semaphore(1)
    for _ in range(4):
        air.announce("a", b"")
    waiting = asyncio.create_task(air.room())
    async with asyncio.timeout(5):
        while not link.sent:  # noqa: ASYNC110 - the stand-in for a link has no event
            await asyncio.sleep(0)
        assert not waiting.done(), "three still wait"
        link.permits.release()
        await waiting
    assert len(link.sent) == 2


async def test_packets_that_are_held_up_leave_when_their_time_has_come():
    link, now = Link(), [0]
    mote = type("Mote", (Motely,), {})()
    mote.description = type("About", (), {"name": "m1"})
    radio = type("Radio", (), {"airtime_us": lambda _, bits: 1000.0, "maximum_attempts": 1})()
    mote.meter = type("M", (), {"profile": type("P", (), {"radio": radio}), "repeated": lambda *_: None})()
    air = Air(link, Channel(RadioFaults(latency_us=50_000)), lambda: now[0])
    running = asyncio.create_task(air.run())
    air.send(mote, "b", packet(0))
    assert air.next_delivery_us == 51_000
    air.deliver_due()
    air.announce("later", b"")
    await air.drain()
    assert link.sent == ["later"]
    now[0] = 51_000
    air.deliver_due()
    await air.drain()
    assert link.sent == ["later", "b"]
    running.cancel()
