"""Patterns of rows over a thousand keys: tuples per second, and the ratio to the same query without a pattern.

Tuples come in batches, as from a stream, a tuple per key and second. The patterns differ in how often a search begins,
and in what their conditions read: the row alone, the one before it, or the rows matched so far.

    python benchmarks/patterns.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from operators import KEYS, Running, batches, made
from reports import write_report

_MATCH = (
    "SELECT * FROM readings MATCH_RECOGNIZE (PARTITION BY k ORDER BY STAMP() "
    "MEASURES FIRST(x) AS first, LAST(x) AS last, COUNT(*) AS n PATTERN ({}) WITHIN 60 SECONDS DEFINE {}) AS m"
)
QUERIES = {
    "without": "SELECT k, x FROM readings WHERE x > 50",
    "rare": _MATCH.format("A B+", "A AS A.x > 80, B AS B.x < 50"),
    "row": _MATCH.format("A B+", "A AS A.x > 50, B AS B.x < 50"),
    "previous": _MATCH.format("low up{2,} down", "up AS up.x > PREV(up.x), down AS down.x < PREV(down.x)"),
    "reaching": _MATCH.format("A B+", "A AS A.x > 50, B AS B.x < A.x - 10"),
    "aggregate": _MATCH.format("A+ B", "A AS AVG(A.x) < 52, B AS B.x > 50"),
}
"""The last two have conditions that read the rows matched so far."""


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer tuples and rounds")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    tuples, rounds = (200_000, 3) if options.quick else (1_000_000, 5)
    report: dict[str, Any] = {"tuples": tuples, "keys": KEYS, "rounds": rounds, **measured(tuples, rounds)}
    write_report(report, "patterns", lambda path: plot(report, path), as_json=options.json)


def measured(tuples: int, rounds: int) -> dict[str, float]:
    """Return by query the rows, the tuples per second of processor time, and the median ratio to the one without."""
    cut = list(batches({"readings": made(tuples, seed=5)}))
    seconds: dict[str, list[float]] = {name: [] for name in QUERIES}
    rows = dict.fromkeys(QUERIES, 0)
    for _ in range(rounds):
        for name, sql in QUERIES.items():
            began = time.process_time()
            running = Running(sql)
            rows[name] = sum(running.feed(batch, watermark_us).height for batch, watermark_us in cut)
            seconds[name].append(time.process_time() - began)
    report: dict[str, float] = {}
    for name, spent in seconds.items():
        report[f"{name}_rows"] = rows[name]
        report[f"{name}_tuples_per_s"] = round(tuples / statistics.median(spent))
        ratios = [one / other for one, other in zip(spent, seconds["without"], strict=True)]
        report[f"{name}_over_without"] = round(statistics.median(ratios), 1)
    return report


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw tuples per second of each query."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, bars = plt.subplots(figsize=(8, 4))
    names = [*QUERIES]
    bars.bar(names, [report[f"{name}_tuples_per_s"] for name in names], color="tab:blue")
    bars.set(ylabel="tuples per second and core", yscale="log")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
