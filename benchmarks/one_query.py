"""One query alone, and some windowed ones together, over a stored stream: against DuckDB on the same files.

Two million rows of a stream table, read by the engine in a Spark session that is warm, as far as numbered answers on
disk in the results table; DuckDB reads the same Parquet files, with as many threads as the machine has cores, and
writes Parquet. Both have answered the same queries some times before. The answers of both are compared. One filter
passes a row in a thousand, the other half of them: its answers are written by Spark's tasks.

    python benchmarks/one_query.py [--quick] [--json]
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

# In Spark's workers operators use one thread each.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import duckdb_peer
import polars as pl
import psutil
import typer
from duckdb_peer import AGGREGATES, Filter, Window
from fjord_in_spark import FjordInSpark
from hosted_dataflow import WINDOWS, planned, readings
from reports import write_report
from rich.console import Console

from cluster.spark.session import SessionSettings, open_session
from cluster.spark.spark_log import SparkLog
from cluster.storage.committed_results import CommittedResults

STEP_US = 1_000
VERSIONS = 16
WARM_UPS, QUICK_WARM_UPS = 15, 8
"""Java compiles what has run often: a cluster that has run for some seconds is that warm."""
MOST_QUICK = 32
"""Windowed queries together with --quick."""
MAX_ROWS = 500_000
"""Of one micro-batch, as in a cluster that is not configured otherwise."""
Queries = Sequence[Filter] | Sequence[Window]

ALONE: dict[str, Queries] = {
    "filter": [Filter("k = 0")],
    "half": [Filter("k < 500")],
    "window": [Window(("AVG(x)", "COUNT(*)"), 60, 10)],
}
TOGETHER: dict[int, Queries] = {
    32: [Window((aggregate,), 60 * size, 60 * slide) for size, slide in WINDOWS[::5] for aggregate in AGGREGATES[:8]],
    200: [Window((aggregate,), 60 * size, 60 * slide) for size, slide in WINDOWS for aggregate in AGGREGATES],
}


@dataclass
class Measured:
    """One contender's times over the same queries."""

    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)

    def over(self, peer: Measured, name: str) -> dict[str, Any]:
        """Return how many times as long as a peer it took, in the same rounds."""
        ratios = [one / other for one, other in zip(self.seconds, peer.seconds, strict=True)]
        return {
            name: round(statistics.median(ratios), 2),
            f"{name}_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        }

    def described(self, name: str) -> dict[str, Any]:
        """Return medians and spreads."""
        return {
            f"{name}_s": round(statistics.median(self.seconds), 3),
            f"{name}_s_spread": [round(min(self.seconds), 3), round(max(self.seconds), 3)],
            f"{name}_processor_s": round(statistics.median(self.processor_seconds), 3),
        }


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Three rounds, no 200 windows: within a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    rows: Annotated[int, typer.Option(help="Rows of the stream.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(help="Measurements of each.")] = 5,
) -> None:
    """One query alone and windowed ones together, against DuckDB on the same files."""
    rounds, warm_ups = (min(rounds, 3), QUICK_WARM_UPS) if quick else (rounds, WARM_UPS)
    say = Console(stderr=True, quiet=as_json).print
    report: dict[str, Any] = {"rows": rows, "rounds": rounds, "threads": psutil.cpu_count()}
    with tempfile.TemporaryDirectory(prefix="fjord-one-query-") as name:
        spark = open_session(SessionSettings(), Path(name) / "spark", SparkLog(Path(name) / "spark.log"))
        try:
            alone = Comparison(spark, Path(name) / "alone", rows, 1_000, rounds, warm_ups=warm_ups)
            for subject, queries in ALONE.items():
                say(f"one {subject} over {rows:,} rows")
                report[f"one_{subject}"] = alone.run(f"one-{subject}", queries, plain=subject == "window")
            alone.fjord.stop()
            together = Comparison(spark, Path(name) / "together", rows, 100, rounds, warm_ups=warm_ups)
            for count, queries in TOGETHER.items():
                if count <= MOST_QUICK or not quick:
                    say(f"{count} windowed queries over {rows:,} rows")
                    report[f"windows_{count}"] = together.run(f"windows-{count}", queries)
            together.fjord.stop()
        finally:
            spark.stop()
    report["one_over_duckdb"] = {subject: report[f"one_{subject}"]["over_duckdb"] for subject in ALONE}
    found = [count for count in TOGETHER if f"windows_{count}" in report]
    report |= {f"windows_{count}_over_duckdb": report[f"windows_{count}"]["over_duckdb"] for count in found}
    one = report["one_window"]
    report["microseconds_per_windowed_answer"] = round(one["fjord_processor_s"] / one["answers"] * 1e6, 2)
    write_report(report, "one_query", lambda path: plot(report, path), as_json=as_json)


class Comparison:
    """Fjord and DuckDB, which take turns over the same rows.

    Parameters
    ----------
    spark
        The session.
    folder
        For all that is written.
    rows, keys
        Rows of the stream, and the keys among them.
    rounds, warm_ups
        How often each is measured, and run before.
    """

    def __init__(self, spark: Any, folder: Path, rows: int, keys: int, rounds: int, *, warm_ups: int) -> None:
        self._folder = folder
        self._rounds = rounds
        self._warm_ups = warm_ups
        self.fjord = FjordInSpark(spark, folder, max_rows=MAX_ROWS)
        size = rows // VERSIONS
        for number in range(VERSIONS):
            part = readings(size, first=number * size, keys=keys)
            self.fjord.append(part, (number + 1) * size * STEP_US)
        self._watermark_us = VERSIONS * size * STEP_US
        self._files = sorted((folder / "streams" / "readings").glob("*.parquet"))
        self._names = itertools.count(1)

    def run(self, name: str, queries: Queries, *, plain: bool = False) -> dict[str, Any]:
        """Measure both; return medians, spreads and ratios. `plain` has DuckDB answer without panes, too."""
        contenders = {"fjord": Measured(), "duckdb": Measured(), **({"plain_duckdb": Measured()} if plain else {})}
        answers = 0
        for number in range(self._rounds + self._warm_ups):
            found = {}
            for kind, measured in contenders.items():
                folder, before = self._folder / f"{name}-{number}-{kind}", (time.perf_counter(), processor_seconds())
                if kind == "fjord":
                    version = self.fjord.results.version
                    self.answer(queries)
                else:
                    panes = kind == "duckdb"
                    duckdb_peer.answer(self._files, queries, folder, watermark_us=self._watermark_us, panes=panes)
                if number >= self._warm_ups:
                    measured.seconds.append(time.perf_counter() - before[0])
                    measured.processor_seconds.append(processor_seconds() - before[1])
                found[kind] = answered(self.fjord, version) if kind == "fjord" else duckdb_peer.answered(folder)
            answers = found["fjord"][0]
            if any(each[0] != answers or abs(each[1] - found["fjord"][1]) > 1e-6 * each[1] for each in found.values()):
                raise SystemExit(f"{name}: answers differ, as (rows, sum of their values): {found}")
            self.drop_all()
        report: dict[str, Any] = {"queries": len(queries), "answers": answers}
        for kind, measured in contenders.items():
            report |= measured.described(kind)
            if kind != "fjord":
                report |= contenders["fjord"].over(measured, f"over_{kind}")
        return report

    def answer(self, queries: Queries) -> None:
        """Add queries that begin with the stream, and wait until they have been answered in the results table."""
        planned_queries = [planned(query.fjord, next(self._names)) for query in queries]
        self.fjord.run_plan(planned_queries, after_version=0)
        self.fjord.wait()

    def drop_all(self) -> None:
        """Drop all queries, so that the next ones begin with the stream again."""
        self.fjord.run_plan([])
        self.fjord.wait()


def answered(fjord: FjordInSpark, after_version: int) -> tuple[int, float]:
    """Return how many rows were answered, and the sum of all values: a fast wrong answer is worth nothing."""
    versions = range(after_version + 1, fjord.results.version + 1)
    stored, newest = CommittedResults(fjord.results.root), fjord.results.version
    rows = pl.concat([pl.Series(stored.commit(version, newest).column("row")) for version in versions])
    values = rows.str.extract_all(r'"(?:x|answer.)":-?[0-9.e+-]+').explode().str.extract(r":(.+)$", 1)
    return rows.len(), float(values.cast(pl.Float64).sum())


def processor_seconds() -> float:
    """Return the processor time of this process and all below it, Java and Spark's workers included."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw seconds of both, and the ratios."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    subjects = [key for key, value in report.items() if isinstance(value, dict) and "fjord_s" in value]
    figure, (times, ratios) = plt.subplots(1, 2, figsize=(11, 4))
    for place, subject in enumerate(subjects):
        for shift, name, color in ((-0.2, "fjord", "tab:blue"), (0.2, "duckdb", "tab:grey")):
            times.bar(place + shift, report[subject][f"{name}_s"], 0.4, color=color, label=None if place else name)
        ratios.bar(place, report[subject]["over_duckdb"], color="tab:blue")
    for axes in (times, ratios):
        axes.set_xticks(range(len(subjects)), [subject.replace("_", " ") for subject in subjects])
    times.set(ylabel=f"seconds for {report['rows']:,} rows")
    ratios.set(ylabel="times as long as DuckDB")
    times.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
