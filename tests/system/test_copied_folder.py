"""A data folder is copied, and both copies deliver to one cluster over a real broker, past all that keeps them out.

The second has connections of its own here, so that neither is thrown out by the broker: what protects the batches is
that they name the process that wrote them.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING

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
from proxy.errors import ContestedError, DataFolderMovedError
from proxy.fleet.stream_state import StreamProgress
from proxy.running.delivery import Delivery
from proxy.running.link_interface import Clocks
from proxy.running.metrics import ProxyMetrics
from proxy.storage.flushing import delete_acknowledged
from proxy.storage.spool import SpooledBatch
from proxy.storage.stores import Stores, open_stores

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_mosquitto() is None, reason="Mosquitto is not installed"),
]

SCHEMA = StreamSchema("speeds", (Field("speed", FieldType.INTEGER),))
SECONDS = 60.0


class Copy:
    """The delivery of a proxy on one copy of its folder."""

    def __init__(self, stores: Stores, link: MqttLink) -> None:
        self.stores, self.link, self.metrics, self.clocks = stores, link, ProxyMetrics(), Clocks()
        self.delivery = Delivery("p", stores, link, self.metrics, self.clocks, in_flight=32, resend_after_us=1_000_000)
        self.spooled = max((each.sequence for each in stores.spool.progress()), default=0)
        self.error: ContestedError | None = None
        self.stopped = asyncio.Event()

    def measure(self, *speeds: int) -> None:
        """Put a batch with one row on disk for each speed."""
        spool = self.stores.spool
        for speed in speeds:
            self.spooled += 1
            columns = make_columns(SCHEMA, [self.spooled], ["m"], [True], {"speed": [speed]})
            batch = Batch(
                VERSION, "p", spool.epoch, "speeds", self.spooled, self.spooled, sampling=True, rows=1, columns=columns,
                writer=spool.writer, follows=spool.last_writer("speeds"),
            )  # fmt: skip
            spooled = SpooledBatch("speeds", self.spooled, 1, encode_batch(batch), 0, spool.writer)
            spool.append([spooled], [StreamProgress("speeds", self.spooled, self.spooled, sampling=True)])
            self.delivery.spooled([spooled], self.clocks.radio())

    async def receive(self, message: Message) -> None:
        """Handle an acknowledgement, and delete what it says is stored."""
        if self.error is not None:
            return
        try:
            self.delivery.acknowledged(decode_ack(message.payload), self.clocks.radio())
        except ContestedError as error:
            self.error = error
            self.stopped.set()
            return
        if deletions := self.delivery.take_deletions():
            delivery = self.delivery
            delete_acknowledged(self.stores, deletions, delivery.cluster, writers_read=delivery.reads_writers)

    async def emptied(self) -> None:
        """Wait until everything is acknowledged."""
        async with asyncio.timeout(SECONDS):
            while self.stores.spool.batches:  # noqa: ASYNC110 - acknowledgements make it true
                await asyncio.sleep(0.01)

    async def time_passes(self) -> None:
        """Let batches be sent again that are due."""
        while self.error is None:
            await asyncio.sleep(0.05)
            self.delivery.time_passed(self.clocks.radio())


@contextlib.asynccontextmanager
async def running(address: BrokerAddress, folder: Path, *, adopt: bool = False) -> AsyncIterator[Copy]:
    """Run the delivery of one copy."""

    async def offered() -> None:
        """Publish no more offers."""

    link = MqttLink(address, client_id=f"p-{folder.name}", subscriptions=[Subscription(topics.acks("p"))])
    with open_stores(folder, "p", quarantine_entries=10, adopt=adopt) as stores:
        copy = Copy(stores, link)
        tasks = [asyncio.create_task(link.run(copy.receive)), asyncio.create_task(copy.time_passes())]
        async with asyncio.timeout(SECONDS):
            await link.connected.wait()
        await link.publish(Message(topics.stream_offer("p", "speeds"), encode(StreamOffer(VERSION, "p", SCHEMA))))
        copy.delivery.connected(copy.clocks.radio())
        tasks.append(asyncio.create_task(copy.delivery.send(offered)))
        try:
            yield copy
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def ingest(address: BrokerAddress, folder: Path) -> AsyncIterator[Ingest]:
    """Run the ingest of a cluster."""

    async def handle(messages: Sequence[Message]) -> None:
        acks = [found.handle(message, topics.parse(message.topic)) for message in messages]
        await found.acknowledge([each for each in acks if each is not None])

    link = MqttLink(address, client_id="cluster", subscriptions=Ingest.subscriptions)
    found = Ingest(folder / "tables", quarantine=lambda *what: kept.append(what), link=link)
    kept: list[tuple[object, ...]] = []
    tasks = [asyncio.create_task(link.run_in_bursts(handle)), asyncio.create_task(found.run())]
    async with asyncio.timeout(SECONDS):
        await link.connected.wait()
    yield found
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def stored(folder: Path) -> list[int]:
    """Return the values in the table."""
    return sorted(DeltaTable(str(folder / "tables" / "speeds")).to_pyarrow_table()["speed"].to_pylist())


async def test_no_batch_is_acknowledged_to_a_copy_that_did_not_write_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_broker(engine="mosquitto") as broker, ingest(broker, tmp_path) as cluster:
        address = BrokerAddress(broker.host, broker.port)
        async with running(address, first) as original:
            original.measure(1, 2)
            await original.emptied()
            original.measure(3)
            await original.emptied()
            shutil.copytree(first, second)
            with pytest.raises(DataFolderMovedError, match="first"):
                async with running(address, second):
                    pytest.fail("it must not begin")
            async with running(address, second, adopt=True) as copy:
                original.measure(10, 11)
                await original.emptied()
                copy.measure(20, 21, 22)
                await asyncio.wait_for(copy.stopped.wait(), SECONDS)
                original.measure(12)
                await original.emptied()
                assert stored(tmp_path) == [1, 2, 3, 10, 11, 12]
                assert copy.stores.spool.batches == 3, "it keeps what is not stored"
                assert original.error is None
        assert cluster.writers["speeds"].admission.counters.contested > 0
        async with running(address, first) as again:
            again.measure(13)
            await again.emptied()
        assert stored(tmp_path) == [1, 2, 3, 10, 11, 12, 13]
