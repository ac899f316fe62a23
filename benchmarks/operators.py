"""The operators against the same computation by hand, and their memory over a hundred million tuples.

Two queries, from their text, over a million tuples of a thousand keys: a grouped aggregate over a sliding window and an
equi-join of two windowed streams. Fjord gets them in batches, as from a stream, and keeps intervals and watermarks; the
comparison is one Polars expression over all tuples at once, written for just this query. Both answers are compared.

    python benchmarks/operators.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from reports import write_report
from rich.progress import track

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.dataflow import Dataflow, PushQueue
from cluster.fjord.operator import Operator
from cluster.fjord.running_kinds import add_behind, operator_of, subscribed_operator
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators.columns import COVERED_BY, MARKS
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment, Host, Subscriber
from cluster.physical.operations import Scan
from cluster.physical.rules.folded_queries import nodes_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.pane_query import pane_query_of
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND_US = 1_000_000
KEYS = 1_000
TUPLES_PER_SECOND = 1_000
BATCH_ROWS = 50_000
FIELDS = (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL))
CATALOG = Catalog.of([StreamSchema("readings", FIELDS), StreamSchema("events", FIELDS)])
AGGREGATE = "SELECT k, AVG(x) AS mean, COUNT(*) AS n FROM readings WINDOW(RANGE 60 SECONDS SLIDE 10 SECONDS) GROUP BY k"
JOIN = "SELECT a.k, a.x, b.x AS y FROM readings a WINDOW(RANGE 10 SECONDS), events b WHERE a.k = b.k"

Streams = dict[str, pl.DataFrame]


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer rounds, and ten million tuples for the memory")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    rounds = 3 if options.quick else 7
    report: dict[str, Any] = {"tuples": 1_000_000, "keys": KEYS, "batch_rows": BATCH_ROWS, "rounds": rounds}
    # First, so that the tables of the comparisons are not in its picture.
    resident = memory_of(10_000_000 if options.quick else 100_000_000, quiet=options.json)
    report |= flatness(resident)
    report |= compare("aggregate", AGGREGATE, {"readings": made(1_000_000, seed=1)}, aggregate_by_hand, rounds)
    halves = {"readings": made(500_000, seed=2), "events": made(500_000, seed=3)}
    report |= compare("join", JOIN, halves, join_by_hand, rounds)
    write_report(report, "operators", lambda path: plot(report, resident, path), as_json=options.json)


def made(count: int, *, seed: int, first: int = 0) -> pl.DataFrame:
    """Return `count` tuples from number `first` on, in the order of their stamps: START, END, k, x."""
    dice = np.random.default_rng(seed + first)
    stamps = (np.arange(first, first + count) * (SECOND_US // TUPLES_PER_SECOND)).astype(np.int64)
    stamps += dice.integers(0, SECOND_US // TUPLES_PER_SECOND, count)
    return pl.DataFrame(
        {START: stamps, END: stamps + 1, "k": dice.integers(0, KEYS, count), "x": dice.normal(50.0, 10.0, count)}
    )


class Running:
    """A query on its operators, upstream and downstream of the shuffle, without Spark."""

    def __init__(self, sql: str) -> None:
        query = PlannedQuery("query", 1, rewrite(translate(sql, CATALOG).node).node)
        fragment = _fragment(query)
        self._dataflow = Dataflow()
        self._pipelines: list[tuple[str, Scan, list[Operator]]] = []
        for exchange in fragment.exchanges:
            scan, *nodes = fragment.pipeline(exchange)
            assert isinstance(scan.operation, Scan)  # noqa: S101 - what a pipeline begins with
            operators = [subscribed_operator(node.operation, fragment) for node in nodes]
            self._pipelines.append((exchange.id, scan.operation, operators))
        self._arrivals = {exchange: PushQueue() for exchange, _, _ in self._pipelines}
        self._outlet = self._dataflow.outlet(add_behind(self._dataflow, fragment, self._arrivals))
        self._top = [operator_of(step) for step in fragment.subscribers[0].finish]

    def feed(self, streams: Streams, watermark_us: int) -> pl.DataFrame:
        """Process a batch of each stream; return the rows that are final now."""
        for exchange, scan, operators in self._pipelines:
            columns = [column.name for column in scan.columns if column != COVERED_BY]
            batch = Batch(streams[scan.stream].select(START, END, *columns), watermark_us)
            for operator in operators:
                batch = operator.transition(0, batch)
            self._arrivals[exchange].put(batch)
        self._dataflow.run()
        if self._dataflow.failures:
            raise SystemExit(str(next(iter(self._dataflow.failures.values()))))
        found = []
        while (emitted := self._outlet.get()) is not None:
            for operator in self._top:
                emitted = operator.transition(0, emitted)
            found.append(emitted.rows.drop(mark.name for mark in MARKS if mark.name in emitted.rows.columns))
        return pl.concat(found)


def _fragment(query: PlannedQuery) -> Fragment:
    """Return the fragment of a query; without shared panes, as if no other query could ever share it."""
    if pane_query_of(query.node) is not None:
        (fragment,) = lower(Plan(1, (query,))).fragments
        return fragment
    nodes = nodes_of(query.identity, query.node, Host.STATEFUL)
    return Fragment(query.identity, Host.STATEFUL, nodes, (Subscriber(query.name, 1, 0, ()),), shares_rows=False)


def batches(streams: Streams) -> Iterator[tuple[Streams, int]]:
    """Cut streams by stamp into batches of about :data:`BATCH_ROWS` rows together, each with its watermark."""
    step_us = BATCH_ROWS * SECOND_US // TUPLES_PER_SECOND // len(streams)
    last_us = max(int(rows[START][-1]) for rows in streams.values())
    low = ALWAYS
    for high in [*range(step_us, last_us, step_us), NEVER]:
        yield {name: rows.filter(pl.col(START).is_between(low, high - 1)) for name, rows in streams.items()}, high
        low = high


def aggregate_by_hand(streams: Streams) -> pl.DataFrame:
    """Mean and count per key at each step of 10 s, over the 60 s before it, the first windows being partly empty."""
    return (
        streams["readings"]
        .lazy()
        .select(pl.from_epoch(START, "us").alias("at"), "k", "x")
        .group_by_dynamic("at", every="10s", period="60s", offset="-50s", closed="left", label="right", group_by="k")
        .agg(pl.col("x").mean().alias("mean"), pl.len().alias("n"))
        .collect()
    )


def join_by_hand(streams: Streams) -> pl.DataFrame:
    """Readings with the events of their key less than 10 s later: joined within intervals of 10 s, then compared."""
    size_us = 10 * SECOND_US
    stretch = pl.col(START) // size_us
    readings = streams["readings"].lazy().with_columns(pl.concat_list(stretch, stretch + 1).alias("stretch"))
    events = (
        streams["events"]
        .lazy()
        .select(pl.col(START).alias("then"), "k", pl.col("x").alias("y"), stretch.alias("stretch"))
    )
    return (
        readings.explode("stretch")
        .join(events, on=["k", "stretch"])
        .filter(pl.col("then").is_between(pl.col(START), pl.col(START) + size_us, closed="left"))
        .select("k", "x", "y")
        .collect()
    )


def compare(
    name: str, sql: str, streams: Streams, by_hand: Callable[[Streams], pl.DataFrame], rounds: int
) -> dict[str, float]:
    """Return medians of both and their ratio, after checking that they agree."""
    cut = list(batches(streams))
    ours_s, hand_s = [], []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        running = Running(sql)
        ours = pl.concat([running.feed(batch, watermark) for batch, watermark in cut])
        ours_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        hand = by_hand(streams)
        hand_s.append(time.perf_counter() - began)
    check(name, ours, hand)
    ratios = [one / other for one, other in zip(ours_s[1:], hand_s[1:], strict=True)]  # the first round warms up
    return {
        f"{name}_rows": ours.height,
        f"{name}_fjord_s": round(statistics.median(ours_s[1:]), 4),
        f"{name}_by_hand_s": round(statistics.median(hand_s[1:]), 4),
        f"{name}_over_by_hand": round(statistics.median(ratios), 2),
    }


def check(name: str, ours: pl.DataFrame, hand: pl.DataFrame) -> None:
    """Stop if the two answers differ: a fast wrong answer is worth nothing."""
    if name == "aggregate":
        sums = [(each.height, each["n"].sum(), round(float(each["mean"].sum()), 3)) for each in (ours, hand)]
    else:
        sums = [
            (each.height, round(float(each["x"].sum()), 1), round(float((each["x"] * each["y"]).sum()), 0))
            for each in (ours, hand)
        ]
    if sums[0] != sums[1]:
        raise SystemExit(f"{name}: Fjord answers {sums[0]}, by hand it is {sums[1]}")


def memory_of(tuples: int, *, quiet: bool) -> list[tuple[int, float]]:
    """Return (tuples fed, resident MiB) while both queries run over new batches."""
    process = psutil.Process()
    queries = [Running(AGGREGATE), Running(JOIN)]
    samples: list[tuple[int, float]] = []
    steps = range(0, tuples, BATCH_ROWS)
    for first in track(steps, description=f"memory over {tuples:,} tuples", disable=quiet):
        rows = made(BATCH_ROWS, seed=4, first=first)
        # Every hundredth is an event: the join's answer stays small beside its state.
        streams = {"readings": rows, "events": rows.gather_every(100)}
        watermark_us = (first + BATCH_ROWS) * (SECOND_US // TUPLES_PER_SECOND)
        for query in queries:
            query.feed(streams, watermark_us)
        if first // BATCH_ROWS % max(1, len(steps) // 100) == 0:
            gc.collect()
            samples.append((first + BATCH_ROWS, process.memory_info().rss / 2**20))
    return samples


def flatness(resident: list[tuple[int, float]]) -> dict[str, float]:
    """Compare the second quarter of the samples with the last one, which shows any growth."""
    sizes = [size for _, size in resident]
    quarter = len(sizes) // 4
    second, last = statistics.median(sizes[quarter : 2 * quarter]), statistics.median(sizes[-quarter:])
    return {
        "memory_tuples": resident[-1][0],
        "memory_second_quarter_mib": round(second, 1),
        "memory_last_quarter_mib": round(last, 1),
        "memory_last_over_second_quarter": round(last / second, 3),
    }


def plot(report: dict[str, Any], resident: list[tuple[int, float]], path: Path) -> None:
    """Draw both comparisons, and resident memory against tuples."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (bars, memory) = plt.subplots(1, 2, figsize=(11, 4))
    for place, name in enumerate(("aggregate", "join")):
        bars.bar(place - 0.2, report[f"{name}_fjord_s"], 0.4, color="tab:blue", label="Fjord" if not place else None)
        bars.bar(
            place + 0.2, report[f"{name}_by_hand_s"], 0.4, color="tab:grey", label="by hand" if not place else None
        )
    bars.set(xticks=[0, 1], xticklabels=["grouped window", "windowed join"], ylabel="seconds for a million tuples")
    bars.legend()
    memory.plot([count / 1e6 for count, _ in resident], [size for _, size in resident])
    memory.set(xlabel="million tuples", ylabel="resident MiB", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
