"""Latency from a sample on a mote to its row on the result topic.

Starts broker, cluster, proxy and motes as separate processes, adds one query that passes every sample on, and
measures, for each row, the time from the sample's instant (motes sample in real time) to its arrival at a subscriber.
All parts and the subscriber share one clock. Beside it run a query over windows, and two alarms with EMIT EARLY, about
one mote each that samples once a second: the last 60 samples, and the highest of the last 60 seconds.

Rows of windows are timed from the end of their window. They may come before it (`window_median_s` is negative then):
the proxy knows from the motes' programs that no mote will take another sample within the window.

    python benchmarks/latency.py [--quick] [--json] [--motes 64] [--seconds 60]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reports import write_report

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.sizing.measuring import quantile
from protocols.event_log import configure_logging
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics

QUERY = "SELECT sensor, speed FROM traffic"
WINDOWED = "SELECT segment, AVG(speed) AS speed FROM traffic WINDOW(RANGE 5 SECONDS SLIDE 1 SECOND) GROUP BY segment"
LAST = "SELECT sensor, speed FROM traffic WINDOW(ROWS 60) WHERE sensor = '{}' EMIT EARLY"
HIGHEST = """
SELECT t.sensor, t.speed FROM traffic AS t WINDOW(RANGE 60 SECONDS) WHERE t.sensor = '{0}'
AND t.speed = (SELECT MAX(m.speed) FROM traffic AS m WINDOW(RANGE 60 SECONDS) WHERE m.sensor = '{0}')
EMIT EARLY
"""
ALARMS = ("last", "highest")
SETTLE_SECONDS = 8.0
"""Not measured: motes get their programs one by one, and Spark compiles its code."""


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="measure for 20 s")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--motes", type=int, default=64)
    arguments.add_argument("--seconds", type=float, default=60.0)
    options = arguments.parse_args()
    seconds = 20.0 if options.quick else options.seconds
    configure_logging("warning")
    with tempfile.TemporaryDirectory(prefix="fjord-latency-") as folder, Children(Path(folder) / "logs") as children:
        parts = Parts.on_free_ports(children, Path(folder))
        parts.start_broker()
        parts.start_cluster()
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--motes", str(options.motes))
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            delays = asyncio.run(measure(parts.broker, api, children, seconds))
    report = describe(delays, options.motes, seconds)
    write_report(report, "latency", lambda path: plot(delays, path), as_json=options.json)


async def measure(
    broker: BrokerAddress, api: ApiClient, children: Children, seconds: float
) -> dict[str, list[tuple[float, float]]]:
    """Return, by query, each row's (arrival, latency) in seconds; measuring begins after a warm-up."""
    delays: dict[str, list[tuple[float, float]]] = {"samples": [], "windows": [], **{name: [] for name in ALARMS}}
    began = time.monotonic() + SETTLE_SECONDS
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def receive(message: Message) -> None:
        arrived = time.time()
        now = time.monotonic()
        row: dict[str, Any] = json.loads(message.payload)
        if row["query"] == "samples" and not first.done():
            first.set_result(row["row"]["sensor"])
        if now < began:
            return
        if "closes" in row:
            return
        delays[row["query"]].append((now - began, arrived - datetime.fromisoformat(row["start"]).timestamp()))

    link = MqttLink(
        broker, client_id="fjord-latency", subscriptions=[Subscription(topics.results(name)) for name in delays]
    )
    receiving = asyncio.create_task(link.run(receive))
    await link.connected.wait()
    await asyncio.to_thread(api.add, QUERY, "samples")
    await asyncio.to_thread(api.add, WINDOWED, "windows")
    mote = await asyncio.wait_for(first, SETTLE_SECONDS * 5)
    for name, text in zip(ALARMS, (LAST, HIGHEST), strict=True):
        await asyncio.to_thread(api.add, text.format(mote), name)
    began = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < began + seconds:
        await asyncio.sleep(0.5)
        children.check()
    receiving.cancel()
    return delays


def describe(delays: dict[str, list[tuple[float, float]]], motes: int, seconds: float) -> dict[str, float | int]:
    """Return the figures. ``median_s`` and ``p99_s`` are those of single samples."""
    samples = sorted(delay for _, delay in delays["samples"])
    windows = sorted(delay for _, delay in delays["windows"])
    alarms = sorted(delay for name in ALARMS for _, delay in delays[name])
    if not samples or not windows or not alarms:
        raise SystemExit("no rows arrived: run it with the parts' logs at hand (see cluster.demo.parts)")
    return {
        "motes": motes,
        "seconds": seconds,
        "rows": len(samples),
        "expected_rows": round(motes * seconds),
        "median_s": round(statistics.median(samples), 3),
        "p90_s": round(quantile(samples, 0.90), 3),
        "p99_s": round(quantile(samples, 0.99), 3),
        "max_s": round(samples[-1], 3),
        "window_rows": len(windows),
        "window_median_s": round(statistics.median(windows), 3),
        "window_p99_s": round(quantile(windows, 0.99), 3),
        "alarm_rows": len(alarms),
        "alarm_median_s": round(statistics.median(alarms), 3),
        "alarm_p99_s": round(quantile(alarms, 0.99), 3),
    }


def plot(delays: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Draw every row's delay over time, and the distribution of the delays."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (over_time, distribution) = plt.subplots(1, 2, figsize=(11, 4))
    for name, rows in delays.items():
        over_time.plot([at for at, _ in rows], [delay for _, delay in rows], ".", markersize=2, label=name)
        ordered = sorted(delay for _, delay in rows)
        distribution.plot(ordered, [(place + 1) / len(ordered) for place in range(len(ordered))], label=name)
    over_time.set(xlabel="seconds", ylabel="sample to row on its topic (s)", ylim=(0, None))
    distribution.set(xlabel="sample to row on its topic (s)", ylabel="share of rows", xlim=(0, None))
    distribution.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
