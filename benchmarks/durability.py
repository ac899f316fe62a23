"""What it costs to sync before acknowledging: the same ingest with and without syncing, in turn.

* full: eight proxies on each of four streams keep 32 batches in flight: batches per second;
* sparse: one batch every 50 ms: time until its acknowledgement;
* results: one micro-batch after another, with Spark's log and state: milliseconds until its results are stored.

Commits are as frequent as in a cluster, so batches that arrive during one share the next.

    python benchmarks/durability.py [--quick] [--json] [--rounds 7] [--seconds 4] [--folder .]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import polars as pl
from reports import write_report

from cluster.ingest.writer import StreamWriter
from cluster.spark.checkpoint import CheckpointFiles
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable
from protocols.event_log import configure_logging
from protocols.wire.batches import Ack, Batch, Column, make_columns
from protocols.wire.streams import Field, FieldType, StreamSchema

STREAMS, PROXIES, IN_FLIGHT, ROWS = 4, 8, 32, 100
SPARSE_SECONDS = 0.05
COMMIT_SECONDS = 0.1
STATE_FILES = 4
"""Of a micro-batch, beside its entries in two logs."""
SCHEMA = (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL))


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="three rounds of 1.5 seconds: within a minute")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--seconds", type=float, default=4.0, help="of each measurement in each round")
    arguments.add_argument("--folder", type=Path, default=None, help="on the disk to measure; else a temporary one")
    options = arguments.parse_args()
    if options.quick:
        options.rounds, options.seconds = 3, 1.5
    configure_logging("error")
    contenders = [Contender("unsynced", syncs=False), Contender("synced", syncs=True)]
    with tempfile.TemporaryDirectory(prefix="fjord-durability-", dir=options.folder) as folder:
        for number in range(options.rounds):
            for each in contenders if number % 2 else contenders[::-1]:
                each.measure(Path(folder, f"{each.name}-{number}"), options.seconds)
    report = described(*contenders) | {"rounds": options.rounds, "rows_a_batch": ROWS}
    write_report(report, "durability", lambda path: plot(contenders, path), as_json=options.json)


class Contender:
    """The ingest and the store of results, with or without syncing, and their measurements.

    Parameters
    ----------
    name
        Its name in the report.
    syncs
        Whether it syncs.
    """

    def __init__(self, name: str, *, syncs: bool) -> None:
        self.name = name
        self.syncs = syncs
        self.rates: list[float] = []
        self.full_ms: list[float] = []
        self.sparse_ms: list[float] = []
        self.results_ms: list[float] = []
        self.syncs_a_batch: list[float] = []

    def measure(self, folder: Path, seconds: float) -> None:
        """Measure once, below a folder."""
        with counted_syncs(really=self.syncs) as count:
            load = Load(folder / "full", STREAMS, PROXIES)
            asyncio.run(load.full(seconds))
            self.rates.append(len(load.latencies_ms) / seconds)
            self.full_ms += load.latencies_ms
            self.syncs_a_batch.append(count() / max(1, len(load.latencies_ms)))
            load = Load(folder / "sparse", 1, 1)
            asyncio.run(load.sparse(seconds))
            self.sparse_ms += load.latencies_ms
            self.results_ms += store_results(folder / "results", int(20 * seconds))


@contextlib.contextmanager
def counted_syncs(*, really: bool) -> Iterator[Callable[[], int]]:
    """Count syncs, and carry them out or skip them."""
    sync, done = os.fsync, [0]

    def counting(descriptor: int) -> None:
        done[0] += 1
        if really:
            sync(descriptor)

    with mock.patch.object(os, "fsync", counting):
        yield lambda: done[0]


class Load:
    """Proxies that send, and the writers of their streams.

    Parameters
    ----------
    folder
        Of the tables.
    streams, proxies
        How many streams, and proxies of each.
    """

    def __init__(self, folder: Path, streams: int, proxies: int) -> None:
        self.latencies_ms: list[float] = []
        self._names = [f"p{number}" for number in range(proxies)]
        self._sent_at: dict[tuple[str, str, int], float] = {}
        self._sent: dict[tuple[str, str], int] = {}
        self._acknowledged: dict[tuple[str, str], int] = {}
        self._columns = columns()
        self._freed = asyncio.Event()
        self._writers = [
            StreamWriter(
                StreamTable(str(folder / f"s{number}"), StreamSchema(f"s{number}", SCHEMA)),
                acknowledge=self._note,
                quarantine=lambda *refused: sys.exit(str(refused)),
                commit_interval_seconds=COMMIT_SECONDS,
            )
            for number in range(streams)
        ]

    async def full(self, seconds: float) -> None:
        """Keep as many batches in flight as proxies do."""
        async with self._running(seconds) as until:
            while time.perf_counter() < until:
                self._freed.clear()
                for writer in self._writers:
                    for proxy in self._names:
                        lane = (proxy, writer.stream)
                        while self._sent.get(lane, 0) - self._acknowledged.get(lane, 0) < IN_FLIGHT:
                            await self._send(writer, proxy)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._freed.wait(), 0.5)

    async def sparse(self, seconds: float) -> None:
        """Send one batch after another, with pauses."""
        async with self._running(seconds) as until:
            while time.perf_counter() < until:
                await self._send(self._writers[0], self._names[0])
                await asyncio.sleep(SPARSE_SECONDS)

    @contextlib.asynccontextmanager
    async def _running(self, seconds: float) -> Any:
        tasks = [asyncio.create_task(writer.run()) for writer in self._writers]
        yield time.perf_counter() + seconds
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, writer: StreamWriter, proxy: str) -> None:
        lane = (proxy, writer.stream)
        number = self._sent[lane] = self._sent.get(lane, 0) + 1
        self._sent_at[*lane, number] = time.perf_counter()
        writer.receive(Batch(1, proxy, "e", writer.stream, number, 0, sampling=True, rows=ROWS, columns=self._columns))

    async def _note(self, ack: Ack) -> None:
        lane, now = (ack.proxy, ack.stream), time.perf_counter()
        for number in range(self._acknowledged.get(lane, 0) + 1, ack.through + 1):
            self.latencies_ms.append((now - self._sent_at.pop((*lane, number))) * 1e3)
        self._acknowledged[lane] = ack.through
        self._freed.set()


def columns() -> tuple[Column, ...]:
    """Return the columns of every batch."""
    values = {"sensor": ["a"] * ROWS, "speed": [float(number) for number in range(ROWS)]}
    return make_columns(StreamSchema("s", SCHEMA), list(range(ROWS)), ["m"] * ROWS, [True] * ROWS, values)


def store_results(folder: Path, count: int) -> list[float]:
    """Store the results of so many micro-batches as Spark's queries do; return the milliseconds each took."""
    checkpoint, results = folder / "checkpoint", ResultsTable(str(folder / "results"), "f")
    for log in ("offsets", "commits", *(f"state/{number}" for number in range(STATE_FILES))):
        (checkpoint / log).mkdir(parents=True)
    files, found = CheckpointFiles(checkpoint), []
    rows = pl.DataFrame(
        {"query": ["q"] * 10, "start_us": range(10), "end_us": range(1, 11), "kind": ["row"] * 10, "row": ["{}"] * 10}
    )
    for number in range(count):
        for log in ("offsets", *(f"state/{place}" for place in range(STATE_FILES))):
            (checkpoint / log / str(number)).write_bytes(bytes(1000))
        began = time.perf_counter()
        files.sync()
        results.append(rows, number)
        found.append((time.perf_counter() - began) * 1e3)
        (checkpoint / "commits" / str(number)).write_bytes(bytes(30))
    return found


def described(unsynced: Contender, synced: Contender) -> dict[str, Any]:
    """Return the report."""
    rates = {each.name: statistics.median(each.rates) for each in (unsynced, synced)}
    report: dict[str, Any] = {"rate_synced_over_unsynced": round(rates["synced"] / rates["unsynced"], 2)}
    for each in (unsynced, synced):
        report |= {
            f"{each.name}_batches_per_s": round(rates[each.name]),
            f"{each.name}_full_ack_ms": round(statistics.median(each.full_ms), 1),
            f"{each.name}_sparse_ack_ms": round(statistics.median(each.sparse_ms), 1),
            f"{each.name}_sparse_ack_p95_ms": round(statistics.quantiles(each.sparse_ms, n=20)[-1], 1),
            f"{each.name}_results_ms": round(statistics.median(each.results_ms), 1),
        }
    report["syncs_a_batch"] = round(statistics.median(synced.syncs_a_batch), 3)
    report["sparse_ack_added_ms"] = round(report["synced_sparse_ack_ms"] - report["unsynced_sparse_ack_ms"], 1)
    report["results_added_ms"] = round(report["synced_results_ms"] - report["unsynced_results_ms"], 1)
    return report


def plot(contenders: list[Contender], path: Path) -> None:
    """Draw batches per second by round, and how long acknowledgements and results take."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (rates, waits) = plt.subplots(1, 2, figsize=(11, 4))
    for each in contenders:
        rates.plot(range(1, len(each.rates) + 1), each.rates, marker="o", label=each.name)
    rates.set(xlabel="round", ylabel="batches per second", ylim=(0, None))
    rates.legend()
    names = [f"{kind}\n{each.name}" for kind in ("ack", "results") for each in contenders]
    waits.boxplot(
        [*(each.sparse_ms for each in contenders), *(each.results_ms for each in contenders)], showfliers=False
    )
    waits.set_xticks(range(1, len(names) + 1), names)
    waits.set(ylabel="milliseconds", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
