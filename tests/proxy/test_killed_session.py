"""Messages of devices with quality of service 1, a real broker that keeps them, and a proxy that is away or killed.

device     1 ... 5           6 ... 10                 11
proxy      runs     stops              starts again
broker     runs              restarts
batches    1 ... 5                             6 ... 11
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys

import pytest

from cluster.demo.parts import free_port
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch
from protocols.wire.frames import VERSION, encode
from proxy.broker.choice import BrokerSettings
from proxy.broker.running import broker_by_settings
from tests.protocols.test_mqtt import needs_mosquitto
from tests.proxy.numbered_device import DEMAND, TOPIC
from tests.proxy.test_killed import Cluster
from tests.proxy.test_service import until

SEEDS = range(2)


class NumberCluster(Cluster):
    """Accepts each batch of numbers once, and acknowledges it."""

    async def receive(self, message):
        if message.topic == topics.batches("p"):
            batch = decode_batch(message.payload)
            if batch.sequence == len(self.batches) + 1:
                self.batches.append(batch)
            ack = Ack(VERSION, "p", batch.epoch, batch.stream, len(self.batches))
            asyncio.get_running_loop().create_task(self.send(topics.acks("p"), ack))
        async with self.changed:
            self.changed.notify_all()

    @property
    def numbers(self):
        columns = [(each, batch.rows) for batch in self.batches for each in batch.columns if each.name == "n"]
        return [value for column, rows in columns for value in column.values(rows)]


@contextlib.asynccontextmanager
async def proxy_process(address, folder):
    arguments = ["-m", "tests.proxy.numbered_device", address.host, str(address.port), str(folder)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def watching(address):
    """Give a cluster whose demand on the numbers is with the broker."""
    cluster = NumberCluster(address)
    cluster.link = MqttLink(address, client_id="cluster", subscriptions=[Subscription(topics.batches("p"))])
    listening = asyncio.create_task(cluster.link.run(cluster.receive))
    await asyncio.wait_for(cluster.link.connected.wait(), 10)
    await cluster.link.publish(Message(topics.demand("numbers"), encode(DEMAND), retain=True))
    yield cluster
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening


async def publish(link, *numbers):
    for number in numbers:
        await asyncio.wait_for(link.connected.wait(), 20)
        await link.publish(Message(TOPIC, b"%d" % number))


async def session_begun(cluster):
    """Publish until a number arrives: before the first session begins, messages are lost."""
    while 0 not in cluster.numbers:
        await publish(cluster.link, 0)
        with contextlib.suppress(TimeoutError):
            await cluster.until(lambda: 0 in cluster.numbers, seconds=0.3)


@needs_mosquitto
@pytest.mark.faults
@pytest.mark.system
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_comes_while_the_proxy_is_away_arrives_when_it_is_back(tmp_path, restarted):
    settings = BrokerSettings(port=free_port(), persist=tmp_path / "broker")
    address = BrokerAddress(port=settings.port)
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(contextlib.AsyncExitStack())
        await broker.enter_async_context(broker_by_settings(settings, "mosquitto"))
        cluster = await stack.enter_async_context(watching(address))
        async with proxy_process(address, tmp_path / "proxy") as process:
            await session_begun(cluster)
            await publish(cluster.link, *range(1, 6))
            await cluster.until(lambda: 5 in cluster.numbers)
            process.terminate()
            await process.wait()
        if restarted:
            await publish(cluster.link, 6, 7)
            connects = cluster.link.connects_total
            await broker.aclose()
            await broker.enter_async_context(broker_by_settings(settings, "mosquitto"))
            await until(lambda: cluster.link.connects_total > connects, seconds=20)
            await publish(cluster.link, *range(8, 11))
        else:
            await publish(cluster.link, *range(6, 11))
        async with proxy_process(address, tmp_path / "proxy"):
            await publish(cluster.link, 11)
            await cluster.until(lambda: 11 in cluster.numbers)
        assert [each for each in cluster.numbers if each] == list(range(1, 12))


@needs_mosquitto
@pytest.mark.faults
@pytest.mark.system
@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_at_any_moment_it_stores_every_message_once(tmp_path, seed):
    dice, last = random.Random(seed), 300
    settings = BrokerSettings(port=free_port(), persist=tmp_path / "broker")
    address = BrokerAddress(port=settings.port)
    async with broker_by_settings(settings, "mosquitto"), watching(address) as cluster:
        async with proxy_process(address, tmp_path / "proxy"):
            await session_begun(cluster)
        number = 1
        while number <= last:
            async with proxy_process(address, tmp_path / "proxy"):
                before = len(cluster.numbers)
                await cluster.until(lambda: len(cluster.numbers) > before or number == 1)  # noqa: B023 - at once
                count = min(dice.randrange(1, 60), last + 1 - number)
                await publish(cluster.link, *range(number, number + count))
                number += count
                await cluster.until(lambda: len(cluster.numbers) > before)  # noqa: B023 - at once
            # killed
            await publish(cluster.link, *range(number, min(number + 3, last + 1)))
            number = min(number + 3, last + 1)
        async with proxy_process(address, tmp_path / "proxy"):
            await cluster.until(lambda: last in cluster.numbers)
        assert [each for each in cluster.numbers if each] == list(range(1, last + 1))
