"""Many queries in one plan: against one plan per query, against plain Spark, and against one query alone.

After figures 8 and 9 of the Fjords paper (papers/fjords.md section 5): tuples per second, and cost per query, against
the number of queries. Each query wants a thousandth of the stream.

    python benchmarks/folding.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# In Spark's workers operators use one thread each, and so they do here.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from fjord_in_spark import FjordInSpark
from folding_in_spark import STEP_US, adding, keeping_up, over_plain_spark, shared_windows
from hosted_dataflow import (
    READINGS,
    HostedDataflow,
    append,
    filter_queries,
    planned,
    readings,
)
from parameterised import parameterised_over_texts
from reports import machine
from rich.console import Console

from cluster.spark.session import SessionSettings, open_session
from cluster.storage.stream_tables import StreamTable

RESULTS = Path(__file__).parent / "results"
BATCH_ROWS = 10_000
VERSIONS = 4


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--quick",
        action="store_true",
        help="fewer rows, 4 queries instead of 32 and 128 in plain Spark, no long runs",
    )
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    say = Console(stderr=True, quiet=options.json).print
    report: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="fjord-folding-") as name:
        folder = Path(name)
        say("one Fjord per query against one for all")
        curve = folded_and_separate(folder / "hosts", (1, 10, 100, 1000), sampled=20 if options.quick else 1000)
        report["figure_8"] = curve
        report["folded_over_separate_1000"] = curve[-1]["over_separate"]
        say("a thousand queries of two templates against as many texts")
        report |= parameterised_over_texts()
        spark = open_session(SessionSettings(driver_memory="2g"), folder / "spark")
        try:
            say("a micro-batch of 1,000 rows with 1 query and with 1,000")
            report |= micro_batches(spark, folder / "micro", rounds=3 if options.quick else 15)
            report |= in_spark(spark, folder, say, quick=options.quick)
        finally:
            spark.stop()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "folding.json").write_text(json.dumps(report, indent=2) + "\n")
    plot(report, RESULTS / "folding.png")
    if options.json:
        print(json.dumps(report))
        return
    for key, value in report.items():
        if not isinstance(value, list | dict):
            print(f"{key:36} {value}")
    print(f"written: {RESULTS / 'folding.json'}, {RESULTS / 'folding.png'}")


def in_spark(spark: Any, folder: Path, say: Callable[[str], None], *, quick: bool) -> dict[str, Any]:
    """Measure everything that needs Spark except the micro-batches."""
    report: dict[str, Any] = {}
    rows = 200_000 if quick else 2_000_000
    for count in (4,) if quick else (32, 128):
        say(f"plain Spark with {count} queries over {rows:,} rows")
        for keys, suffix in ((10_000, ""), *(() if quick else ((1_000, "_thousandth"),))):
            found = over_plain_spark(
                spark, folder / f"plain-{count}{suffix}", count, rows, keys=keys, turns=1 if quick else 3
            )
            report |= {f"{name}_{count}{suffix}": value for name, value in found.items()}
    if not quick:
        say("adding a query to 32 in plain Spark, and to 1,000 in Fjord")
        report |= adding(spark, folder / "adding", 32, among=1000)
        say("10,000 filters over 10,000 tuples a second, for five minutes")
        report |= keeping_up(spark, folder / "keeping-up", filters=10_000, rate=10_000, seconds=300)
    say(f"200 windowed aggregates over {rows:,} rows, and the costliest alone")
    return report | shared_windows(spark, folder / "windows", rows, rounds=1 if quick else 3)


def folded_and_separate(folder: Path, counts: tuple[int, ...], *, sampled: int) -> list[dict[str, float]]:
    """Return, by number of queries, tuples per second of one plan with all and of a plan for each (figure 8).

    Both run the same hosts in one process. Of the plans for single queries, at most `sampled` are run, and their time
    is scaled to the number of queries.
    """
    table = StreamTable(str(folder / "streams" / READINGS.name), READINGS)
    for number in range(VERSIONS):
        append(table, readings(BATCH_ROWS, first=number * BATCH_ROWS), (number + 1) * BATCH_ROWS * STEP_US)
    curve = []
    for count in counts:
        texts = filter_queries(count)
        queries = [planned(text, number) for number, text in enumerate(texts, 1)]
        folded = HostedDataflow(folder, queries)
        folded_s = _median_micro_batch(folded)
        chosen = queries[:: max(1, count // sampled)][:sampled]
        separate = [HostedDataflow(folder, [query]) for query in chosen]
        separate_s = sum(_median_micro_batch(each) for each in separate) * count / len(chosen)
        for each in separate:
            for name, answered in each.answers.items():
                if folded.answers.get(name) != answered:
                    raise SystemExit(f"{name} has {folded.answers.get(name)} rows folded, and {answered} alone")
        curve.append(
            {
                "queries": count,
                "folded_tuples_per_s": round(BATCH_ROWS / folded_s),
                "separate_tuples_per_s": round(BATCH_ROWS / separate_s),
                "folded_ms_per_query": round(folded_s * 1000 / count, 4),
                "separate_ms_per_query": round(separate_s * 1000 / count, 4),
                "over_separate": round(separate_s / folded_s, 1),
            }
        )
    return curve


def _median_micro_batch(dataflow: HostedDataflow) -> float:
    seconds = [dataflow.micro_batch(version, version * BATCH_ROWS * STEP_US) for version in range(1, VERSIONS + 1)]
    return statistics.median(seconds[1:])  # the first one builds the plan


def micro_batches(spark: Any, folder: Path, *, rounds: int) -> dict[str, float]:
    """Return how long micro-batches of 1,000 rows take with one query and with a thousand."""
    fjord = FjordInSpark(spark, folder)
    queries = [planned(text, number) for number, text in enumerate(filter_queries(1000), 2)]
    first, stored = 0, {}

    def batch() -> float:
        nonlocal first
        fjord.append(readings(1000, first=first), (first + 1000) * STEP_US)
        first += 1000
        fjord.wait()
        return fjord.micro_batch_seconds()

    for count in (1, 1000):
        fjord.run_plan(queries[:count])
        for _ in range(min(3, rounds // 2)):
            batch()
        stored[count] = statistics.median(batch() for _ in range(rounds))
    fjord.stop()
    return {
        "microbatch_1_s": round(stored[1], 3),
        "microbatch_1000_s": round(stored[1000], 3),
        "microbatch_1000_over_1": round(stored[1000] / stored[1], 2),
    }


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw cost per query (figure 8), tuples per second, and tuples times queries per second (figure 9)."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    curve = report["figure_8"]
    counts = [point["queries"] for point in curve]
    figure, (cost, rate, total) = plt.subplots(1, 3, figsize=(15, 4.2))
    for kind, label in (("folded", "one plan for all"), ("separate", "a plan for each")):
        cost.loglog(counts, [point[f"{kind}_ms_per_query"] for point in curve], "o-", label=label)
        rate.loglog(counts, [point[f"{kind}_tuples_per_s"] for point in curve], "o-", label=label)
        total.loglog(counts, [point[f"{kind}_tuples_per_s"] * point["queries"] for point in curve], "o-", label=label)
    in_spark = [count for count in (4, 32, 128) if f"over_plain_spark_{count}" in report]
    for kind, label in (("fjord", "Fjord in Spark"), ("plain_spark", "plain Spark")):
        rates = [report[f"{kind}_tuples_per_s_{count}"] for count in in_spark]
        rate.loglog(in_spark, rates, "s--", label=label)
        total.loglog(in_spark, [found * count for found, count in zip(rates, in_spark, strict=True)], "s--")
    cost.set(xlabel="queries", ylabel=f"ms per query and {BATCH_ROWS:,} tuples", title="cost of a query")
    rate.set(xlabel="queries", ylabel="tuples per second", title="tuples")
    total.set(xlabel="queries", ylabel="tuples x queries per second", title="tuples x queries")
    for axes in (cost, rate, total):
        axes.grid(alpha=0.3)
    rate.legend(fontsize="small")
    known = report["machine"]
    figure.suptitle(f"{known['processor']}, {known['cores']} cores, Spark {known['pyspark']}", fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
