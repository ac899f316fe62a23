"""A cluster under steady load for an hour: whether memory stays flat, answers keep up, and nothing is lost or doubled.

Starts broker, proxy and cluster with Spark as separate processes, adds queries of all kinds, lets motes sample in real
time, and subscribes to all results. Every few seconds it records resident memory of each part, disk, lag, rows in and
out. At the end it compares the answers with those that DuckDB computes from the samples.

Another fleet, here of a thousand motes that send each sample when they take it, four a second:

    python benchmarks/endurance.py --minutes 10 --motes 1000 --hertz 4 --samples-a-packet 1

    python benchmarks/endurance.py [--quick] [--json] [--minutes 60] [--motes 100] [--hertz 20] [--samples-a-packet 10]
                                   [--queries 100] [--folder .]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from endurance_motes import Fleet, Motes
from endurance_queries import LONGEST_WINDOW_SECONDS, PLACES, Answer, Query, expected, queries
from endurance_watch import MEMORY_OF, Watch

from cluster.demo.parts import Children, Parts, free_port
from cluster.service.client.api_client import ApiClient
from protocols.event_log import configure_logging
from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.wire import topics

RESULTS = Path(__file__).parent / "results"
PROXY = "roadside"
STREAM = (
    "CREATE STREAM traffic (sensor TEXT FIXED, segment INTEGER FIXED, lane INTEGER, speed REAL, flow INTEGER) "
    f"SOURCE mqtt('{PROXY}')"
)
LOOKS = 720
"""Records of the parts in a whole run, at most; not more often than every two seconds."""
DISK_EVERY = 5
LAST_ROWS_SECONDS = 60.0
"""After this long without a row, the run ends."""
MORE_ROWS_SECONDS = 1.0
"""How long to wait, once all answers are there, for rows that should not come."""
SETTLED, LAST = (0.25, 0.35), (0.9, 1.0)
"""Parts of the run whose medians are compared."""
QUICK_SECONDS, QUICK_QUERIES = 10.0, 30


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="ten seconds, 30 queries: within a minute")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--motes", type=int, default=100)
    arguments.add_argument("--hertz", type=float, default=20.0, help="samples of each in a second")
    arguments.add_argument("--samples-a-packet", type=int, default=10)
    arguments.add_argument("--queries", type=int, default=100)
    arguments.add_argument("--folder", type=Path, default=None, help="for the parts' data; else a temporary one")
    options = arguments.parse_args()
    seconds, count = options.minutes * 60, options.queries
    if options.quick:
        seconds, count = QUICK_SECONDS, min(count, QUICK_QUERIES)
    configure_logging("error")
    asked = queries(count)
    fleet = Fleet(options.motes, round(1e6 / options.hertz), options.samples_a_packet)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fjord-endurance-", dir=options.folder)))
        children = stack.enter_context(Children(folder / "logs"))
        try:
            run = asyncio.run(Run.of(children, folder, asked, fleet, quiet=options.json).run(seconds))
        finally:
            RESULTS.mkdir(exist_ok=True)
            shutil.copytree(folder / "logs", RESULTS / "endurance-logs", dirs_exist_ok=True)
    report = run.report(seconds)
    (RESULTS / "endurance.json").write_text(json.dumps(report | {"looks": run.looks}, indent=2) + "\n")
    plot(run.looks, RESULTS / "endurance.png")
    if options.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:36} {value}")
        print(f"written: {RESULTS / 'endurance.json'}, {RESULTS / 'endurance.png'}")
    if not report["answers_right"]:
        sys.exit("what was answered is not what was sampled")


@dataclass
class Received:
    """What a subscriber has received.

    Parameters
    ----------
    answers
        By query.
    last
        By query, the number of its newest row.
    """

    answers: dict[str, Answer]
    last: dict[str, int]
    rows: int = 0
    repeated: int = 0
    missing: int = 0
    lags: list[float] = field(default_factory=list)
    """Rows of queries without a window since the last record: seconds from the sample to the row."""
    all_lags: list[float] = field(default_factory=list)
    """Those before."""

    @classmethod
    def of(cls, asked: Sequence[Query]) -> Received:
        """Expect the rows of these queries."""
        return cls({query.name: Answer() for query in asked}, {query.name: 0 for query in asked})

    async def take(self, message: Message) -> None:
        """Take a row."""
        row: dict[str, Any] = json.loads(message.payload)
        query, number = row["query"], row["sequence"]
        if number <= self.last[query]:
            self.repeated += 1
            return
        self.missing += number - self.last[query] - 1
        self.last[query] = number
        self.rows += 1
        start_us, end_us = microseconds(row["start"]), microseconds(row["end"])
        self.answers[query].add(
            end_us - start_us, sum(each for each in row["row"].values() if not isinstance(each, str))
        )
        if end_us - start_us == 1:
            self.lags.append(time.time() - start_us / 1e6)

    def take_lags(self) -> list[float]:
        """Take the lags since the last time, in order."""
        found, self.lags = sorted(self.lags), []
        self.all_lags += found
        return found


def microseconds(instant: str) -> int:
    """Return microseconds since 1970."""
    at = datetime.fromisoformat(instant)
    return round(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond


@dataclass
class Run:
    """One run.

    Parameters
    ----------
    parts
        The processes.
    asked
        The queries.
    motes
        The motes.
    received
        The results.
    quiet
        Whether to print no progress.
    """

    parts: Parts
    asked: list[Query]
    motes: Motes
    received: Received
    quiet: bool
    looks: list[dict[str, Any]] = field(default_factory=list)
    wanted: dict[str, Answer] = field(default_factory=dict)
    ends: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, children: Children, folder: Path, asked: list[Query], fleet: Fleet, *, quiet: bool) -> Run:
        """Choose ports; nothing is started yet."""
        parts = Parts.on_free_ports(children, folder)
        control = Subscription(topics.control(PROXY, "+"), qos=0)
        link = MqttLink(parts.broker, client_id="fjord-endurance-motes", subscriptions=[control])
        return cls(parts, asked, Motes(link, PROXY, fleet), Received.of(asked), quiet)

    async def run(self, seconds: float) -> Run:
        """Start all parts, sample for so long, and wait for all answers."""
        began = time.monotonic()
        children, port = {"broker": await asyncio.to_thread(self.parts.start_broker)}, free_port()
        children["cluster"] = await asyncio.to_thread(
            self.parts.start_cluster, "--relation-folder", str(self.parts.folder)
        )
        self._say("the cluster is ready")
        results = [Subscription(topics.results(query.name)) for query in self.asked]
        link = MqttLink(self.parts.broker, client_id="fjord-endurance-results", subscriptions=results)
        with ApiClient(self.parts.api_address) as api:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(link.run(self.received.take)),
                    tasks.create_task(self.motes.link.run(self.motes.receive)),
                ]
                await asyncio.to_thread(self._add_queries, api)
                arguments = (
                    "--metrics-port",
                    str(port),
                    "--samples-per-packet",
                    str(self.motes.fleet.samples_a_packet),
                )
                children["proxy"] = self.parts.start_proxy(PROXY, *arguments)
                await link.connected.wait()
                await self.motes.link.connected.wait()
                self._say(f"{len(self.asked)} queries are added")
                await asyncio.wait_for(self.motes.begin(), 60.0)
                self.ends["until_sampling_s"] = round(time.monotonic() - began, 1)
                self._say(f"{self.motes.fleet.count:,} motes begin to sample")
                watch = Watch(children, self.parts.folder, api, port)
                looking = tasks.create_task(self._look(watch, seconds))
                await self.motes.sample(seconds)
                looking.cancel()
                ended = time.monotonic()
                await self.motes.end(2 * LONGEST_WINDOW_SECONDS)
                self.wanted = await asyncio.to_thread(expected, self.asked, self.motes)
                await self._wait_for_rows()
                self.ends["until_all_answered_s"] = round(time.monotonic() - ended, 1)
                await asyncio.sleep(MORE_ROWS_SECONDS)
                self.ends["status"] = await asyncio.to_thread(api.status)
                for task in running:
                    task.cancel()
        return self

    def _add_queries(self, api: ApiClient) -> None:
        places = self.parts.folder / "places.csv"
        places.write_text(PLACES, encoding="utf-8")
        declared = "(segment INTEGER, road INTEGER, toll INTEGER)"
        api.declare_relation(f"CREATE RELATION places {declared} FROM '{places}' REFRESH EVERY 1 MINUTE")
        api.declare(STREAM)
        for query in self.asked:
            api.add(f"{query.sql} EMIT FINAL", query.name)

    async def _look(self, watch: Watch, seconds: float) -> None:
        every = max(2.0, seconds / LOOKS)
        while True:
            began, before = time.monotonic(), self.received.rows
            await asyncio.sleep(every)
            found = await asyncio.to_thread(watch.look, disk=len(self.looks) % DISK_EVERY == 0)
            lags = self.received.take_lags()
            found["rows_sent"], found["rows_received"] = self.motes.sent, self.received.rows
            found["rows_out_per_s"] = round((self.received.rows - before) / (time.monotonic() - began))
            found["motes_late_s"] = round(self.motes.late_seconds, 2)
            if lags:
                found["lag_s"], found["lag_max_s"] = round(statistics.median(lags), 3), round(lags[-1], 3)
            self.looks.append(found)
            self.parts.children.check()
            if len(self.looks) % max(1, round(30 / every)) == 1:
                shown = ("rows_sent", "rows_received", "lag_s", *(f"{name}_mib" for name in MEMORY_OF))
                self._say(f"{found['at_s']:.0f} s: " + ", ".join(f"{name} {found.get(name)}" for name in shown))

    async def _wait_for_rows(self) -> None:
        """Wait until all answers are there, or no more rows come."""
        rows, since = self.received.rows, time.monotonic()
        while self._wrong() and time.monotonic() < since + LAST_ROWS_SECONDS:
            await asyncio.sleep(0.2)
            if self.received.rows != rows:
                rows, since = self.received.rows, time.monotonic()

    def _wrong(self) -> list[str]:
        answers = self.received.answers
        return [name for name, wanted in self.wanted.items() if not answers[name].agrees_with(wanted)]

    def report(self, seconds: float) -> dict[str, Any]:
        """Return the figures."""
        wrong = self._wrong()
        for name in wrong[:5]:
            text = f"{name}: answered {self.received.answers[name]}, expected {self.wanted[name]}"
            print(text, next(query.sql for query in self.asked if query.name == name), file=sys.stderr)
        status = self.ends["status"]
        found: dict[str, Any] = {
            "minutes": round(seconds / 60, 2),
            "queries": len(self.asked),
            "tuples_sent": self.motes.sent,
            "tuples_per_s": round(self.motes.sent / seconds),
            "tuples_stored": status["rows_stored"],
            "tuples_late": status["rows_late"],
            "rows_received": self.received.rows,
            "rows_repeated": self.received.repeated,
            "rows_missing": self.received.missing,
            **_quantiles(self.received.all_lags),
            "answers_right": not wrong,
            "queries_wrong": len(wrong),
            "fjord_restarts": status["fjord"]["starts"] - 1,
            "until_sampling_s": self.ends["until_sampling_s"],
            "until_all_answered_s": self.ends["until_all_answered_s"],
        }
        for name in ("lag_s", "lag_max_s", "spool_batches", "stateless_ms", "stateful_ms"):
            found |= {f"{name}_settled": self._median(name, SETTLED), f"{name}_last": self._median(name, LAST)}
        for name in MEMORY_OF:
            settled, last = (self._median(f"{name}_mib", part) for part in (SETTLED, LAST))
            found |= {f"{name}_mib_settled": settled, f"{name}_mib_last": last}
            found[f"{name}_last_over_settled"] = round(last / settled, 3) if settled and last else None
        settled, last = (self._total(part) for part in (SETTLED, LAST))
        found["memory_last_over_settled"] = round(last / settled, 3) if settled else None
        found["cores_used"] = self._cores()
        disk = [look for look in self.looks if "total_disk_mib" in look]
        found |= {name: value for name, value in (disk[-1] if disk else {}).items() if name.endswith("_disk_mib")}
        return found

    def _part(self, part: tuple[float, float]) -> list[dict[str, Any]]:
        count = len(self.looks)
        return self.looks[int(part[0] * count) : max(int(part[0] * count) + 1, round(part[1] * count))]

    def _median(self, name: str, part: tuple[float, float]) -> float | None:
        found = [look[name] for look in self._part(part) if name in look]
        return round(statistics.median(found), 3) if found else None

    def _total(self, part: tuple[float, float]) -> float:
        return statistics.median([sum(look[f"{name}_mib"] for name in MEMORY_OF) for look in self._part(part)] or [0.0])

    def _cores(self) -> float | None:
        """Return how many processors the parts have used, after the first quarter."""
        used = [(look["at_s"], sum(look[f"{name}_cpu_s"] for name in MEMORY_OF)) for look in self._part((0.25, 1.0))]
        return round((used[-1][1] - used[0][1]) / (used[-1][0] - used[0][0]), 2) if len(used) > 1 else None

    def _say(self, text: str) -> None:
        if not self.quiet:
            print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _quantiles(lags: Sequence[float]) -> dict[str, float]:
    """Return how long rows took from the sample, of the whole run."""
    if not lags:
        return {}
    ordered = sorted(lags)
    names = {"lag_run_median_s": 0.5, "lag_run_p99_s": 0.99, "lag_run_max_s": 1.0}
    return {name: round(ordered[round(part * (len(ordered) - 1))], 3) for name, part in names.items()}


def plot(looks: list[dict[str, Any]], path: Path) -> None:
    """Draw memory, lag, rows and disk over time."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, ((memory, lag), (rows, disk)) = plt.subplots(2, 2, figsize=(13, 8))

    def draw(axes: Any, name: str, label: str, scale: float = 1.0) -> None:
        points = [(look["at_s"] / 60, look[name] * scale) for look in looks if name in look]
        axes.plot([at for at, _ in points], [value for _, value in points], label=label, linewidth=1)

    for name in MEMORY_OF:
        draw(memory, f"{name}_mib", name)
    memory.set(ylabel="resident memory (MiB)")
    draw(lag, "lag_s", "sample to row, median")
    draw(lag, "lag_max_s", "sample to row, longest")
    for host in ("stateless", "stateful"):
        draw(lag, f"{host}_ms", f"{host} micro-batch", 1e-3)
    lag.set(ylabel="seconds")
    draw(rows, "rows_sent", "tuples sent")
    draw(rows, "rows_stored", "tuples stored")
    draw(rows, "rows_received", "rows received")
    rows.set(ylabel="rows")
    for name in sorted({name for look in looks for name in look if name.endswith("_disk_mib")}):
        draw(disk, name, name.removesuffix("_disk_mib"))
    disk.set(ylabel="disk (MiB)")
    for axes in (memory, lag, rows, disk):
        axes.set(xlabel="minutes", ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
