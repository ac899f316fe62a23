"""Aggregates of sessions against the same aggregates of tumbling windows, over the same tuples.

A million tuples of a thousand keys, each of which sends about sixty tuples within a minute and then none for a minute:
mean and count of each session, and of each key and minute. Both are run from their text on the operators upstream and
downstream of the shuffle, without Spark, in batches and in turns. The sessions are compared with those of one Polars
expression over all tuples at once.

    python benchmarks/sessions.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import numpy as np
import polars as pl
from operators import BATCH_ROWS, KEYS, SECOND_US, Running, batches
from reports import write_report

from cluster.fjord.batch import END, START

ACTIVE = 60
"""Tuples of a key in a row, about a second apart; it is then silent as long."""
GAP_US = 20 * SECOND_US
SESSIONS = (
    "SELECT k, AVG(x) AS mean, COUNT(*) AS n FROM readings WINDOW(SESSION GAP 20 SECONDS PARTITION BY k) GROUP BY k"
)
TUMBLING = "SELECT k, AVG(x) AS mean, COUNT(*) AS n FROM readings WINDOW(RANGE 60 SECONDS SLIDE 60 SECONDS) GROUP BY k"
EARLY = SESSIONS.replace("PARTITION", "EARLY PARTITION")


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    rounds = 3 if options.quick else 9
    report = measured(made(1_000_000, seed=1), rounds)
    write_report(report, "sessions", lambda path: plot(report, path), as_json=options.json)


def made(count: int, *, seed: int) -> pl.DataFrame:
    """Return about `count` tuples in the order of their stamps: START, END, k, x."""
    dice = np.random.default_rng(seed)
    number = np.arange(count // KEYS)
    at_s = (number // ACTIVE * 2 + number % ACTIVE / ACTIVE) * ACTIVE
    stamps = np.concatenate([
        (at_s * SECOND_US).astype(np.int64) + dice.integers(0, SECOND_US, len(at_s)) + dice.integers(0, 2 * GAP_US)
        for _ in range(KEYS)
    ])  # fmt: skip
    rows = pl.DataFrame({
        START: stamps, END: stamps + 1, "k": np.repeat(np.arange(KEYS), len(at_s)),
        "x": dice.normal(50.0, 10.0, len(stamps)),
    })  # fmt: skip
    return rows.sort(START)


def measured(rows: pl.DataFrame, rounds: int) -> dict[str, Any]:
    """Return medians of both, and their ratio in the same rounds, after checking the sessions."""
    cut = list(batches({"readings": rows}))
    seconds: dict[str, list[float]] = {"session": [], "tumbling": [], "early": []}
    answers: dict[str, int] = {}
    for _ in range(rounds + 1):  # the first round warms up
        for name, sql in (("session", SESSIONS), ("tumbling", TUMBLING), ("early", EARLY)):
            began = time.process_time()
            running = Running(sql)
            found = pl.concat([running.feed(batch, watermark) for batch, watermark in cut])
            seconds[name].append(time.process_time() - began)
            answers[name] = found.height
            if name == "session":
                check(found, rows)
    report: dict[str, Any] = {"tuples": rows.height, "keys": KEYS, "batch_rows": BATCH_ROWS, "rounds": rounds}
    for name, found_s in seconds.items():
        report[f"{name}_rows"] = answers[name]
        report[f"{name}_processor_s"] = round(statistics.median(found_s[1:]), 4)
        report[f"{name}_tuples_per_second"] = round(rows.height / statistics.median(found_s[1:]))
    for name in ("session", "early"):
        ratios = [one / other for one, other in zip(seconds[name][1:], seconds["tumbling"][1:], strict=True)]
        report[f"{name}_over_tumbling"] = round(statistics.median(ratios), 2)
        report[f"{name}_over_tumbling_spread"] = [round(min(ratios), 2), round(max(ratios), 2)]
    return report


def check(found: pl.DataFrame, rows: pl.DataFrame) -> None:
    """Stop if the sessions differ from those of one expression: a fast wrong answer is worth nothing."""
    new = (pl.col(START) - pl.col(START).shift(1) > GAP_US).fill_null(value=True)
    by_hand = (
        rows.sort("k", START)
        .with_columns(new.cum_sum().over("k").alias("session"))
        .group_by("k", "session")
        .agg(pl.col("x").mean().alias("mean"), pl.len().alias("n"), pl.col(START).max() + GAP_US)
    )
    sums = [
        (each.height, each["n"].sum(), round(float(each["mean"].sum()), 3), each[START].sum())
        for each in (found, by_hand)
    ]
    if sums[0] != sums[1]:
        raise SystemExit(f"Fjord answers {sums[0]}, by hand it is {sums[1]}")


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw the tuples per second of processor time."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, bars = plt.subplots(figsize=(6, 4))
    names = {"tumbling": "tumbling windows", "session": "sessions", "early": "sessions, early"}
    for place, (name, words) in enumerate(names.items()):
        bars.bar(
            place, report[f"{name}_tuples_per_second"] / 1e6, color="tab:grey" if name == "tumbling" else "tab:blue"
        )
        bars.text(place, 0, words, ha="center", va="bottom", color="white")
    bars.set(xticks=[], ylabel="million tuples per second of processor time")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
