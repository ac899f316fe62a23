"""What a proxy does for each packet under a mixture of queries, over what it does for one query.

Starts broker, proxy and motes that sample once a second, as separate processes. There is no cluster: this process
publishes the demands that a cluster would, first that of one query, then those of the mixture one by one, and
acknowledges the proxy's batches. Choosing the motes' programs is part of the proxy's processor time.

    python benchmarks/mixture_proxy.py [--quick] [--json] [--motes 300] [--queries 100] [--seconds 60]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from msgspec.structs import replace
from reports import write_report

from cluster.demo.parts import Child, Children, Parts, accepts, free_port
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import with_query
from cluster.physical.nodes import NOTHING
from cluster.plan.epoch import PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.sizing.loads import EVERY_SAMPLE, mixture
from firmware_sim.phenomena.traffic import TRAFFIC
from protocols.event_log import configure_logging
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Ack, decode_batch
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION, encode

PROXY = "roadside"
CLUSTER = "mixture"
READY_SECONDS = 60.0
SETTLE_SECONDS = 6.0
"""Not measured: motes get their programs in their next listen windows."""
STEP_SECONDS = 2.0
"""Between two looks at the proxy's counters."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a proxy has done when it was looked at: packets received, and seconds of processor time."""

    at: float
    packets: int
    processor_s: float

    def us_per_packet(self, before: Look) -> float:
        """Return the processor time for each packet since an earlier look."""
        return (self.processor_s - before.processor_s) * 1e6 / max(1, self.packets - before.packets)


@dataclass(slots=True)
class Watched:
    """A running proxy.

    Parameters
    ----------
    process
        Its process.
    metrics_port
        Where its counters are.
    """

    process: psutil.Process
    metrics_port: int
    looks: list[Look] = field(default_factory=list)

    def look(self) -> Look:
        """Return what it has done until now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5.0) as answer:
            text: str = answer.read().decode()
        (packets,) = (line.split()[1] for line in text.splitlines() if line.startswith("fjord_proxy_packets_total "))
        times = self.process.cpu_times()
        self.looks.append(Look(time.monotonic(), round(float(packets)), times.user + times.system))
        return self.looks[-1]


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="measure within a minute")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--motes", type=int, default=300)
    arguments.add_argument("--queries", type=int, default=100)
    arguments.add_argument("--seconds", type=float, default=60.0, help="for one query, and for the mixture")
    options = arguments.parse_args()
    if options.quick:
        options.seconds = 16.0
    configure_logging("warning")
    with (
        tempfile.TemporaryDirectory(prefix="fjord-mixture-proxy-") as folder,
        Children(Path(folder) / "logs") as children,
    ):
        measured = measure(children, Path(folder), options.motes, options.queries, options.seconds)
        looks, report = asyncio.run(measured)
    write_report(report, "mixture_proxy", lambda path: plot(looks, path), as_json=options.json)


async def measure(
    children: Children, folder: Path, motes: int, queries: int, seconds: float
) -> tuple[dict[str, list[Look]], dict[str, Any]]:
    """Run it all; return what was seen of the proxy with one query and with the mixture, and the report."""
    parts, metrics_port = Parts.on_free_ports(children, folder), free_port()
    await asyncio.to_thread(parts.start_broker)
    proxy = parts.start_proxy(PROXY, "--metrics-port", str(metrics_port))
    ready = partial(accepts, BrokerAddress(port=metrics_port))
    await asyncio.to_thread(children.wait_until, ready, proxy, seconds=READY_SECONDS)
    watched = Watched(psutil.Process(proxy.process.pid), metrics_port)
    link, acknowledging = acknowledger(parts)
    running = asyncio.create_task(link.run(acknowledging))
    await link.connected.wait()
    one, demands = demands_of([EVERY_SAMPLE], "one"), demands_of(mixture(queries), "mixed")
    await publish(link, 1, one)
    parts.start_motes(PROXY, "--motes", str(motes))
    await packets_at_rate(children, proxy, watched, motes)
    await asyncio.sleep(SETTLE_SECONDS)
    watched.looks.clear()
    alone = await looked(children, watched, seconds)
    began = watched.look()
    pause = min(0.2, seconds / 4 / queries)
    for number in range(1, queries + 1):
        await publish(link, 1 + number, demands[:number])
        await asyncio.sleep(pause)
    added = watched.look()
    rest = await looked(children, watched, seconds - (added.at - began.at))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    mixed = [began, added, *rest]
    return {"one query": alone, "mixture": mixed}, {
        **described(alone, mixed),
        "motes": motes,
        "queries": queries,
        "seconds": seconds,
    }


def described(alone: Sequence[Look], mixed: Sequence[Look]) -> dict[str, float]:
    """Return the figures: the whole of the mixture, and apart while queries are added and in steady state."""
    one = alone[-1].us_per_packet(alone[0])
    began, added, settled, *_ = mixed
    steady = [after.us_per_packet(before) for before, after in steps(mixed[2:])]
    alone_steps = [after.us_per_packet(before) for before, after in steps(alone)]
    return {
        "mixture_proxy_ratio": round(mixed[-1].us_per_packet(began) / one, 2),
        "mixture_proxy_adding_ratio": round(settled.us_per_packet(began) / one, 2),
        "mixture_proxy_steady_ratio": round(mixed[-1].us_per_packet(settled) / one, 2),
        "mixture_proxy_adding_processor_s": round(settled.processor_s - began.processor_s, 2),
        "one_query_us_per_packet": round(one, 1),
        "one_query_us_per_packet_spread": round(max(alone_steps) - min(alone_steps), 1),
        "mixture_us_per_packet_steady": round(statistics.median(steady), 1),
        "mixture_us_per_packet_steady_spread": round(max(steady) - min(steady), 1),
        "one_query_packets_per_s": round((alone[-1].packets - alone[0].packets) / (alone[-1].at - alone[0].at)),
        "mixture_packets_per_s": round((mixed[-1].packets - settled.packets) / (mixed[-1].at - settled.at)),
        "adding_s": round(added.at - began.at, 1),
    }


def steps(looks: Sequence[Look]) -> list[tuple[Look, Look]]:
    """Return each look with the one before."""
    return list(pairwise(looks))


async def looked(children: Children, watched: Watched, seconds: float) -> list[Look]:
    """Look at the proxy again and again for so long, at least twice."""
    found = [watched.look()]
    until = found[0].at + seconds
    while len(found) < 2 or time.monotonic() < until:  # noqa: PLR2004 - a beginning and an end
        await asyncio.sleep(STEP_SECONDS)
        children.check()
        found.append(watched.look())
    return found


async def packets_at_rate(children: Children, proxy: Child, watched: Watched, motes: int) -> None:
    """Wait until the proxy gets nearly a packet a second from each mote."""
    deadline = time.monotonic() + READY_SECONDS
    await asyncio.sleep(STEP_SECONDS)
    before = watched.look()
    while True:
        await asyncio.sleep(STEP_SECONDS)
        children.check()
        now = watched.look()
        if now.packets - before.packets > 0.9 * motes * (now.at - before.at):
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{proxy.name} does not get a packet a second from each mote; see {proxy.log}")
        before = now


def demands_of(queries: Sequence[str], prefix: str) -> list[QueryDemand]:
    """Return the demands that a cluster derives of queries."""
    catalog, plan, found = Catalog.of([TRAFFIC]), NOTHING, []
    for number, text in enumerate(queries):
        node = rewrite(translate(text, catalog).node).node
        plan = with_query(plan, PlannedQuery(f"{prefix}{number}", number + 1, node))
        subscriber = plan.subscribers[f"{prefix}{number}@{number + 1}"]
        found += [
            replace(each, query=f"{prefix}{number}") for _, each_s in subscriber.demands.streams for each in each_s
        ]
    return found


async def publish(link: MqttLink, epoch: int, demands: Sequence[QueryDemand]) -> None:
    """Publish the demand on the stream, as a cluster does."""
    demand = StreamDemand(VERSION, CLUSTER, TRAFFIC.name, epoch, tuple(demands))
    await link.publish(Message(topics.demand(TRAFFIC.name), encode(demand), retain=True))


def acknowledger(parts: Parts) -> tuple[MqttLink, Any]:
    """Return a link, and what to do with the proxy's batches: each is acknowledged, as by a cluster."""
    through: dict[str, int] = {}

    async def receive(message: Message) -> None:
        batch = decode_batch(message.payload)
        if batch.sequence == through.get(batch.stream, 0) + 1:
            through[batch.stream] = batch.sequence
        ack = Ack(VERSION, PROXY, batch.epoch, batch.stream, through.get(batch.stream, 0))
        await link.publish(Message(topics.acks(PROXY), encode(ack)))

    link = MqttLink(parts.broker, client_id="mixture-proxy", subscriptions=[Subscription(topics.batches(PROXY))])
    return link, receive


def plot(looks: dict[str, list[Look]], path: Path) -> None:
    """Draw the processor time for each packet over time."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(8, 4))
    began = min(found[0].at for found in looks.values())
    for name, found in looks.items():
        axes.plot(
            [after.at - began for _, after in steps(found)],
            [after.us_per_packet(before) for before, after in steps(found)],
            marker="o",
            label=name,
        )
    axes.set(xlabel="seconds", ylabel="processor time of the proxy for each packet (µs)", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
