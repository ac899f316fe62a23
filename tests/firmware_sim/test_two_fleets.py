"""Two fleets of motes at one proxy: the broker keeps the connections of both."""

from __future__ import annotations

import asyncio
import contextlib
import time

from firmware_sim.fleet import Fleet, FleetSettings
from firmware_sim.phenomena.worlds import make_world
from protocols.mqtt.link import BrokerAddress, MqttLink, Subscription
from protocols.mqtt.messages import Message
from protocols.wire import topics
from protocols.wire.packets import decode_packet
from proxy.broker import running_broker

SECONDS = 20.0


class Proxy:
    """Notes the packets of all motes, which sleep: an empty one of each every two seconds."""

    def __init__(self, address: BrokerAddress) -> None:
        self.sequences: dict[str, list[int]] = {}
        everything = Subscription(topics.packet("roadside", "+"), qos=0)
        self.link = MqttLink(address, client_id="listening", subscriptions=[everything])

    async def take(self, message: Message) -> None:
        packet = decode_packet(message.payload)
        self.sequences.setdefault(packet.mote, []).append(packet.sequence)


async def test_two_fleets_of_one_seed_lose_no_packets() -> None:
    async with running_broker() as broker:
        address = BrokerAddress(broker.host, broker.port)
        settings = FleetSettings(broker=address, seed=1)
        fleets = [Fleet(make_world(name, motes=2), settings) for name in ("traffic", "climate")]
        proxy = Proxy(address)
        tasks = [asyncio.create_task(proxy.link.run(proxy.take))]
        await asyncio.wait_for(proxy.link.connected.wait(), SECONDS)
        tasks += [asyncio.create_task(each.run()) for each in fleets]
        deadline = time.monotonic() + SECONDS
        while len(proxy.sequences) < 4 or min(map(len, proxy.sequences.values())) < 3:
            assert time.monotonic() < deadline, proxy.sequences
            await asyncio.sleep(0.05)
        for each in tasks:
            each.cancel()
        for each in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await each
    assert sorted(proxy.sequences) == ["room101", "room102", "s001l1", "s001l2"]
    assert [each[:3] for each in proxy.sequences.values()] == [[0, 1, 2]] * 4
    assert [each.packets_lost for each in fleets] == [0, 0]
