"""Streams that meet relations: what many users of one lookup cost each, and a large relation against plain Spark.

python benchmarks/relations.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Where Spark's workers run, operators use one thread each; so they do here.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import numpy as np
import polars as pl
from fjord_in_spark import FjordInSpark
from folding import machine
from hosted_fjord import READINGS, HostedFjord, append, change_places, planned, readings
from rich.console import Console

from cluster.spark.session import SessionSettings, open_session
from cluster.storage.stream_tables import StreamTable

RESULTS = Path(__file__).parent / "results"
STEP_US = 1_000
PARTS = 8
"""Micro-batches of the join."""

JOIN = "SELECT r.k, r.x, p.name FROM readings AS r, places AS p WHERE r.k = p.key AND r.x > p.high"

SEGMENTS = 64
USERS = (1, 2, 5, 10, 20, 50)
Q2 = (
    "SELECT i.name, AVG(s.speed) AS speed FROM (SELECT k, AVG(x) AS speed "
    "FROM readings WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE) WHERE k IN ({segments}) GROUP BY k HAVING AVG(x) < {slow}) "
    "AS s, places AS i WHERE s.k = i.key GROUP BY i.name"
)
"""Q2 of papers/fjords.md section 4: k is the segment, x the speed, places are the incidents."""


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="200,000 tuples and 100,000 rows, fewer rounds")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    say = Console(stderr=True, quiet=options.json).print
    report: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="fjord-relations-") as name:
        folder = Path(name)
        say("Q2 with up to 50 users ...")
        report["q2"] = curve = users(folder / "q2", rounds=8 if options.quick else 20)
        report["q2_cost_reduction_50"] = round(1 - curve[-1]["ms_per_query"] / curve[0]["ms_per_query"], 3)
        say("a large relation against plain Spark ...")
        size = (200_000, 100_000) if options.quick else (2_000_000, 1_000_000)
        report |= large_relation(folder / "join", *size, turns=1 if options.quick else 3)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "relations.json").write_text(json.dumps(report, indent=2) + "\n")
    plot(report, RESULTS / "relations.png")
    if options.json:
        print(json.dumps(report))
        return
    say(f"Q2 with 50 users: a query costs {report['q2_cost_reduction_50']:.0%} less than one alone (80 % asked)")
    say(f"join with a large relation: {report['join_over_plain_spark']} times plain Spark (4 asked)")
    say(f"figures and plot in {RESULTS}")


def users(folder: Path, *, rounds: int) -> list[dict[str, float]]:
    """Return, by number of users, what Q2 costs each; every user knows other segments and finds other speeds slow.

    A minute of 640 sensors' samples, one in two seconds, is a micro-batch; what is counted is the processor's time.
    """
    a_minute = 640 * 30
    step_us = 60_000_000 // a_minute
    table = StreamTable(str(folder / "streams" / READINGS.name), READINGS)
    for number in range(rounds):
        rows = readings(a_minute, first=number * a_minute, step_us=step_us, keys=SEGMENTS)
        speeds = 20 + pl.col("k") * 37 % SEGMENTS + pl.col("x") / 10
        append(table, rows.with_columns(speeds.alias("x")), (number + 1) * 60_000_000)
    dice = np.random.default_rng(7)
    names = [f"incident {number % 10}" for number in range(40)]
    incidents = pl.DataFrame({"key": dice.integers(0, SEGMENTS, 40), "high": [0.0] * 40, "name": names})
    change_places(folder, incidents)
    texts = [
        Q2.format(segments=", ".join(map(str, dice.choice(SEGMENTS, 12, replace=False))), slow=50 + number % 5)
        for number in range(max(USERS))
    ]
    curve, alone = [], None
    for count in USERS:
        queries = [planned(text, number) for number, text in enumerate(texts[:count], 1)]
        fjord = HostedFjord(folder, f"users-{count}", queries)
        costs = [_processor_seconds(fjord, version) for version in range(1, rounds + 1)]
        median_s = statistics.median(costs[2:])  # the first ones build plan and tables
        alone = alone or fjord.answers["q1"]
        if fjord.answers["q1"] != alone:
            raise SystemExit(f"q1 has {alone} rows alone, and {fjord.answers['q1']} among {count}")
        curve.append(
            {
                "users": count,
                "processor_ms": round(median_s * 1000, 2),
                "ms_per_query": round(median_s * 1000 / count, 3),
                "answers": sum(fjord.answers.values()),
            }
        )
    return curve


def _processor_seconds(fjord: HostedFjord, version: int) -> float:
    began = time.process_time()
    fjord.micro_batch(version, version * 60_000_000)
    return time.process_time() - began


def large_relation(folder: Path, tuples: int, rows: int, *, turns: int) -> dict[str, Any]:
    """Return how much faster a stream of tuples meets a relation of so many rows than in plain Spark, at its best.

    Either reads the stream in eight micro-batches, as it would come, and all at once. A tuple has one partner in
    the relation, and one in a thousand pairs is an answer. Each way is taken so many times; medians count.
    """
    parts = [readings(tuples // PARTS, first=number * (tuples // PARTS), keys=rows) for number in range(PARTS)]
    places = _places(rows)
    (folder / "rows").mkdir(parents=True)
    for number, part in enumerate(parts):
        part.write_parquet(folder / "rows" / f"{number}.parquet")
    places.write_parquet(folder / "places.parquet")
    spark = open_session(SessionSettings(), folder / "spark")
    _fjord(spark, folder / "warm", parts[:2], places)
    ours = [_fjord(spark, folder / f"fjord-{turn}", parts, places) for turn in range(turns)]
    whole = [_fjord(spark, folder / f"at-once-{turn}", parts, places, at_once=True) for turn in range(turns)]
    report: dict[str, Any] = {
        "fjord_s": round(statistics.median(seconds for seconds, _ in ours), 2),
        "fjord_at_once_s": round(statistics.median(seconds for seconds, _ in whole), 2),
    }
    spark.stop()  # Java keeps its threads, but does nothing any more
    plain: dict[str, float] = {}
    for name, runs in _plain_spark(folder, turns).items():
        if {count for _, count in (*ours, *whole)} != set(runs["rows"]):
            raise SystemExit(f"the answers differ: {ours[0][1]} rows in Fjord, {runs['rows'][0]} in plain Spark")
        plain[name] = statistics.median(runs["seconds"])
        report[f"plain_{name}_s"] = round(plain[name], 2)
    best_s = min(plain["broadcast"], plain["shuffle_hash"])
    return report | {
        "tuples": tuples,
        "rows": rows,
        "answers": ours[0][1],
        "fjord_tuples_per_s": round(tuples / report["fjord_s"]),
        "plain_spark_tuples_per_s": round(tuples / best_s),
        "join_over_plain_spark": round(best_s / report["fjord_s"], 2),
        "join_over_plain_spark_at_once": round(
            min(plain["broadcast_at_once"], plain["shuffle_hash_at_once"]) / report["fjord_at_once_s"], 2
        ),
    }


def _plain_spark(folder: Path, turns: int) -> dict[str, Any]:
    script = Path(__file__).parent / "plain_spark_join.py"
    ran = subprocess.run(
        [sys.executable, str(script), str(folder), str(turns)], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _places(rows: int) -> pl.DataFrame:
    dice = np.random.default_rng(3)
    keys = dice.permutation(rows)
    return pl.DataFrame({"key": keys, "high": np.full(rows, rows * 0.999), "name": [f"place {key}" for key in keys]})


def _fjord(
    spark: Any, folder: Path, parts: list[pl.DataFrame], places: pl.DataFrame, *, at_once: bool = False
) -> tuple[float, int]:
    change_places(folder, places)
    rows = sum(part.height for part in parts)
    fjord = FjordInSpark(spark, folder, max_rows=rows if at_once else parts[0].height)
    for number, part in enumerate(parts, 1):
        fjord.append(part, number * part.height * STEP_US)
    fjord.run_plan([planned(JOIN, 2)], after_version=0)
    seconds = fjord.wait()
    answered = sum(fjord.answers().values())
    fjord.stop()
    return seconds, answered


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw the cost of a query against the number of users, and the joins side by side."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (cost, join) = plt.subplots(1, 2, figsize=(11, 4.2))
    counts = [point["users"] for point in report["q2"]]
    cost.loglog(counts, [point["ms_per_query"] for point in report["q2"]], "o-", label="measured")
    cost.loglog(counts, [report["q2"][0]["ms_per_query"] * 0.2] * len(counts), "--", label="80 % below one alone")
    cost.set(xlabel="users of Q2", ylabel="processor ms per query and micro-batch", title="cost of a query")
    cost.grid(alpha=0.3)
    cost.legend(fontsize="small")
    names = {"fjord_s": "Fjord", "plain_broadcast_s": "Spark, broadcast", "plain_shuffle_hash_s": "Spark, shuffled"}
    join.bar(list(names.values()), [report["tuples"] / report[key] / 1000 for key in names])
    join.set(ylabel="1000 tuples per second", title=f"{report['tuples']:,} tuples with {report['rows']:,} rows")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
