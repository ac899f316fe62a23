"""A cluster with all around it that it talks to: a broker, proxies that only send, and a subscriber.

The smallest world in which the cluster's promises can be checked, and broken (tests/simulation/planted). Proxies here
do what a proxy owes its cluster: they number batches, keep them until they are acknowledged, and send them again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Ack, Batch, encode_batch, make_columns
from protocols.wire.catalog import Presence, Status, StreamOffer
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.simulation.broker import PORT, Broker, BrokerLimits
from tests.simulation.cluster_host import ClusterHost
from tests.simulation.hosts import SECOND_NS, Host, HostClock, WorldTime
from tests.simulation.network import Network
from tests.simulation.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEEDS = StreamSchema("speeds", (Field("speed", FieldType.INTEGER),))
SECOND_US = 1_000_000
DISORDER_US = 2 * SECOND_US
BATCH_SECONDS = 1.5
AGAIN_SECONDS = 4.0
FEED_BEGINS_SECONDS = 10.0
"""Until then there are streams, and nothing in them."""
MOST_AT_ONCE = 20
_ack = msgspec.msgpack.Decoder(Ack)
RESULTS = (topics.results("x").rpartition("/")[0] + "/", topics.query_errors("x").rpartition("/")[0] + "/")


class Row(NamedTuple):
    """A tuple of the stream."""

    start_us: int
    mote: str
    speed: int


class TappedBroker(Broker):
    """A broker that notes what it accepted of results."""

    def __init__(self, *arguments: Any, published: list[Message], accepting: Callable[[Message], None]) -> None:
        super().__init__(*arguments)
        self._results = published
        self._accepting = accepting

    def publish(self, message: Message) -> None:
        """Note results, and send a message to all that subscribe."""
        if message.topic.startswith(RESULTS):
            self._results.append(message)
        self._accepting(message)
        super().publish(message)


@dataclass
class Feed:
    """A proxy that only sends.

    Parameters
    ----------
    world
        Where it is.
    name
        Of the proxy.
    dice
        Draws what it sends.
    epoch
        Of its spool.
    """

    world: FedCluster
    name: str
    dice: Random
    epoch: str = "e"
    rows: dict[int, list[Row]] = field(default_factory=dict)
    """By number of a batch: its rows."""
    acknowledged: int = 0
    waiting: dict[int, bytes] = field(default_factory=dict)
    ending: bool = False
    _watermark_us: int = 0

    def __post_init__(self) -> None:
        self.host = Host(self.name, HostClock(self.world.loop.world), self.world.seed)
        process = self.host.start()

        def made() -> MqttLink:
            return MqttLink(
                self.world.address,
                client_id=f"proxy-{self.name}",
                subscriptions=[Subscription(topics.acks(self.name))],
                births=[
                    Message(topics.proxy_status(self.name), encode(self._status(Presence.ONLINE)), retain=True),
                    Message(
                        topics.stream_offer(self.name, "speeds"),
                        encode(StreamOffer(VERSION, self.name, SPEEDS)),
                        retain=True,
                    ),
                ],
                will=Message(topics.proxy_status(self.name), encode(self._status(Presence.OFFLINE)), retain=True),
                on_connect=self._send_all,
            )

        self.link = process.run(made)
        self.world.loop.spawn(process, self.link.run(self._receive), "link")
        self.world.loop.spawn(process, self._feed(), "feed")
        self.world.loop.spawn(process, self._keep_sending(), "again")

    def _status(self, presence: Presence) -> Status:
        return Status(VERSION, self.name, presence, self.epoch, 0)

    async def _receive(self, message: Message) -> None:
        ack = _ack.decode(message.payload)
        if ack.proxy != self.name or ack.epoch != self.epoch:
            return
        self.acknowledged = max(self.acknowledged, ack.through)
        for number in [each for each in self.waiting if each <= ack.through]:
            del self.waiting[number]

    async def _feed(self) -> None:
        await asyncio.sleep(FEED_BEGINS_SECONDS)
        while True:
            await asyncio.sleep(BATCH_SECONDS * (0.5 + self.dice.random()))
            if not self.ending:
                await self._add(self._drawn())

    async def end(self) -> None:
        """Send a last batch, behind which nothing comes."""
        self.ending = True
        await self._add([], ahead_us=3600 * SECOND_US)

    def _drawn(self) -> list[Row]:
        now_us = self.host.clock.wall_ns() // 1000
        # Before its first batch the cluster does not wait for a proxy: that has nothing older than the others'.
        first_us = max(self._watermark_us, now_us - (2 * DISORDER_US if self.rows else DISORDER_US))
        return [
            Row(
                self.dice.randrange(first_us, now_us), f"{self.name}-{self.dice.randrange(3)}", self.dice.randrange(100)
            )
            for _ in range(self.dice.randrange(5))
        ]

    async def _add(self, rows: list[Row], ahead_us: int = 0) -> None:
        number = len(self.rows) + 1
        self.rows[number] = rows
        now_us = self.host.clock.wall_ns() // 1000
        self._watermark_us = max(self._watermark_us, now_us - DISORDER_US) + ahead_us
        columns = make_columns(
            SPEEDS,
            [row.start_us for row in rows],
            [row.mote for row in rows],
            [True] * len(rows),
            {"speed": [row.speed for row in rows]},
        )
        batch = Batch(
            VERSION, self.name, self.epoch, "speeds", number, self._watermark_us, not ahead_us, len(rows),
            columns if rows else (),
        )  # fmt: skip
        self.waiting[number] = encode_batch(batch)
        await self._send([number])

    async def _send_all(self) -> None:
        await self._send(list(self.waiting)[:MOST_AT_ONCE])

    async def _send(self, numbers: list[int]) -> None:
        for number in numbers:
            if number not in self.waiting:
                continue
            message = Message(topics.batches(self.name), self.waiting[number])
            try:
                await self.link.publish(message)
            except LinkError:
                return

    async def _keep_sending(self) -> None:
        while True:
            before = self.acknowledged
            await asyncio.sleep(AGAIN_SECONDS)
            if self.acknowledged == before and self.waiting:
                await self._send_all()


class Subscriber:
    """Receives the results of all queries.

    Parameters
    ----------
    world
        Where it is.
    """

    def __init__(self, world: FedCluster) -> None:
        self.host = Host("subscriber", HostClock(world.loop.world), world.seed)
        self.received: dict[str, dict[int, dict[str, object]]] = {}
        """By query and number: the message."""
        self.changed: list[str] = []
        """Messages that came again otherwise than before."""
        process = self.host.start()
        link = process.run(
            lambda: MqttLink(
                world.address,
                client_id="subscriber",
                subscriptions=[Subscription(topics.results("+")), Subscription(topics.query_errors("+"))],
            )
        )
        world.loop.spawn(process, link.run(self._receive), "link")

    async def _receive(self, message: Message) -> None:
        found = msgspec.json.decode(message.payload)
        query, number = found["query"], found["sequence"]
        known = self.received.setdefault(query, {})
        if known.setdefault(number, found) != found:
            self.changed.append(f"{query} {number}: {known[number]} and {found}")


class FedCluster:
    """The world.

    Parameters
    ----------
    folder
        In memory; for the cluster's disk.
    seed
        Of all that is drawn.
    proxies
        How many.
    settings
        Of the cluster.
    """

    def __init__(self, folder: Path, seed: str, proxies: int = 2, **settings: object) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.loop = VirtualLoop(Random(f"{seed} loop"), WorldTime())
        self.network = self.loop.network = Network(self.loop, Random(f"{seed} network"))
        self.address = BrokerAddress("broker", PORT)
        self.machine = Host("broker", HostClock(self.loop.world), seed)
        self.broker: Broker | None = None
        self.limits = BrokerLimits()
        self.published: list[Message] = []
        """What the broker accepted of results, in order."""
        self.start_broker()
        self.cluster = ClusterHost(self.loop, folder, "broker", PORT, seed=seed, **settings)
        self.cluster.start()
        self.feeds = [Feed(self, f"p{number}", Random(f"{seed} feed {number}")) for number in range(proxies)]
        self.subscriber = Subscriber(self)

    def start_broker(self, *, remembering: bool = True) -> None:
        """Start the broker's process, with what it retained or without."""
        retained = self.broker.retained if self.broker is not None and remembering else {}
        self.machine.start()
        chance = Random(f"{self.seed} broker {self.machine.started}").random
        self.broker = TappedBroker(
            self.limits, iter(chance, None), retained, published=self.published, accepting=self._accepting
        )
        self.network.listen(self.machine, PORT, self.broker.session)

    def _accepting(self, message: Message) -> None:
        """See a message that is published: a place for checks."""

    def kill_broker(self) -> None:
        """Kill the broker's process."""
        self.loop.kill(self.machine)
        self.network.killed(self.machine)

    async def passed(self, seconds: float) -> None:
        """Wait for so much true time."""
        await self.loop.passed(seconds)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.loop.world.now_ns / SECOND_NS
