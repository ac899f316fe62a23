"""Many queries in one plan: against one Fjord per query, against plain Spark, and against one query alone.

After figures 8 and 9 of the Fjords paper (papers/fjords.md section 5): tuples per second, and cost per query, against
the number of queries. Each query wants a thousandth of the stream.

    python benchmarks/folding.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Where Spark's workers run, operators use one thread each; so they do here.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import plain_spark
import polars as pl
import psutil
from fjord_in_spark import FjordInSpark
from hosted_fjord import (
    AGGREGATES,
    READINGS,
    WINDOWS,
    HostedFjord,
    append,
    filter_queries,
    planned,
    readings,
    window_query,
)
from rich.console import Console

from cluster.plan.epoch import PlannedQuery
from cluster.spark.session import SessionSettings, open_session
from cluster.storage.stream_tables import StreamTable

RESULTS = Path(__file__).parent / "results"
BATCH_ROWS = 10_000
VERSIONS = 4
STEP_US = 1_000


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
    """Measure everything that takes Spark but the micro-batches."""
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


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("pyspark", "polars", "deltalake")},
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def folded_and_separate(folder: Path, counts: tuple[int, ...], *, sampled: int) -> list[dict[str, float]]:
    """Return, by number of queries, tuples per second of one Fjord with all and of a Fjord for each (figure 8).

    Both run the same hosts in one process; of the Fjords for each, at most `sampled` are run, and counted as many times
    as there are.
    """
    table = StreamTable(str(folder / "streams" / READINGS.name), READINGS)
    for number in range(VERSIONS):
        append(table, readings(BATCH_ROWS, first=number * BATCH_ROWS), (number + 1) * BATCH_ROWS * STEP_US)
    curve = []
    for count in counts:
        texts = filter_queries(count)
        queries = [planned(text, number) for number, text in enumerate(texts, 1)]
        folded = HostedFjord(folder, f"folded-{count}", queries)
        folded_s = _median_micro_batch(folded)
        chosen = queries[:: max(1, count // sampled)][:sampled]
        separate = [HostedFjord(folder, f"separate-{count}-{query.name}", [query]) for query in chosen]
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


def _median_micro_batch(fjord: HostedFjord) -> float:
    seconds = [fjord.micro_batch(version, version * BATCH_ROWS * STEP_US) for version in range(1, VERSIONS + 1)]
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


def shared_windows(spark: Any, folder: Path, rows: int, *, rounds: int) -> dict[str, Any]:
    """Return how long 200 aggregates over 20 windows take, and the costliest of them alone, over the same rows."""
    parts = [readings(rows // 8, first=number * (rows // 8), keys=100) for number in range(8)]
    texts = [window_query(aggregate, *window) for window in WINDOWS for aggregate in AGGREGATES]
    costly = [window_query(aggregate, 60, 1) for aggregate in ("STDDEV(x)", "LAST(x)", "AVG(x)")]
    costly = costly[: 1 if rounds == 1 else None]
    if rounds > 1:
        _fjord_seconds(spark, folder / "warm", texts[:1], parts[:2])
    together, alone = [], {text: [] for text in costly}
    for turn in range(rounds):
        seconds, answers = _fjord_seconds(spark, folder / f"all-{turn}", texts, parts)
        together.append(seconds)
        for number, text in enumerate(costly):
            alone[text].append(_fjord_seconds(spark, folder / f"one-{turn}-{number}", [text], parts)[0])
    costliest = max(costly, key=lambda text: statistics.median(alone[text]))
    all_s, one_s = statistics.median(together), statistics.median(alone[costliest])
    return {
        "windows_200_s": round(all_s, 2),
        "windows_costliest_alone_s": round(one_s, 2),
        "windows_costliest": costliest,
        "windows_200_answers": sum(answers.values()),
        "windows_200_over_1": round(all_s / one_s, 2),
    }


def over_plain_spark(spark: Any, folder: Path, count: int, rows: int, *, keys: int, turns: int) -> dict[str, float]:
    """Return how much faster one Fjord answers `count` queries than as many Spark queries, over the same rows.

    Each query wants one in `keys` rows. Spark's queries are given everything at once, which suits them best.
    """
    parts = [readings(rows // 8, first=number * (rows // 8), keys=keys) for number in range(8)]
    (folder / "rows").mkdir(parents=True)
    for number, part in enumerate(parts):
        part.write_parquet(folder / "rows" / f"{number}.parquet")
    texts = filter_queries(count, keys=keys)
    # Both once before, so that neither pays for the other's first use of Spark.
    _fjord_seconds(spark, folder / "warm", texts[:1], parts)
    plain_spark.run_all(spark, texts[:1], folder / "rows", folder / "warm-plain")
    ours = [_fjord_seconds(spark, folder / f"fjord-{turn}", texts, parts) for turn in range(turns)]
    plain_s, plain = plain_spark.run_all(spark, texts, folder / "rows", folder / "plain")
    ours_s = statistics.median(seconds for seconds, _ in ours)
    if any(answers != plain for _, answers in ours):
        raise SystemExit(f"the answers differ: {ours[0][1]} rows in Fjord, {plain} in plain Spark")
    return {
        "plain_spark_s": round(plain_s, 2),
        "fjord_s": round(ours_s, 2),
        "plain_spark_tuples_per_s": round(rows / plain_s),
        "fjord_tuples_per_s": round(rows / ours_s),
        "answers": sum(plain.values()),
        "over_plain_spark": round(plain_s / ours_s, 1),
    }


def adding(spark: Any, folder: Path, count: int, *, among: int, times: int = 5) -> dict[str, float]:
    """Return how long it takes to add a query to a live stream: in Fjord among `among`, in plain Spark among `count`.

    From SQL text to the first stored answer; each added query wants everything. Micro-batches are counted that begin
    after the query was added or dropped: one is always under way.
    """
    added = [f"SELECT k, x FROM readings WHERE k >= {-number}" for number in range(times)]
    first = itertools.count(0, 1000)

    def feed_plain(rows: Path) -> None:
        number = next(first)
        readings(1000, first=number).write_parquet(folder / "unfinished")
        (folder / "unfinished").rename(rows / f"{number}.parquet")

    plain_s = plain_spark.seconds_to_add(spark, filter_queries(count), added, folder, feed_plain)
    fjord = FjordInSpark(spark, folder / "fjord")
    queries = [planned(text, number) for number, text in enumerate(filter_queries(among), 2)]
    fjord.run_plan(queries)

    def feed() -> None:
        number = next(first)
        fjord.append(readings(1000, first=number), (number + 1000) * STEP_US)

    ours_s, batches = [], []
    with plain_spark.Feeding(feed):
        while not fjord.answers():
            time.sleep(0.1)
        for number, text in enumerate(added):
            began, finished = time.perf_counter(), fjord.finished
            queries.append(planned(text, among + 2 + number))
            fjord.run_plan(queries)
            while not fjord.results.last_sequence(queries[-1].name):
                time.sleep(0.005)
            ours_s.append(time.perf_counter() - began)
            batches.append(fjord.finished - finished)
        dropped = [_micro_batches_until_silent(fjord, queries) for _ in added]
    fjord.wait()
    _check_answers(fjord, queries)
    fjord.stop()
    plain, ours = statistics.median(plain_s), statistics.median(ours_s)
    return {
        f"plain_spark_add_to_{count}_s": round(plain, 2),
        f"fjord_add_to_{among}_s": round(ours, 2),
        "add_over_plain_spark": round(plain / ours, 1),
        "add_effective_after_micro_batches": max(batches),
        "drop_effective_after_micro_batches": max(dropped),
    }


def _micro_batches_until_silent(fjord: FjordInSpark, queries: list[PlannedQuery]) -> int:
    """Drop the newest query; return how many micro-batches that began after that still answered it."""
    gone = queries.pop()
    finished = fjord.finished
    fjord.run_plan(queries)
    last, until, known = 0, finished + 5, fjord.results.last_sequence(gone.name)
    while (now := fjord.finished) < until:
        if (found := fjord.results.last_sequence(gone.name)) != known:
            last, known = now - finished, found
        time.sleep(0.01)
    return last


def _check_answers(fjord: FjordInSpark, queries: list[PlannedQuery]) -> None:
    """See that queries that were there all the time have the answers Polars finds, whoever came and went."""
    stream, answers = pl.SQLContext(readings=pl.scan_delta(fjord.table.root).collect()), fjord.answers()
    for text, query in zip(filter_queries(len(queries)), queries, strict=True):
        expected = stream.execute(text, eager=True).height
        if answers.get(query.name, 0) != expected:
            raise SystemExit(f"{query.name} has {answers.get(query.name, 0)} answers, Polars finds {expected}")


def keeping_up(spark: Any, folder: Path, *, filters: int, rate: int, seconds: int) -> dict[str, float]:
    """Return how far answers lag behind a stream of `rate` tuples per second with so many filters registered.

    The lag of a version of the stream's table: from its commit until a micro-batch has answered it.
    """
    fjord = FjordInSpark(spark, folder)
    fjord.run_plan([planned(text, number) for number, text in enumerate(filter_queries(filters, keys=100_000), 2)])
    first, stored_at, lags = itertools.count(0, rate // 2), {}, []

    def feed() -> None:
        number = next(first)
        rows = readings(rate // 2, first=number, step_us=1_000_000 // rate, keys=100_000)
        fjord.append(rows, (number + rate // 2) * (1_000_000 // rate))
        stored_at[fjord.table.version] = time.perf_counter()

    with plain_spark.Feeding(feed):
        began, known = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            version = fjord.answered_version
            if version > known:
                now = time.perf_counter()
                lags += [
                    (elapsed, now - stored_at[each]) for each in range(known + 1, version + 1) if each in stored_at
                ]
                known = version
            time.sleep(0.02)
    fjord.wait()
    answers = sum(fjord.answers().values())
    fjord.stop()

    def worst(low: float, high: float) -> float:
        return round(max(lag for at, lag in lags if low * seconds <= at < high * seconds), 2)

    return {
        "keeping_up_filters": filters,
        "keeping_up_tuples_per_s": round(len(lags) * (rate // 2) / seconds),
        "keeping_up_seconds": seconds,
        "keeping_up_answers": answers,
        "keeping_up_median_lag_s": round(statistics.median(lag for _, lag in lags), 2),
        "keeping_up_worst_lag_second_quarter_s": worst(0.25, 0.5),
        "keeping_up_worst_lag_last_quarter_s": worst(0.75, 1.0),
    }


def _fjord_seconds(spark: Any, folder: Path, texts: list[str], parts: list[Any]) -> tuple[float, dict[str, int]]:
    fjord = FjordInSpark(spark, folder)
    stored = 0
    for part in parts:
        stored += part.height
        fjord.append(part, stored * STEP_US)
    began = time.perf_counter()
    fjord.run_plan([planned(text, number) for number, text in enumerate(texts, 1)], after_version=0)
    fjord.wait()
    took = time.perf_counter() - began
    answers = fjord.answers()
    fjord.stop()
    return took, answers


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw cost per query (figure 8), tuples per second, and tuples times queries per second (figure 9)."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    curve = report["figure_8"]
    counts = [point["queries"] for point in curve]
    figure, (cost, rate, total) = plt.subplots(1, 3, figsize=(15, 4.2))
    for kind, label in (("folded", "one Fjord for all"), ("separate", "one Fjord for each")):
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
