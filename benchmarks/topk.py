"""First rows of snapshots over a thousand keys: tuples per second, and the ratio to the same queries without ORDER BY.

A tuple per key and second comes in batches, as from a stream. Places are those of tuples in a window that slides with
every tuple, for each key and for all together; those of groups, a list for each slide; and the best of each key so far.
The first rows of the windows by tuples are compared with those that Polars finds at some instants.

    python benchmarks/topk.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import polars as pl
from operators import KEYS, SECOND_US, Running, batches, made
from reports import write_report

from cluster.fjord.batch import END, START

WINDOW_S = 60
_WINDOW = f"WINDOW(RANGE {WINDOW_S} SECONDS)"
_WINDOWED = f"SELECT k, x FROM readings {_WINDOW}"
_PLACED = "SELECT k, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS n"
_GROUPS = f"SELECT k, MAX(x) AS top FROM readings WINDOW(RANGE {WINDOW_S} SECONDS SLIDE 10 SECONDS) GROUP BY k"
QUERIES = {
    "topk": (f"SELECT k, x FROM ({_PLACED} FROM readings {_WINDOW}) AS r WHERE n <= 3", _WINDOWED),
    "places": (f"{_PLACED} FROM readings {_WINDOW} QUALIFY n <= 3", _WINDOWED),
    "all_keys": (f"{_WINDOWED} ORDER BY x DESC, k LIMIT 10", _WINDOWED),
    "groups": (f"{_GROUPS} ORDER BY 2 DESC, k LIMIT 10", _GROUPS),
    "records": (
        f"{_PLACED} FROM readings WINDOW(RANGE UNBOUNDED) QUALIFY n = 1",
        "SELECT k, x FROM readings WINDOW(RANGE UNBOUNDED)",
    ),
}
"""By name: a query, and the same without places."""


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer tuples and rounds")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    tuples, rounds = (200_000, 3) if options.quick else (1_000_000, 5)
    rows = made(tuples, seed=5)
    report: dict[str, Any] = {"tuples": tuples, "keys": KEYS, "rounds": rounds, **measured(rows, rounds)}
    write_report(report, "topk", lambda path: plot(report, path), as_json=options.json)


def measured(rows: pl.DataFrame, rounds: int) -> dict[str, float]:
    """Return by query the rows, tuples per second of processor time, and the median ratio to the one without places."""
    cut = list(batches({"readings": rows}))
    report: dict[str, float] = {}
    for name, (query, without) in QUERIES.items():
        seconds: dict[str, list[float]] = {query: [], without: []}
        answers: dict[str, pl.DataFrame] = {}
        for _ in range(rounds):
            for sql, spent in seconds.items():
                began = time.process_time()
                running = Running(sql)
                answers[sql] = pl.concat([running.feed(batch, watermark_us) for batch, watermark_us in cut])
                spent.append(time.process_time() - began)
        check(name, answers[query], rows)
        report[f"{name}_rows"] = answers[query].height
        report[f"{name}_tuples_per_s"] = round(rows.height / statistics.median(seconds[query]))
        ratios = [one / other for one, other in zip(seconds[query], seconds[without], strict=True)]
        report[f"{name}_over_without"] = round(statistics.median(ratios), 2)
    return report


def check(name: str, found: pl.DataFrame, rows: pl.DataFrame) -> None:
    """Stop if the first rows at some instants differ from those of Polars: a fast wrong answer is worth nothing."""
    if name not in ("topk", "places", "all_keys"):
        return
    last = int(rows.select(pl.col(START).max()).item())
    for at in (last // 3, last // 2, last - 2 * WINDOW_S * SECOND_US):
        valid = rows.filter(pl.col(START).is_between(at - WINDOW_S * SECOND_US + 1, at))
        valid = valid.sort("x", "k", descending=[True, False])
        first = valid.head(10) if name == "all_keys" else valid.group_by("k").head(3)
        answered = found.filter((pl.col(START) <= at) & (pl.col(END) > at))
        sums = [(each.height, round(float(each["x"].sum()), 6), each["k"].sum()) for each in (answered, first)]
        if sums[0] != sums[1]:
            raise SystemExit(f"{name}: Fjord answers {sums[0]}, by hand it is {sums[1]}")


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw tuples per second of each query."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, bars = plt.subplots(figsize=(8, 4))
    names = [*QUERIES]
    bars.bar(names, [report[f"{name}_tuples_per_s"] / 1e3 for name in names], color="tab:blue")
    bars.axhline(100, color="tab:grey", linestyle="--")
    bars.set(ylabel="thousand tuples per second and core")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
