"""Batches cross a broker with a quality of service of 0: what is lost on either hop is sent again, and soon.

spool ----> Delivery ----> link ----> broker ----> link ----> Ingest ----> table
                       x loses some           x loses some
      <---------------- acknowledgements: what is on disk ---------------
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest
from deltalake import DeltaTable

from cluster.ingest.service import Ingest
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Batch, decode_ack, encode_batch, make_columns
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.broker import running_broker
from proxy.broker.mosquitto import find_mosquitto
from proxy.running.delivery import Delivery
from proxy.running.link_interface import Clocks
from proxy.running.metrics import ProxyMetrics
from proxy.running.stream_deliveries import MOST_PUBLISHED_BYTES
from proxy.storage.spool import SpooledBatch
from proxy.storage.stores import open_stores

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.system

SCHEMA = StreamSchema("speeds", (Field("speed", FieldType.INTEGER),))
needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="Mosquitto is not installed")
ENGINES = [pytest.param("amqtt", id="amqtt"), pytest.param("mosquitto", id="mosquitto", marks=needs_mosquitto)]
SECONDS = 60.0
PATIENCE_SECONDS, LONG_PATIENCE_SECONDS = 3.0, 40.0
"""Without an acknowledgement, before the first: the usual one, and one that no test waits for."""

Loses = "Callable[[], bool]"


class Road:
    """A proxy's delivery and a cluster's ingest, with a broker between them that may lose batches on both hops."""

    def __init__(
        self,
        folder: Path,
        address: BrokerAddress,
        *,
        published_qos: int,
        subscribed_qos: int,
        patience_seconds: float,
    ) -> None:
        self.folder = folder
        self.address = address
        self.published_qos = published_qos
        self.subscribed_qos = subscribed_qos
        self.patience_us = round(patience_seconds * 1e6)
        self.loses_before: Loses = lambda: False
        self.loses_behind: Loses = lambda: False
        self.spooled = 0
        self.qualities: set[int] = set()
        """That batches arrived with."""
        self.metrics = ProxyMetrics()
        self.clocks = Clocks()

    async def publish(self, message: Message) -> None:
        """Publish for the proxy, unless it is a batch and lost."""
        if message.topic == topics.batches("p"):
            assert message.qos == 0
            if self.loses_before():
                return
            message = msgspec.structs.replace(message, qos=self.published_qos)
        await self.link.publish(message)

    async def handle(self, messages: Sequence[Message]) -> None:
        """Handle what arrives at the cluster, unless it is a batch and lost."""
        kept = []
        for message in messages:
            if message.topic == topics.batches("p"):
                self.qualities.add(message.qos)
                if self.loses_behind():
                    continue
            kept.append(message)
        acks = [self.ingest.handle(message, topics.parse(message.topic)) for message in kept]
        await self.ingest.acknowledge([each for each in acks if each is not None])

    def spool(self, count: int = 1, payload: bytes | None = None) -> None:
        """Spool batches of one row each, or with other bytes."""
        numbers = range(self.spooled + 1, self.spooled + 1 + count)
        batches = [
            SpooledBatch("speeds", number, 1, payload or encode_batch(self._batch(number)), spooled_us=0)
            for number in numbers
        ]
        self.stores.spool.append(batches)
        self.spooled += count
        self.delivery.spooled(batches, self.clocks.radio())

    def _batch(self, number: int) -> Batch:
        columns = make_columns(SCHEMA, [number], ["m"], [True], {"speed": [number]})
        return Batch(
            VERSION, "p", self.stores.spool.epoch, "speeds", number, number, sampling=True, rows=1, columns=columns
        )

    async def acknowledged(self) -> float:
        """Wait until all is acknowledged; return how many seconds that took."""
        began = time.monotonic()
        async with asyncio.timeout(SECONDS):
            while self.metrics.value("batches_acknowledged") < self.spooled:  # noqa: ASYNC110 - the ingest makes it true
                await asyncio.sleep(0.01)
        return time.monotonic() - began

    def stored(self) -> list[int]:
        """Return the values in the table."""
        return sorted(DeltaTable(str(self.folder / "tables" / "speeds")).to_pyarrow_table()["speed"].to_pylist())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Road]:
        """Run both sides."""

        async def receive(message: Message) -> None:
            self.delivery.acknowledged(decode_ack(message.payload), self.clocks.radio())

        async def refuse(*what: object) -> None:
            raise AssertionError(what)

        subscriptions = [
            Subscription(each.filter, self.subscribed_qos) if each.filter == topics.batches("+") else each
            for each in Ingest.subscriptions
        ]
        of_cluster = MqttLink(self.address, client_id="cluster", subscriptions=subscriptions)
        self.link = MqttLink(self.address, client_id="proxy", subscriptions=[Subscription(topics.acks("p"))])
        self.ingest = Ingest(self.folder / "tables", quarantine=refuse, link=of_cluster)
        with open_stores(self.folder / "proxy", "p", quarantine_entries=10) as self.stores:
            self.delivery = Delivery(
                "p", self.stores, self, self.metrics, self.clocks, in_flight=32, resend_after_us=self.patience_us
            )
            running = [
                asyncio.create_task(each)
                for each in (
                    of_cluster.run_in_bursts(self.handle),
                    self.link.run(receive),
                    self.ingest.run(),
                    self._time_passes(),
                )
            ]
            async with asyncio.timeout(SECONDS):
                await of_cluster.connected.wait()
                await self.link.connected.wait()
            await self.link.publish(Message(topics.stream_offer("p", "speeds"), self._offer(), retain=True))
            self.delivery.connected(self.clocks.radio())
            running.append(asyncio.create_task(self.delivery.send(self._offered)))
            try:
                yield self
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    def _offer(self) -> bytes:
        return encode(StreamOffer(VERSION, "p", SCHEMA))

    async def _offered(self) -> None:
        """Publish no more offers."""

    async def _time_passes(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.delivery.time_passed(self.clocks.radio())


@contextlib.asynccontextmanager
async def road(
    folder: Path,
    engine: str,
    *,
    published_qos: int = 0,
    subscribed_qos: int = 0,
    patience_seconds: float = PATIENCE_SECONDS,
) -> AsyncIterator[Road]:
    async with running_broker(engine=engine) as broker:
        address = BrokerAddress(broker.host, broker.port)
        made = Road(
            folder,
            address,
            published_qos=published_qos,
            subscribed_qos=subscribed_qos,
            patience_seconds=patience_seconds,
        )
        async with made.running() as running:
            yield running


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("published", "subscribed"), [(0, 0), (0, 1), (1, 0), (1, 1)])
async def test_proxies_and_clusters_of_both_qualities_of_service_work_together(
    tmp_path: Path, engine: str, published: int, subscribed: int
) -> None:
    async with road(tmp_path, engine, published_qos=published, subscribed_qos=subscribed) as running:
        running.spool(100)
        await running.acknowledged()
        assert running.stored() == list(range(1, 101))
        # amqtt takes the one that was subscribed with.
        assert running.qualities == {subscribed if engine == "amqtt" else min(published, subscribed)}
        assert running.metrics.value("batches_sent") < 200, "some twice, where a busy machine commits late"


def test_the_ingest_subscribes_to_batches_with_0() -> None:
    assert {each.filter: each.qos for each in Ingest.subscriptions}[topics.batches("+")] == 0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("hop", ["before", "behind"])
async def test_what_is_lost_is_sent_again_and_stored_once(tmp_path: Path, engine: str, hop: str) -> None:
    dice, count = Random(f"{engine}/{hop}"), 0
    async with road(tmp_path, engine) as running:

        def loses() -> bool:
            nonlocal count
            lost = dice.random() < 0.1
            count += lost
            return lost

        setattr(running, f"loses_{hop}", loses)
        for _ in range(20):
            running.spool(5)
            await asyncio.sleep(0.05)
        await running.acknowledged()
        assert running.stored() == list(range(1, 101))
        assert count > 0
        again = running.metrics.value("batches_sent") - 100
        assert count / 2 <= again <= 32 * count, "each loss costs a window at most"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_last_batch_that_is_lost_is_sent_again_soon(tmp_path: Path, engine: str) -> None:
    async with road(tmp_path, engine, patience_seconds=LONG_PATIENCE_SECONDS) as running:
        for _ in range(8):  # what is usual
            running.spool()
            await running.acknowledged()
        lost = iter([True])
        running.loses_before = lambda: next(lost, False)
        running.spool()
        assert 0.9 <= await running.acknowledged() < LONG_PATIENCE_SECONDS / 2
        assert running.metrics.value("resends", "silence") > 0
        assert running.stored() == list(range(1, 10))


@needs_mosquitto
async def test_a_cluster_that_acknowledges_nothing_gets_some_bytes_of_a_stream_and_then_one_batch_at_a_time(
    tmp_path: Path,
) -> None:
    async with road(tmp_path, "mosquitto") as running:
        running.loses_before = lambda: True
        running.spool(32, payload=bytes(MOST_PUBLISHED_BYTES // 4))
        async with asyncio.timeout(SECONDS):
            for again in range(3):
                while running.metrics.value("batches_sent") < 4 + again:  # noqa: ASYNC110 - time makes it true
                    await asyncio.sleep(0.01)
                assert running.metrics.value("batches_sent") <= 4 + running.metrics.value("resends", "silence")
