"""A cluster that only stores batches: what a proxy needs of one. The real one has the same methods."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from protocols.errors import FjordError
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Ack, Batch, decode_batch, decode_resumption
from protocols.wire.catalog import Presence, Status
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode
from tests.simulation.proxy_host import BatchId
from tests.simulation.violations import Violation, each

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from protocols.mqtt.messages import Seals
    from protocols.wire.streams import StreamSchema
    from tests.simulation.hosts import Host
    from tests.simulation.network import Network
    from tests.simulation.virtual_loop import VirtualLoop

COMMIT_SECONDS = 0.5
"""Batches that have come are stored together this often."""
CLUSTER = "c"
STORED = f"{CLUSTER}/stored"
"""Its name and identity."""


class StandInCluster:
    """The machine; what it has stored survives its processes.

    Parameters
    ----------
    loop, network, host
        Where it runs.
    broker
        Its address.
    schemas
        Of the streams that queries may read.
    seals
        Makes what seals its frames, for a process; None without keys.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        host: Host,
        broker: BrokerAddress,
        schemas: tuple[StreamSchema, ...],
        seals: Callable[[], Seals] | None = None,
    ) -> None:
        self._seals = seals
        self.loop = loop
        self.network = network
        self.host = host
        self.stored: dict[BatchId, Batch] = {}
        self.skipped: list[BatchId] = []
        """Batches with which a proxy resumed, though some before them were never stored."""
        self.acknowledged: dict[tuple[str, str, str], int] = {}
        self._broker = broker
        self._schemas = schemas
        self._demands: dict[str, Mapping[str, tuple[QueryDemand, ...]]] = {}
        """By query and stream."""
        self._epoch = 1
        self._waiting: list[Batch] = []
        self._owed: dict[tuple[str, str, str], None] = {}
        self._link: MqttLink | None = None

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self.host.incarnation is not None

    @property
    def batches(self) -> dict[BatchId, Batch]:
        """All batches that it has stored."""
        return self.stored

    @property
    def watermark_us(self) -> int | None:
        """None: it has no watermark."""
        return None

    @property
    def fails_next(self) -> bool:
        """Never."""
        return False

    @property
    def demanded(self) -> set[str]:
        """The queries that demand anything."""
        return {name for name, demands in self._demands.items() if demands}

    def calm_down(self) -> None:
        """Do nothing: it commits often."""

    def violations(self) -> list[Violation]:
        """Return what else is wrong: batches before which others were never stored."""
        return list(
            each("lost", "batches with which proxies went on, though earlier ones were never stored", self.skipped)
        )

    def start(self) -> None:
        """Begin its process."""
        self._waiting, self._owed = [], {}
        process = self.host.start()
        self._link = process.run(self._make_link)
        self.loop.spawn(process, self._link.run(self._receive), "cluster")
        self.loop.spawn(process, self._commit_regularly(), "commit")

    def kill(self) -> None:
        """Kill its process."""
        self.loop.kill(self.host)
        self.network.killed(self.host)

    def cut_power(self, dice: Random | None = None) -> None:
        """Cut its power; what it has acknowledged is on its disk."""
        del dice
        self.network.power_lost(self.host)
        self.loop.kill(self.host)

    def restore_power(self) -> None:
        """Switch it on again."""
        self.host.clock.boot()
        self.network.power_returned(self.host)
        self.start()

    async def add_query(self, sql: str, name: str) -> str | None:
        """Add a query; return why not."""
        try:
            node = rewrite(translate(sql, Catalog.of(list(self._schemas))).node).node
            ((stream, demands),) = demands_of(name, node).items()
        except FjordError as error:
            return error.message
        return await self._change(name, {stream: demands})

    async def drop_query(self, name: str) -> str | None:
        """Drop a query; return why not."""
        return await self._change(name, {})

    async def _change(self, name: str, demands: Mapping[str, tuple[QueryDemand, ...]]) -> str | None:
        process = self.host.incarnation
        if process is None:
            return "the cluster is away"
        self._demands[name] = demands
        self._epoch += 1
        self.loop.spawn(process, self._publish_demands(), "demands")
        return None

    def _make_link(self) -> MqttLink:
        return MqttLink(
            self._broker,
            client_id="cluster",
            subscriptions=[Subscription(topics.batches("+")), Subscription(topics.resumptions("+"))],
            births=[self._status(Presence.ONLINE)],
            will=self._status(Presence.OFFLINE),
            on_connect=self._publish_demands,
            seals=None if self._seals is None else self._seals(),
        )

    def _status(self, presence: Presence) -> Message:
        payload = encode(Status(VERSION, CLUSTER, presence, "e", 1))
        return Message(topics.cluster_status(CLUSTER), payload, retain=True)

    async def _publish_demands(self) -> None:
        assert self._link is not None
        for schema in self._schemas:
            demands = tuple(each for found in self._demands.values() for each in found.get(schema.name, ()))
            demand = StreamDemand(VERSION, CLUSTER, schema.name, self._epoch, demands)
            with suppress(LinkError):
                await self._link.publish(Message(topics.demand(schema.name), encode(demand), retain=True))

    async def _receive(self, message: Message) -> None:
        if message.refusal:
            return
        if topics.parse(message.topic).kind == "resumptions":
            found = decode_resumption(message.payload)
            lane = found.proxy, found.epoch, found.stream
            if found.first > self.acknowledged.get(lane, 0) + 1:
                self.skipped.append(BatchId(*lane, found.first))
                self.acknowledged[lane] = found.first - 1
            return
        batch = decode_batch(message.payload)
        lane = batch.proxy, batch.epoch, batch.stream
        through = max((each.sequence for each in self._waiting if _lane(each) == lane), default=self._through(lane))
        if batch.sequence == through + 1:
            self._waiting.append(batch)
        else:
            self._owed[lane] = None

    def _through(self, lane: tuple[str, str, str]) -> int:
        return self.acknowledged.get(lane, 0)

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            waiting, self._waiting = self._waiting, []
            for batch in waiting:
                self._commit(batch)
                self._owed[_lane(batch)] = None
            owed, self._owed = self._owed, {}
            for lane in owed:
                ack = Ack(VERSION, *lane, self._through(lane), (), STORED, packed=True)
                with suppress(LinkError):
                    assert self._link is not None
                    await self._link.publish(Message(topics.acks(lane[0]), encode(ack)))

    def _commit(self, batch: Batch) -> None:
        self.stored[BatchId(*_lane(batch), batch.sequence)] = batch
        self.acknowledged[_lane(batch)] = batch.sequence


def _lane(batch: Batch) -> tuple[str, str, str]:
    return batch.proxy, batch.epoch, batch.stream
