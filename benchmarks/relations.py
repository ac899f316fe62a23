"""Streams joined with relations: the cost per user of one shared lookup, and a large relation against plain Spark.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# In Spark's workers operators use one thread each, and so they do here.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import numpy as np
import polars as pl
from fjord_in_spark import FjordInSpark
from folding import machine
from hosted_dataflow import READINGS, HostedDataflow, append, change_places, planned, readings
from rich.console import Console

from cluster.spark.session import SessionSettings, open_session
from cluster.storage.stream_tables import StreamTable

RESULTS = Path(__file__).parent / "results"
STEP_US = 1_000
MICRO_BATCHES = (20, 8)
"""Numbers of files for the stream of the join: 100,000 tuples each, about those of a second, or 250,000."""

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
    arguments.add_argument("--quick", action="store_true", help="200,000 tuples and 100,000 rows, one turn each")
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
        if options.quick:
            report["join"] = large_relation(folder / "join", 200_000, 100_000, cuts=(4,), turns=1)
        else:
            report["join"] = large_relation(folder / "join", 2_000_000, 1_000_000, cuts=MICRO_BATCHES, turns=3)
        report["join_over_plain_spark"] = report["join"][0]["over_plain_spark"]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "relations.json").write_text(json.dumps(report, indent=2) + "\n")
    plot(report, RESULTS / "relations.png")
    if options.json:
        print(json.dumps(report))
        return
    say(f"Q2 with 50 users: a query costs {report['q2_cost_reduction_50']:.0%} less than one alone (80 % asked)")
    for each in report["join"]:
        say(
            f"join with a large relation, {each['micro_batches']} micro-batches: {each['fjord_s']} s, "
            f"{each['over_plain_spark']} times plain Spark (4 asked)"
        )
    say(f"figures and plot in {RESULTS}")


def users(folder: Path, *, rounds: int) -> list[dict[str, float]]:
    """Return, by number of users, the cost of Q2 for each; every user has other segments and another limit of speed.

    A micro-batch is a minute of 640 sensors' samples, one in two seconds; the cost is processor time.
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
        dataflow = HostedDataflow(folder, queries)
        costs = [_processor_seconds(dataflow, version) for version in range(1, rounds + 1)]
        median_s = statistics.median(costs[2:])  # the first ones build plan and tables
        alone = alone or dataflow.answers["q1"]
        if dataflow.answers["q1"] != alone:
            raise SystemExit(f"q1 has {alone} rows alone, and {dataflow.answers['q1']} among {count}")
        curve.append(
            {
                "users": count,
                "processor_ms": round(median_s * 1000, 2),
                "ms_per_query": round(median_s * 1000 / count, 3),
                "answers": sum(dataflow.answers.values()),
            }
        )
    return curve


def _processor_seconds(dataflow: HostedDataflow, version: int) -> float:
    began = time.process_time()
    dataflow.micro_batch(version, version * 60_000_000)
    return time.process_time() - began


def large_relation(folder: Path, tuples: int, rows: int, *, cuts: Sequence[int], turns: int) -> list[dict[str, float]]:
    """Return how much faster a stream is joined with a relation of so many rows than in plain Spark, at its best.

    Both read the stream in so many micro-batches, as it would come, and in the last case all at once. A tuple has
    one partner in the relation, and one in a thousand pairs is an answer. Both run the first case once before
    the measurements, because a stream goes on; the start of a query is not counted. Each case is repeated, and the
    medians count.
    """
    places = _places(rows)
    stream = readings(tuples, keys=rows)
    parts = {count: list(stream.iter_slices(tuples // count)) for count in cuts}
    for count, pieces in parts.items():
        (folder / f"rows-{count}").mkdir(parents=True)
        for number, piece in enumerate(pieces):
            piece.write_parquet(folder / f"rows-{count}" / f"{number:03d}.parquet")
    places.write_parquet(folder / "places.parquet")
    cases = [(count, count) for count in cuts] + [(cuts[-1], 1)]
    spark = open_session(SessionSettings(), folder / "spark")
    _fjord(spark, folder / "warm", parts[cuts[0]], places, cuts[0])
    ours = {
        batches: [
            _fjord(spark, folder / f"fjord-{batches}-{turn}", parts[count], places, batches) for turn in range(turns)
        ]
        for count, batches in cases
    }
    spark.stop()  # Java keeps its threads, but does nothing any more
    found = []
    for (_, batches), plain in zip(cases, _plain_spark(folder, turns, cases), strict=True):
        if len({count for _, count in ours[batches]} | {count for way in plain.values() for _, count in way}) > 1:
            raise SystemExit(f"the answers differ: {ours[batches]} in Fjord, {plain} in plain Spark")
        fjord_s = statistics.median(seconds for seconds, _ in ours[batches])
        plain_s = {way: statistics.median(seconds for seconds, _ in runs) for way, runs in plain.items()}
        found.append(
            {
                "micro_batches": batches,
                "tuples": tuples,
                "rows": rows,
                "answers": ours[batches][0][1],
                "fjord_s": round(fjord_s, 2),
                **{f"plain_{way}_s": round(seconds, 2) for way, seconds in plain_s.items()},
                "fjord_tuples_per_s": round(tuples / fjord_s),
                "plain_spark_tuples_per_s": round(tuples / min(plain_s.values())),
                "over_plain_spark": round(min(plain_s.values()) / fjord_s, 2),
            }
        )
    return found


def _plain_spark(
    folder: Path, turns: int, cases: Sequence[tuple[int, int]]
) -> list[dict[str, list[tuple[float, int]]]]:
    script = Path(__file__).parent / "plain_spark_join.py"
    words = [f"{files}:{batches}" for files, batches in cases]
    ran = subprocess.run(
        [sys.executable, str(script), str(folder), str(turns), *words], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(ran.stdout.splitlines()[-1])  # type: ignore[no-any-return] # it is our own


def _places(rows: int) -> pl.DataFrame:
    dice = np.random.default_rng(3)
    keys = dice.permutation(rows)
    return pl.DataFrame({"key": keys, "high": np.full(rows, rows * 0.999), "name": [f"place {key}" for key in keys]})


def _fjord(
    spark: Any, folder: Path, parts: list[pl.DataFrame], places: pl.DataFrame, micro_batches: int
) -> tuple[float, int]:
    change_places(folder, places)
    rows = sum(part.height for part in parts)
    fjord = FjordInSpark(spark, folder, max_rows=rows // micro_batches)
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
    cases = [f"{each['micro_batches']}" for each in report["join"]]
    for shift, (key, name) in enumerate(names.items()):
        heights = [each["tuples"] / each[key] / 1000 for each in report["join"]]
        join.bar([place + 0.27 * (shift - 1) for place in range(len(cases))], heights, 0.25, label=name)
    join.set_xticks(range(len(cases)), cases)
    size = report["join"][0]
    title = f"{size['tuples']:,} tuples with {size['rows']:,} rows"
    join.set(xlabel="micro-batches", ylabel="1000 tuples per second", title=title)
    join.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
