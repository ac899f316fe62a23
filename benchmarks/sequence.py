"""Functions over tuples in order: LAG over a thousand keys, against the same query without it.

Whole micro-batches of a stream table run on the local host, from the scan to answers, with one thread, so that tuples
per second of processor time are those of one core. Keys come in random order; state is kept and saved as it always is.
Beside LAG: change detection, which answers less, running results, and a mean over the last hundred tuples of each key.

    python benchmarks/sequence.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# In Spark's workers operators use one thread each, and so they do here.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from hosted_dataflow import READINGS, HostedDataflow, append, planned, readings
from reports import write_report

from cluster.storage.stream_tables import StreamTable

KEYS = 1_000
STEP_US = 10
"""A hundred thousand tuples a second."""
OVER = "OVER (PARTITION BY k ORDER BY STAMP()"
QUERIES = {
    "plain": "SELECT k, x FROM readings",
    "lag": f"SELECT k, x, LAG(x) {OVER}) AS before FROM readings",
    "changed": "SELECT k, x FROM readings QUALIFY NOT CHANGED(x) OVER (PARTITION BY k)",
    "running": f"SELECT k, SUM(x) {OVER}) AS total, MAX(x) {OVER}) AS most FROM readings",
    "last_hundred": f"SELECT k, AVG(x) {OVER} ROWS BETWEEN 99 PRECEDING AND CURRENT ROW) AS mean FROM readings",
}
"""By name in the report."""


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer micro-batches")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    versions, rows = (6, 50_000) if options.quick else (20, 100_000)
    report: dict[str, Any] = {"keys": KEYS, "batch_rows": rows, "micro_batches": versions}
    with tempfile.TemporaryDirectory(prefix="fjord-sequence-") as name:
        costs = measured(Path(name), versions, rows)
    for query, seconds in costs.items():
        report[f"{query}_tuples_per_s"] = round(rows / statistics.median(seconds))
        if query != "plain":
            ratios = [one / other for one, other in zip(seconds, costs["plain"], strict=True)]
            report[f"{query}_over_plain"] = round(statistics.median(ratios), 2)
    write_report(report, "sequence", lambda path: plot(report, path), as_json=options.json)


def measured(folder: Path, versions: int, rows: int) -> dict[str, list[float]]:
    """Return, by query, the processor time of each micro-batch but the first."""
    table = StreamTable(str(folder / "streams" / READINGS.name), READINGS)
    hosts = {name: HostedDataflow(folder, [planned(sql, 1)]) for name, sql in QUERIES.items()}
    found: dict[str, list[float]] = {name: [] for name in QUERIES}
    for version in range(1, versions + 1):
        append(table, readings(rows, first=(version - 1) * rows, step_us=STEP_US, keys=KEYS), version * rows * STEP_US)
        for name, host in hosts.items():
            began = time.process_time()
            host.micro_batch(version, version * rows * STEP_US)
            found[name].append(time.process_time() - began)
    answered = {name: sum(host.answers.values()) for name, host in hosts.items()}
    if any(answered[name] != versions * rows for name in ("plain", "lag", "running", "last_hundred")):
        raise SystemExit(f"tuples are missing: {answered}")
    return {name: seconds[1:] for name, seconds in found.items()}


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw tuples per second of each query."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 3.5))
    axes.bar(list(QUERIES), [report[f"{name}_tuples_per_s"] for name in QUERIES], color="tab:blue")
    axes.axhline(100_000, color="tab:grey", linestyle="--")
    axes.set(ylabel="tuples per second and core", title=f"{KEYS:,} keys, micro-batches of {report['batch_rows']:,}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
