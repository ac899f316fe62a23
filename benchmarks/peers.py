"""Other engines with many queries over as many rows, each at its best; what each reads and writes is in the report.

N filters, each for one row in a thousand, over two million rows:

=============  ==============================  =================================  =====================================
engine         reads                           writes                             time
=============  ==============================  =================================  =====================================
Fjord          its stream table on disk        numbered rows, on disk and synced  from the plan to the last answer
Flink SQL      its own generator               nothing (blackhole)                net run time of the warm job
Pathway        CSV files, its fastest input    nothing (null)                     less what it takes over no rows
DuckDB         a table in memory               tables in memory                   one statement after the other
plain PySpark  a cached table in memory        nothing (noop)                     one statement after the other, warm
=============  ==============================  =================================  =====================================

So the others do less: a ratio is a lower bound of what Fjord is faster by where answers have to be kept. A difference
between two times that is smaller than their spreads is refused. A run of Flink's that does not end in ten minutes is
given up, and says how many times as fast Fjord is at least.

    python benchmarks/peers.py [--quick] [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

# In Spark's workers operators use one thread each.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import duckdb
import polars as pl
import typer
from fjord_in_spark import FjordInSpark
from hosted_dataflow import KEYS, filter_queries, planned, readings
from one_query import MAX_ROWS, STEP_US, VERSIONS
from reports import keep_figures, write_report
from rich.console import Console
from rich.table import Table

from cluster.spark.session import SessionSettings, open_session
from cluster.spark.spark_log import SparkLog
from cluster.storage.committed_results import CommittedResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
PACKAGES = {"flink": "apache-flink>=2.3,<3", "pathway": "pathway"}
COUNTS = (1, 32, 128, 1000)
WARM_UPS = 2
INSTALL_SECONDS, PROCESS_SECONDS, FLINK_RUN_SECONDS = 600, 3600, 600
SMALLEST_SECONDS = 0.01
READS_AND_WRITES = {
    "fjord": {"reads": "its stream table on disk", "writes": "numbered rows, on disk and synced"},
    "flink": {"reads": "its own generator", "writes": "nothing"},
    "pathway": {"reads": "CSV files", "writes": "nothing"},
    "duckdb": {"reads": "a table in memory", "writes": "tables in memory"},
    "pyspark": {"reads": "a cached table in memory", "writes": "nothing"},
}


class PeerError(Exception):
    """A peer that cannot be installed or run here."""


class UnfinishedError(PeerError):
    """A peer that was given up.

    Parameters
    ----------
    seconds
        Net, that it had run for.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no end after {seconds:.0f} s, net")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Asked:
    """What is measured: how many filters over how many rows, and how often."""

    rows: int
    count: int
    rounds: int


Measure = Callable[[Asked, list[str]], list[float]]
"""Returns the seconds of each round."""


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the rows, and up to 32 queries.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    rows: Annotated[int, typer.Option(help="Rows of the stream.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(help="Measurements of each.")] = 3,
    most: Annotated[int, typer.Option(help="Most queries.")] = max(COUNTS),
) -> None:
    """Other engines with many filters over the same rows."""
    rows, rounds, most = (rows // 10, 1, min(most, 32)) if quick else (rows, rounds, most)
    say = Console(stderr=True, quiet=as_json).print
    report: dict[str, Any] = {"rows": rows, "rounds": rounds, "engines": {"fjord": {**READS_AND_WRITES["fjord"]}}}
    contenders: dict[str, Measure] = {}
    for name, package in ({} if quick else PACKAGES).items():
        try:
            contenders[name] = partial(PEERS[name], installed(name, package, say))
        except PeerError as error:
            say(f"{name} is skipped: {error}")
            report["engines"][name] = {"skipped": str(error)}
    with tempfile.TemporaryDirectory(prefix="fjord-peers-") as temporary:
        folder = Path(temporary)
        given = readings(rows).select(pl.col("fjord_start_us").alias("stamp"), "k", "x")
        given.write_parquet(folder / "rows.parquet")
        contenders["duckdb"] = partial(duckdb_in_memory, given)
        spark = open_session(SessionSettings(), folder / "spark", SparkLog(folder / "spark.log"))
        contenders["pyspark"] = partial(pyspark_in_memory, spark, folder / "rows.parquet")
        try:
            engine = stored(spark, folder / "fjord", rows)
            for count in [each for each in COUNTS if each <= most]:
                say(f"{count} filters over {rows:,} rows")
                compare(report, engine, contenders, Asked(rows, count, rounds), say)
                keep_figures(report, "peers")
            engine.stop()
        finally:
            spark.stop()
    show(report, say)
    write_report(report, "peers", lambda path: plot(report, path), as_json=as_json)


def compare(
    report: dict[str, Any],
    engine: FjordInSpark,
    contenders: dict[str, Measure],
    asked: Asked,
    say: Callable[[str], None],
) -> None:
    """Add to a report how long each engine takes, and how many times as long as Fjord."""
    count, texts = str(asked.count), filter_queries(asked.count)
    ours, answers = fjord(engine, texts, asked.rounds)
    report.setdefault("answers", {})[count] = answers
    report["engines"]["fjord"].setdefault("seconds", {})[count] = described(ours)
    for name, measure in list(contenders.items()):
        own = report["engines"].setdefault(name, {**READS_AND_WRITES[name]})
        try:
            theirs = measure(asked, [text.partition(" WHERE ")[2] for text in texts])
        except PeerError as error:
            say(f"{name} ends with {count} queries: {error}")
            own["ended"] = f"with {count} queries: {error}"
            if isinstance(error, UnfinishedError):
                own["times_fjord_at_least"] = {count: round(error.seconds / statistics.median(ours), 2)}
                del contenders[name]
            continue
        own.setdefault("seconds", {})[count] = described(theirs)
        own.setdefault("times_fjord", {})[count] = round(statistics.median(theirs) / statistics.median(ours), 2)


def show(report: dict[str, Any], say: Callable[..., None]) -> None:
    """Print all engines in one table, with what each reads and writes."""
    counts = list(report["answers"])
    table = Table("engine", "reads", "writes", *(f"{each} filters" for each in counts))
    for name, found in report["engines"].items():
        cells = []
        for count in counts:
            seconds, times = (found.get(key, {}).get(count) for key in ("seconds", "times_fjord"))
            cells.append("" if seconds is None else f"{seconds['median']:.3f} s" + (f" ({times}x)" if times else ""))
        table.add_row(name, found.get("reads", ""), found.get("writes", found.get("skipped", "")), *cells)
    say(table)


def described(seconds: list[float]) -> dict[str, Any]:
    """Return median and spread."""
    return {
        "median": round(statistics.median(seconds), 3),
        "spread": [round(min(seconds), 3), round(max(seconds), 3)],
    }


def installed(name: str, package: str, say: Callable[[str], None]) -> Path:
    """Return the Python of a peer's environment, which is made if it does not exist.

    Raises
    ------
    PeerError
        If the package cannot be installed.
    """
    folder = ROOT / f".venv-{name}"
    python, done = folder / "bin" / "python", folder / ".installed"
    if done.exists():
        return python
    say(f"installing {package} in {folder.name}")
    try:
        venv.create(folder, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", package], "", INSTALL_SECONDS)
    except OSError as error:
        raise PeerError(str(error)) from error
    done.touch()
    return python


def _run(command: list[str], given: str, seconds: float) -> str:
    try:
        ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"no end after {seconds:.0f} s") from error
    if ended.returncode:
        raise PeerError(reason_in(ended.stderr.strip().splitlines()))
    return ended.stdout


def reason_in(lines: list[str]) -> str:
    """Return the line that says why a program has failed: of pip, the error; of Java, the innermost cause."""
    reasons = [line for line in lines if line.startswith("ERROR") or "Caused by: " in line]
    return (reasons or lines or ["no reason given"])[-1].strip()


def stored(spark: Any, folder: Path, rows: int) -> FjordInSpark:
    """Return a running engine that has the rows in its stream's table."""
    engine, size = FjordInSpark(spark, folder, max_rows=MAX_ROWS), rows // VERSIONS
    for number in range(VERSIONS):
        engine.append(readings(size, first=number * size), (number + 1) * size * STEP_US)
    return engine


def fjord(engine: FjordInSpark, texts: list[str], rounds: int) -> tuple[list[float], int]:
    """Measure Fjord: from the plan to the last numbered answer on disk."""
    seconds, answers = [], 0
    for _ in range(rounds + WARM_UPS):
        queries, before = [planned(text, number) for number, text in enumerate(texts, 1)], engine.results.version
        began = time.perf_counter()
        engine.run_plan(queries, after_version=0)
        engine.wait()
        seconds.append(time.perf_counter() - began)
        versions = range(before + 1, engine.results.version + 1)
        committed = CommittedResults(engine.results.root)
        answers = sum(committed.commit(version, engine.results.version).num_rows for version in versions)
        engine.run_plan([])
        engine.wait()
    return seconds[WARM_UPS:], answers


def flink(python: Path, asked: Asked, conditions: list[str]) -> list[float]:
    """Measure Flink.

    Raises
    ------
    UnfinishedError
        If a run is given up.
    """
    script = Path(__file__).with_name("flink_peer.py")
    command = [str(python), str(script), str(asked.rows), str(KEYS), str(asked.rounds), str(FLINK_RUN_SECONDS)]
    found = json.loads(_run(command, "\n".join(conditions), PROCESS_SECONDS).splitlines()[-1])
    if "unfinished_s" in found:
        raise UnfinishedError(found["unfinished_s"])
    return list(found["net"])


def pathway(python: Path, asked: Asked, conditions: list[str]) -> list[float]:
    """Measure Pathway.

    Raises
    ------
    PeerError
        If what it takes beyond its start-up is smaller than the spread of both.
    """
    script = Path(__file__).with_name("pathway_peer.py")

    def run(folder: Path) -> float:
        printed = _run([str(python), str(script), str(folder)], "\n".join(conditions), PROCESS_SECONDS)
        return float(json.loads(printed.splitlines()[-1])["seconds"])

    with tempfile.TemporaryDirectory(prefix="fjord-pathway-") as temporary:
        full, empty = Path(temporary) / "rows", Path(temporary) / "nothing"
        for folder in (full, empty):
            folder.mkdir()
        rows = readings(asked.rows).select(pl.col("fjord_start_us").alias("stamp"), "k", "x")
        rows.write_csv(full / "0.csv")
        rows.clear().write_csv(empty / "0.csv")
        nothing = [run(empty) for _ in range(asked.rounds)]
        return net_of([run(full) for _ in range(asked.rounds)], nothing)


def net_of(seconds: list[float], nothing: list[float]) -> list[float]:
    """Return times less what they take over no rows.

    Raises
    ------
    PeerError
        If the difference is smaller than the spread of both: then nothing has been measured.
    """
    difference = statistics.median(seconds) - statistics.median(nothing)
    spread = max(seconds) - min(seconds) + max(nothing) - min(nothing)
    if difference <= max(spread, SMALLEST_SECONDS):
        raise PeerError(f"{difference:.3f} s beyond its start-up are not more than the spread of {spread:.3f} s")
    return [each - statistics.median(nothing) for each in seconds]


def duckdb_in_memory(rows: pl.DataFrame, asked: Asked, conditions: list[str]) -> list[float]:
    """Measure DuckDB over a table of its own in memory, into tables in memory."""
    connection = duckdb.connect(config={"threads": os.cpu_count() or 1})
    connection.register("given", rows.to_arrow())
    connection.execute("CREATE TABLE readings AS SELECT stamp, k, x FROM given")
    seconds = []
    for _ in range(asked.rounds + WARM_UPS):
        began = time.perf_counter()
        for number, condition in enumerate(conditions):
            connection.execute(
                f"CREATE OR REPLACE TEMP TABLE q{number} AS SELECT stamp, k, x FROM readings WHERE {condition}"
            )
        seconds.append(time.perf_counter() - began)
    connection.close()
    return seconds[WARM_UPS:]


def pyspark_in_memory(spark: SparkSession, rows: Path, asked: Asked, conditions: list[str]) -> list[float]:
    """Measure plain PySpark over a cached table, with answers that are thrown away."""
    table = spark.read.parquet(str(rows)).cache()
    table.count()
    seconds = []
    for _ in range(asked.rounds + 1):
        began = time.perf_counter()
        for condition in conditions:
            table.where(condition).write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    table.unpersist()
    return seconds[1:]


PEERS = {"flink": flink, "pathway": pathway}


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw seconds against the number of queries."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, engine in report["engines"].items():
        found = engine.get("seconds", {})
        axes.loglog([int(count) for count in found], [each["median"] for each in found.values()], "o-", label=name)
    axes.set(xlabel="filters", ylabel=f"seconds for {report['rows']:,} rows")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
