"""Answered rows a second: from commits of the results table to a subscriber, against bare paho.

In the same run and in turn, with one broker, one subscriber that checks numbers, quality of service 1, one process
each and as many messages in flight,

* publisher: a process commits rows, ten times a second, ever more until publication lags behind; the highest rate
  that it keeps up with counts;
* paho: publishes the same messages, which are ready in its memory, as fast as it can.

    python benchmarks/publisher.py [--quick] [--json] [--rounds 5] [--seconds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from publisher_parts import QUERIES, Counts, commit_rows, publish_with_paho, receive
from reports import write_report

from cluster.service.publishing.publisher_channel import Orders
from cluster.service.publishing.supervised_publishers import MODULE, ProgressOfAll, SupervisedPublishers
from cluster.storage.synced_files import Troubles
from protocols.event_log import configure_logging
from protocols.mqtt.link import BrokerAddress
from protocols.mqtt.publishing import MOST_IN_FLIGHT
from proxy.broker import running_broker

FIRST_RATE, FASTER = 12_000, 1.3
"""Rows a second in the first step of a round, and how much faster each step is than the one before."""
LAGGING = 0.1
"""Publication lags if more than this part of a step's rows are left at its end."""
REPORTED_LATE_SECONDS = 0.2
"""A publisher reports ten times a second, and commits are as frequent."""
LIMIT_SECONDS = 60.0
PAHO_ROWS = 40_000
context = multiprocessing.get_context("spawn")


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="two rounds of short steps: within a minute")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=3.0, help="of a step")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.seconds = 2, 1.5
    configure_logging("error")
    with tempfile.TemporaryDirectory(prefix="fjord-publisher-") as folder:
        measured = asyncio.run(measure(Path(folder), options.rounds, options.seconds))
    report = describe(measured)
    write_report(report, "publisher", lambda path: plot(measured, path), as_json=options.json)


@dataclass
class Measured:
    """What was measured, by round."""

    published: list[float] = field(default_factory=list)
    """The highest rates, in rows a second, that publication kept up with."""
    paho: list[float] = field(default_factory=list)
    publisher_us: list[float] = field(default_factory=list)
    paho_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)
    """Rows committed a second, and seconds until the rest was published after a step."""
    rows: int = 0
    missing: int = 0
    memory_bytes: int = 0


async def measure(folder: Path, rounds: int, seconds: float) -> Measured:
    """Let the publisher and paho take turns."""
    counts = Counts(context.Value("q", 0), context.Value("q", 0), context.Value("q", 0))
    measured = Measured()
    async with running_broker(engine="mosquitto") as broker:
        with ExitStack() as stack:
            subscriber = start(stack, receive, broker.port, counts)
            committer = start(stack, commit_rows, str(folder), counts)
            await asyncio.to_thread(subscriber.recv)
            await asyncio.to_thread(committer.recv)
            orders = Orders(str(folder), BrokerAddress(port=broker.port), "publisher", 15.0, "error")
            publisher = SupervisedPublishers(
                orders, ProgressOfAll(folder), newest=lambda: counts.newest.value, troubles=Troubles()
            )
            running = asyncio.create_task(publisher.run())
            informing = asyncio.create_task(inform(publisher, counts))
            while not publisher.connected:  # noqa: ASYNC110 - another process connects
                await asyncio.sleep(0.05)
            for _ in range(rounds):
                await measure_publisher(publisher, committer, counts, seconds, measured)
                rate, processor_us = await asyncio.to_thread(run_paho, stack, broker.port, counts)
                measured.paho.append(rate)
                measured.paho_us.append(processor_us)
            measured.memory_bytes = publisher_process().memory_full_info().uss
            measured.missing = counts.missing.value
            for task in (informing, running):
                task.cancel()
            await asyncio.gather(informing, running, return_exceptions=True)
    return measured


async def inform(publisher: SupervisedPublishers, counts: Counts) -> None:
    """Wake the publisher at each commit, as a cluster does."""
    notify, newest = publisher.notify_from(asyncio.get_running_loop()), -1
    while True:
        if counts.newest.value != newest:
            newest = counts.newest.value
            notify()
        await asyncio.sleep(0.002)


async def measure_publisher(
    publisher: SupervisedPublishers, committer: Connection, counts: Counts, seconds: float, measured: Measured
) -> None:
    """Commit ever faster until publication lags; note the highest rate that it kept up with."""
    rate, best = float(FIRST_RATE), 0.0
    process, broker = publisher_process(), broker_process()
    before, broker_before, first = used_us(process), used_us(broker), publisher.published_rows
    while True:
        done, received, began = publisher.published_rows, counts.taken.value, time.monotonic()
        committer.send((rate, seconds))
        committed = await asyncio.to_thread(committer.recv)
        took = time.monotonic() - began
        left = committed - (publisher.published_rows - done)
        await until(lambda: publisher.published_rows >= done + committed, "rows are not published")  # noqa: B023
        await until(lambda: counts.taken.value >= received + committed, "rows do not arrive")  # noqa: B023
        measured.steps.append((committed / took, time.monotonic() - began - took))
        if left > LAGGING * committed + committed / took * REPORTED_LATE_SECONDS:
            break
        best = committed / took
        if best < rate / FASTER:  # more cannot be committed on this machine
            break
        rate *= FASTER
    rows = publisher.published_rows - first
    measured.rows += rows
    measured.published.append(best)
    measured.publisher_us.append((used_us(process) - before) / rows)
    measured.broker_us.append((used_us(broker) - broker_before) / rows)


def run_paho(stack: ExitStack, port: int, counts: Counts) -> tuple[float, float]:
    """Let paho publish; return rows a second, and microseconds of processor time a row."""
    before = counts.taken.value
    rate, processor_us = start(stack, publish_with_paho, port, PAHO_ROWS).recv()
    deadline = time.monotonic() + LIMIT_SECONDS
    while counts.taken.value < before + PAHO_ROWS:
        if time.monotonic() > deadline:
            raise TimeoutError("rows of paho do not arrive")
        time.sleep(0.01)
    return rate, processor_us


def start(stack: ExitStack, run: Any, *arguments: object) -> Connection:
    """Start a process that ends with `stack`; return a connection to it."""
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(*arguments, theirs), daemon=True)
    process.start()
    stack.callback(process.join, LIMIT_SECONDS)
    stack.callback(process.terminate)
    return ours


async def until(reached: Any, problem: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        await asyncio.sleep(0.01)


def publisher_process() -> psutil.Process:
    """Return the publisher's process."""
    return next(each for each in psutil.Process().children(recursive=True) if MODULE in each.cmdline())


def broker_process() -> psutil.Process:
    """Return the broker, which this process has started."""
    return next(each for each in psutil.Process().children(recursive=True) if "mosquitto" in each.name())


def used_us(process: psutil.Process) -> float:
    """Return the processor time that a process has used."""
    times = process.cpu_times()
    return (times.user + times.system) * 1e6


def describe(measured: Measured) -> dict[str, Any]:
    """Return the report."""
    ratios = [ours / paho for ours, paho in zip(measured.published, measured.paho, strict=True)]
    return {
        "published_over_bare": round(statistics.median(ratios), 2),
        "published_over_bare_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "published_rows_per_s": round(statistics.median(measured.published)),
        "published_rows_per_s_spread": [round(min(measured.published)), round(max(measured.published))],
        "bare_rows_per_s": round(statistics.median(measured.paho)),
        "bare_rows_per_s_spread": [round(min(measured.paho)), round(max(measured.paho))],
        "publisher_processor_us_per_row": round(statistics.median(measured.publisher_us), 1),
        "bare_processor_us_per_row": round(statistics.median(measured.paho_us), 1),
        "broker_processor_us_per_row": round(statistics.median(measured.broker_us), 1),
        "publisher_memory_mb": round(measured.memory_bytes / 1024**2, 1),
        "missing": measured.missing,
        "rows": measured.rows,
        "in_flight": MOST_IN_FLIGHT,
        "queries": QUERIES,
        "rounds": len(ratios),
    }


def plot(measured: Measured, path: Path) -> None:
    """Draw how long publication goes on after a step, by its rate."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4))
    rates, late = zip(*measured.steps, strict=True)
    axes.scatter(rates, late, label="publisher")
    axes.axvline(statistics.median(measured.paho), color="grey", label="bare paho, at most")
    axes.set(xlabel="rows committed per second", ylabel="seconds until the rest was received", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
