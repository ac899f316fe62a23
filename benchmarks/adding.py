"""What adding and dropping a query costs while many run, and for how long it keeps the event loop from ingesting.

The part of a cluster that takes queries runs in this process: planning, limits, the registry and its plan files on the
disk, and the demands on a real broker, where a proxy's assembly of demands listens and says when it has each change.
Spark is not started. Ten queries are added, then as many that 10,000 run, in bulk; after each, 40 are added and dropped
one by one, a third filters, a third windows by segment, a third counts of distinct values, all with conditions of their
own. Meanwhile a task looks at the clock every millisecond: a longer gap is a stall of the loop (`loop_stall_ms`), of
which `add_stall_ms` is what this process computed: other processes hold up the loop of a busy machine, too. Likewise
`bulk_stall_ms` and `bulk_computed_ms` while many are added in bulk. What the proxy does is not counted, which runs here
too, and elsewhere in a process of its own.

    python benchmarks/adding.py [--quick] [--json] [--queries 10000]
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1]))

from reports import write_report

from cluster.demo.parts import Children, Parts
from cluster.ingest.service import Ingest
from cluster.physical.plan_files import PlanFiles
from cluster.service.catalog.relation_store import RelationStore
from cluster.service.catalog.stream_service import ReservedNames
from cluster.service.queries.long_lived import LongLived
from cluster.service.queries.query_service import QueryService
from cluster.service.registry.registry import Registry
from protocols.event_log import configure_logging
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.demand_assembly import DemandAssembly

STREAM = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("lane", FieldType.INTEGER),
    ),
)
FEW = 10
MEASURED = 40
QUICK = 2_000


def query_text(number: int) -> str:
    """Return the text of a query; no two are alike."""
    turn, kind = divmod(number, 3)
    lane = 1 + turn % 4
    if kind == 0:
        speed = 10 + turn % 20 + turn / 100_000
        return f"SELECT sensor, speed FROM traffic WHERE speed < {speed:.5f} AND lane = {lane}"
    if kind == 1:
        size = 10 * (1 + turn % 5)
        return (
            f"SELECT segment, AVG(speed) AS speed, COUNT(*) AS n FROM traffic "
            f"WINDOW(RANGE {size} SECONDS SLIDE 10 SECONDS) WHERE lane = {lane} AND speed < {50 + turn / 100_000:.5f} "
            "GROUP BY segment"
        )
    return (
        "SELECT COUNT(DISTINCT sensor) AS n FROM traffic WINDOW(RANGE 30 SECONDS SLIDE 30 SECONDS) "
        f"WHERE speed < {20 + turn % 100 + turn / 100_000:.5f}"
    )


@dataclass
class Costs:
    """Seconds of some changes, one by one.

    Parameters
    ----------
    add, drop
        From the call to its end.
    processor
        Processor time of adding, of the whole process.
    at_proxy
        From the call until a proxy has the whole demand with it.
    """

    add: list[float] = field(default_factory=list)
    drop: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    at_proxy: list[float] = field(default_factory=list)


class Heartbeat:
    """Looks at the clock every millisecond.

    Attributes
    ----------
    gaps
        How much longer than that each took, in seconds, without what the listening proxy did meanwhile.
    computed
        Processor time of the process in each of them, likewise.
    at_proxy
        How long that took each time.
    """

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.computed: list[float] = []
        self.at_proxy: list[float] = []
        self._not_the_cluster = self._not_computed = 0.0

    @contextlib.contextmanager
    def proxy_works(self) -> Iterator[None]:
        """Count what is done inside as the proxy's, which has a process of its own elsewhere."""
        began, processor = time.perf_counter(), time.process_time()
        yield
        self.at_proxy.append(time.perf_counter() - began)
        self._not_the_cluster += self.at_proxy[-1]
        self._not_computed += time.process_time() - processor

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            began, processor = time.perf_counter(), time.process_time()
            self._not_the_cluster = self._not_computed = 0.0
            await asyncio.sleep(0.001)
            self.gaps.append(time.perf_counter() - began - 0.001 - self._not_the_cluster)
            self.computed.append(time.process_time() - processor - self._not_computed)


class Bench:
    """The service of queries over one folder and one broker, with a listening proxy."""

    def __init__(self, folder: Path, broker: BrokerAddress) -> None:
        registry = Registry(folder / "registry.sqlite", PlanFiles(folder / "plans"), max_queries=100_000)
        self.registry = registry
        self.assembly = DemandAssembly(STREAM.name)
        self._received: asyncio.Queue[Message] = asyncio.Queue()
        self.demanded: frozenset[str] = frozenset()
        names = ReservedNames(RelationStore(registry.relations, folder / "relations"))
        self.link = MqttLink(broker, client_id="adding-cluster")
        self.ingest = Ingest(
            folder / "streams", quarantine=registry.quarantine.keep, link=self.link, reserved_for=names.reserved_for
        )
        self.heartbeat = Heartbeat()
        self.queries = QueryService(
            "cluster", registry, self.ingest, self.link, names,
            max_state_bytes=2**60, put_aside=LongLived().put_aside,
        )  # fmt: skip
        read = Subscription(topics.demand(STREAM.name)), Subscription(topics.demand_piece(STREAM.name, "+"))
        self._proxy = MqttLink(broker, client_id="adding-proxy", subscriptions=read)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect, and offer the stream."""
        tasks = [asyncio.create_task(self.link.run(_ignore)), asyncio.create_task(self._proxy.run(self._receive))]
        for link in (self.link, self._proxy):
            await link.connected.wait()
        offer = Message(topics.stream_offer("p", STREAM.name), encode(StreamOffer(VERSION, "p", STREAM)))
        self.ingest.handle(offer, topics.parse(offer.topic))
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.registry.close()

    async def measure(self, first: int) -> Costs:
        """Add queries of these numbers one by one, then drop them."""
        costs = Costs()
        names = {number: f"q{number}" for number in range(first, first + MEASURED)}
        for number, name in names.items():
            processor, began = time.process_time(), time.perf_counter()
            await self.queries.add(query_text(number), name)
            costs.add.append(time.perf_counter() - began)
            costs.processor.append(time.process_time() - processor)
            await self._demanded(name)
            costs.at_proxy.append(time.perf_counter() - began)
        for name in names.values():
            began = time.perf_counter()
            await self.queries.drop(name)
            costs.drop.append(time.perf_counter() - began)
        return costs

    async def _demanded(self, name: str) -> None:
        """Let the proxy read what has come, and more, until it has the demand of a query."""
        async with asyncio.timeout(60):
            while name not in self.demanded:
                message = await self._received.get()
                with self.heartbeat.proxy_works():
                    self._apply(message)

    def _apply(self, message: Message) -> None:
        topic = topics.parse(message.topic)
        if topic.kind == "demand":
            found = self.assembly.receive_head(message.payload, 0)
        else:
            found = self.assembly.receive_piece(int(topic.names[1]), message.payload)
        if found is not None:
            self.demanded = frozenset([each.query for each in found.demand.demands[-MEASURED:]])

    async def _receive(self, message: Message) -> None:
        # Read later: it would not be in the cluster's process.
        self._received.put_nowait(message)


def main(
    *,
    quick: Annotated[bool, typer.Option(help=f"{QUICK:,} queries in place of 10,000: under a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    queries: Annotated[int, typer.Option(help="How many run when adding is measured again.")] = 10_000,
) -> None:
    """Measure and report."""
    configure_logging("error")
    many = QUICK if quick else queries
    with tempfile.TemporaryDirectory(prefix="fjord-adding-") as folder, Children(Path(folder) / "logs") as children:
        parts = Parts.on_free_ports(children, Path(folder))
        parts.start_broker()
        report = asyncio.run(compare(Path(folder), parts.broker, many))
    write_report(report, "adding", as_json=as_json)


async def compare(folder: Path, broker: BrokerAddress, many: int) -> dict[str, Any]:
    """Return the figures."""
    bench = Bench(folder / "cluster", broker)
    async with bench.running():
        await bench.queries.add_many([(f"q{number}", query_text(number)) for number in range(FEW)])
        await bench.measure(many + 1_000)  # the first of each kind imports and compiles
        few, few_beats = await _measured(bench, many + 2_000)
        began = time.perf_counter()
        rest = [(f"q{number}", query_text(number)) for number in range(FEW, many)]
        bulk_beats = Heartbeat()
        beating = asyncio.create_task(bulk_beats.run())
        await bench.queries.add_many(rest)
        bulk = time.perf_counter() - began
        beating.cancel()
        # The indices of a plan are made with the first query after it was made whole.
        await bench.measure(many + 3_000)
        several, beats = await _measured(bench, many + 4_000)
        return {
            "queries": many,
            "add_10000_over_10": _over(several.add, few.add),
            "processor_10000_over_10": _over(several.processor, few.processor),
            "drop_10000_over_10": _over(several.drop, few.drop),
            "at_proxy_10000_over_10": _over(several.at_proxy, few.at_proxy),
            "add_stall_ms": round(1e3 * max(map(min, beats.gaps, beats.computed)), 1),
            "loop_stall_ms": round(1e3 * max(beats.gaps), 1),
            "loop_stall_p99_ms": round(1e3 * statistics.quantiles(beats.gaps, n=100)[-1], 1),
            "loop_stall_with_10_ms": round(1e3 * max(few_beats.gaps), 1),
            "bulk_stall_ms": round(1e3 * max(bulk_beats.gaps), 1),
            "bulk_computed_ms": round(1e3 * max(map(min, bulk_beats.gaps, bulk_beats.computed)), 1),
            "proxy_stall_ms": round(1e3 * max(beats.at_proxy), 1),
            "add_ms": _spread(several.add),
            "add_with_10_ms": _spread(few.add),
            "drop_ms": _spread(several.drop),
            "drop_with_10_ms": _spread(few.drop),
            "at_proxy_ms": _spread(several.at_proxy),
            "at_proxy_with_10_ms": _spread(few.at_proxy),
            "bulk_seconds": round(bulk, 1),
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
        }


async def _measured(bench: Bench, first: int) -> tuple[Costs, Heartbeat]:
    heartbeat = bench.heartbeat = Heartbeat()
    beating = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0.1)
    for kept in (heartbeat.gaps, heartbeat.computed):
        kept.clear()
    heartbeat.at_proxy.clear()
    costs = await bench.measure(first)
    beating.cancel()
    return costs, heartbeat


def _over(several: list[float], few: list[float]) -> float:
    return round(statistics.median(several) / statistics.median(few), 3)


def _spread(seconds: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(seconds, n=4)
    return {"median": round(1e3 * median, 2), "p25": round(1e3 * low, 2), "p75": round(1e3 * high, 2)}


async def _ignore(_: Message) -> None:
    """The link of the cluster receives nothing here."""


if __name__ == "__main__":
    typer.run(main)
