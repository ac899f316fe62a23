"""A proxy that is killed with signal 9 at any moment neither loses nor doubles what it has accepted."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import pytest

from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch
from protocols.wire.catalog import Presence, decode_status
from protocols.wire.frames import VERSION, encode
from protocols.wire.programs import SamplingProgram, program_number

S = 1_000_000
NUMBER = program_number(SamplingProgram(("speed",), 10 * S))
OFFERS = Subscription(topics.stream_offer("p", "+"))
RUN = "from proxy.command import app; app()"


class Cluster:
    """Accepts each batch once, in order, and acknowledges when the test calls for it."""

    def __init__(self, address):
        self.address = address
        subscriptions = [Subscription("fjord/v1/proxies/p/+"), OFFERS]
        self.link = MqttLink(address, client_id="cluster", subscriptions=subscriptions)
        self.acknowledges = False
        self.batches = []
        self.epochs = set()
        self.offers = self.deaths = 0
        self.changed = asyncio.Condition()

    async def receive(self, message):
        if message.topic == topics.proxy_status("p"):
            self.deaths += decode_status(message.payload).presence is Presence.OFFLINE
        elif message.topic == topics.stream_offer("p", "traffic"):
            self.offers += 1
        elif message.topic == topics.batches("p"):
            batch = decode_batch(message.payload)
            self.epochs.add(batch.epoch)
            if batch.sequence == len(self.batches) + 1:
                self.batches.append(batch)
            if self.acknowledges:
                ack = Ack(VERSION, "p", batch.epoch, "traffic", len(self.batches))
                asyncio.get_running_loop().create_task(self.send(topics.acks("p"), ack))
        async with self.changed:
            self.changed.notify_all()

    async def send(self, topic, frame):
        await self.link.publish(Message(topic, encode(frame)))

    @property
    def starts(self):
        return [start for batch in self.batches for start in batch.columns[0].values(batch.rows)]

    async def until(self, condition, seconds=20):
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(condition)


@contextlib.asynccontextmanager
async def proxy_process(address, data):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, "--name", "p", "--data", str(data), "--broker", f"{address.host}:{address.port}",
        "--flush-interval", "10ms", "--max-clock-behind", "0s",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.faults
@pytest.mark.system
async def test_killed_between_spool_and_ack_and_started_again(tmp_path, frames, broker):
    cluster = Cluster(BrokerAddress(broker.host, broker.port))
    listening = asyncio.create_task(cluster.link.run(cluster.receive))
    await asyncio.wait_for(cluster.link.connected.wait(), 10)
    packets = topics.packet("p", "m1")

    def packet(number):
        instant = number * 10 * S
        return frames.packet(number, (instant, 1.0), clock=instant, low_watermark=instant + 10 * S, program=NUMBER)

    async with proxy_process(cluster.address, tmp_path) as first:
        while cluster.offers == 0:  # the proxy may not listen yet
            await cluster.send(topics.demand("traffic"), frames.demand(("a", ["speed"], None)))
            await cluster.send(topics.announcement("p", "m1"), frames.announcement())
            with contextlib.suppress(TimeoutError):
                await cluster.until(lambda: cluster.offers, seconds=0.2)
        for number in range(20):
            await cluster.send(packets, packet(number))
        await cluster.until(lambda: len(cluster.starts) == 20)
        first.kill()
        await first.wait()
    await cluster.until(lambda: cluster.deaths == 1)
    before = cluster.batches[:]

    cluster.acknowledges, offers = True, cluster.offers
    async with proxy_process(cluster.address, tmp_path):
        await cluster.until(lambda: cluster.offers > offers)
        for number in range(15, 30):  # 15 to 19 once more, as a mote's gateway may do
            await cluster.send(packets, packet(number))
        await cluster.until(lambda: len(cluster.starts) == 30)
    assert cluster.batches[: len(before)] == before
    assert cluster.starts == [number * 10 * S for number in range(30)]
    assert len(cluster.epochs) == 1
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening
