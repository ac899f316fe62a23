"""Many queries in one plan: against one Fjord per query, against plain Spark, and against one query alone.

After figures 8 and 9 of the Fjords paper (papers/fjords.md section 5): tuples per second, and cost per query, against
the number of queries. Each query wants a thousandth of the stream.

    python benchmarks/folding.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Where Spark's workers run, operators use one thread each; so they do here.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import plain_spark
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
        "--quick", action="store_true", help="fewer rows, and 8 queries instead of 32 and 128 in plain Spark"
    )
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    say = Console(stderr=True, quiet=options.json).print
    report: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="fjord-folding-") as name:
        folder = Path(name)
        say("one Fjord per query against one for all")
        curve = folded_and_separate(folder / "hosts", (1, 10, 100, 1000), sampled=50 if options.quick else 1000)
        report["figure_8"] = curve
        report["folded_over_separate_1000"] = curve[-1]["over_separate"]
        spark = open_session(SessionSettings(driver_memory="2g"), folder / "spark")
        try:
            say("a micro-batch of 1,000 rows with 1 query and with 1,000")
            report |= micro_batches(spark, folder / "micro", rounds=5 if options.quick else 15)
            rows = 200_000 if options.quick else 2_000_000
            for count in (8,) if options.quick else (32, 128):
                say(f"plain Spark with {count} queries over {rows:,} rows")
                report |= over_plain_spark(spark, folder / f"plain-{count}", count, rows)
            say(f"200 windowed aggregates over {rows:,} rows, and the costliest alone")
            report |= shared_windows(spark, folder / "windows", rows, rounds=1 if options.quick else 3)
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


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


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
    """Return how long micro-batches of 1,000 rows take with one query and with a thousand, and adding one to those."""
    fjord = FjordInSpark(spark, folder)
    queries = [planned(text, number) for number, text in enumerate(filter_queries(1001), 2)]
    first, stored = 0, {}

    def batch() -> float:
        nonlocal first
        fjord.append(readings(1000, first=first), (first + 1000) * STEP_US)
        first += 1000
        fjord.wait()
        return fjord.micro_batch_seconds()

    for count in (1, 1000):
        fjord.run_plan(queries[:count])
        for _ in range(3):
            batch()
        stored[count] = statistics.median(batch() for _ in range(rounds))
    began = time.perf_counter()
    fjord.run_plan(queries)
    batch()
    added_s = time.perf_counter() - began
    fjord.stop()
    return {
        "microbatch_1_s": round(stored[1], 3),
        "microbatch_1000_s": round(stored[1000], 3),
        "microbatch_1000_over_1": round(stored[1000] / stored[1], 2),
        "add_to_1000_s": round(added_s, 3),
    }


def shared_windows(spark: Any, folder: Path, rows: int, *, rounds: int) -> dict[str, Any]:
    """Return how long 200 aggregates over 20 windows take, and the costliest of them alone, over the same rows."""
    parts = [readings(rows // 8, first=number * (rows // 8), keys=100) for number in range(8)]
    texts = [window_query(aggregate, *window) for window in WINDOWS for aggregate in AGGREGATES]
    costly = [window_query(aggregate, 60, 1) for aggregate in ("STDDEV(x)", "LAST(x)", "AVG(x)")]
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


def over_plain_spark(spark: Any, folder: Path, count: int, rows: int) -> dict[str, float]:
    """Return how much faster one Fjord answers `count` queries than as many Spark queries, over the same rows."""
    parts = [readings(rows // 8, first=number * (rows // 8)) for number in range(8)]
    (folder / "rows").mkdir(parents=True)
    for number, part in enumerate(parts):
        part.write_parquet(folder / "rows" / f"{number}.parquet")
    texts = filter_queries(count)
    # Both once before, so that neither pays for the other's first use of Spark.
    _fjord_seconds(spark, folder / "warm", texts[:1], parts)
    plain_spark.run_all(spark, texts[:1], folder / "rows", folder / "warm-plain")
    ours_s, ours = _fjord_seconds(spark, folder / "fjord", texts, parts)
    plain_s, plain = plain_spark.run_all(spark, texts, folder / "rows", folder / "plain")
    added_s = plain_spark.seconds_to_add(spark, texts[0], folder / "rows", folder / "added")
    if ours != plain:
        raise SystemExit(
            f"the answers differ: {sum(ours.values())} rows in Fjord, {sum(plain.values())} in plain Spark"
        )
    return {
        f"plain_spark_{count}_s": round(plain_s, 2),
        f"fjord_{count}_s": round(ours_s, 2),
        f"over_plain_spark_{count}": round(plain_s / ours_s, 1),
        f"plain_spark_add_{count}_s": round(added_s, 2),
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
    """Draw figure 8: cost per query; and figure 9: tuples times queries per second."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    curve = report["figure_8"]
    counts = [point["queries"] for point in curve]
    figure, (cost, rate) = plt.subplots(1, 2, figsize=(11, 4))
    for kind, label in (("folded", "one Fjord for all"), ("separate", "one Fjord for each")):
        cost.loglog(counts, [point[f"{kind}_ms_per_query"] for point in curve], "o-", label=label)
        rate.loglog(counts, [point[f"{kind}_tuples_per_s"] * point["queries"] for point in curve], "o-", label=label)
    cost.set(xlabel="queries", ylabel=f"ms per query and {BATCH_ROWS:,} tuples")
    rate.set(xlabel="queries", ylabel="tuples x queries per second")
    cost.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
