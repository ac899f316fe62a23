"""Other engines with many queries, over the same rows: Apache Flink SQL and Pathway, in environments of their own.

N filters, each for one row in a thousand, over two million rows: Fjord from its stream table to numbered rows on disk
in the results table; Flink in one statement set, Pathway in one dataflow, both from CSV files to CSV files, which is
what their packages read. Start-up is left out: Spark's session is warm, and of a peer's time over all rows, its time
over no rows is subtracted. What was measured is written after each count of filters; a run of Flink's that does not
end in ten minutes is given up, and says how many times as fast Fjord is at least.

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
from pathlib import Path
from typing import Annotated, Any

# In Spark's workers operators use one thread each.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import polars as pl
import typer
from fjord_in_spark import FjordInSpark
from hosted_dataflow import filter_queries, planned, readings
from one_query import MAX_ROWS, STEP_US, VERSIONS
from reports import keep_figures, write_report
from rich.console import Console

from cluster.spark.session import SessionSettings, open_session
from cluster.spark.spark_log import SparkLog
from cluster.storage.committed_results import CommittedResults

ROOT = Path(__file__).parents[1]
PACKAGES = {"flink": "apache-flink>=2.3,<3", "pathway": "pathway"}
COUNTS = (1, 32, 128, 1000)
WARM_UPS = 2
INSTALL_SECONDS, PROCESS_SECONDS, FLINK_RUN_SECONDS = 600, 3600, 600
Measure = Callable[[Path, list[str], int], tuple[list[float], int]]
"""Returns seconds, net, of each round, and how many rows were answered."""


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
    """What is measured: how many filters, how often, and over which files."""

    folder: Path
    count: int
    rounds: int


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
    report: dict[str, Any] = {"rows": rows, "rounds": rounds}
    pythons = {}
    for name, package in PACKAGES.items():
        try:
            pythons[name] = installed(name, package, say)
        except PeerError as error:
            say(f"{name} is skipped: {error}")
            report[f"{name}_skipped"] = str(error)
    with tempfile.TemporaryDirectory(prefix="fjord-peers-") as temporary:
        folder = Path(temporary)
        write_csv(folder, rows)
        contenders: dict[str, Measure] = {}
        if "flink" in pythons:
            contenders["flink"] = lambda *asked: flink(pythons["flink"], *asked)
        if "pathway" in pythons:
            contenders["pathway"] = lambda *asked: pathway(pythons["pathway"], *asked)
        spark = open_session(SessionSettings(), folder / "spark", SparkLog(folder / "spark.log"))
        try:
            engine = stored(spark, folder / "fjord", rows)
            for count in [each for each in COUNTS if each <= most] if contenders else []:
                say(f"{count} filters over {rows:,} rows")
                compare(report, engine, contenders, Asked(folder, count, rounds), say)
                keep_figures(report, "peers")
            engine.stop()
        finally:
            spark.stop()
    compared = any(f"filters_over_{name}" in report for name in PACKAGES)
    write_report(report, "peers", (lambda path: plot(report, path)) if compared else None, as_json=as_json)


def compare(
    report: dict[str, Any],
    engine: FjordInSpark,
    contenders: dict[str, Measure],
    asked: Asked,
    say: Callable[[str], None],
) -> None:
    """Add to a report how many times as fast Fjord answers as each peer."""
    count, texts = asked.count, filter_queries(asked.count)
    ours, answers = fjord(engine, texts, asked.rounds)
    report.setdefault("fjord_s", {})[str(count)] = described(ours)
    for name, measure in list(contenders.items()):
        try:
            theirs, answered = measure(asked.folder, [text.partition(" WHERE ")[2] for text in texts], asked.rounds)
        except PeerError as error:
            say(f"{name} ends with {count} queries: {error}")
            report[f"{name}_ended"] = f"with {count} queries: {error}"
            if isinstance(error, UnfinishedError):
                at_least = error.seconds / statistics.median(ours)
                report[f"filters_over_{name}_at_least"] = {str(count): round(at_least, 2)}
            del contenders[name]
            continue
        if answered != answers:
            raise SystemExit(f"{count} filters: Fjord answers {answers} rows, {name} {answered}")
        report.setdefault(f"{name}_net_s", {})[str(count)] = described(theirs)
        ratio = statistics.median(theirs) / statistics.median(ours)
        report.setdefault(f"filters_over_{name}", {})[str(count)] = round(ratio, 2)


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


def write_csv(folder: Path, rows: int) -> None:
    """Write the rows for peers, and files without rows; Pathway wants the names of columns, and Flink none."""
    size = rows // VERSIONS
    for header, below in ((False, folder), (True, folder / "named")):
        (below / "rows").mkdir(parents=True)
        (below / "nothing").mkdir()
        (below / "nothing" / "0.csv").write_text("stamp,k,x\n" if header else "")
        for number in range(VERSIONS):
            part = readings(size, first=number * size).select(pl.col("fjord_start_us").alias("stamp"), "k", "x")
            part.write_csv(below / "rows" / f"{number}.csv", include_header=header)


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


def flink(python: Path, folder: Path, conditions: list[str], rounds: int) -> tuple[list[float], int]:
    """Measure Flink.

    Raises
    ------
    UnfinishedError
        If a run is given up.
    """
    script = Path(__file__).with_name("flink_peer.py")
    command = [str(python), str(script), str(folder), str(rounds), str(FLINK_RUN_SECONDS)]
    printed = _run(command, "\n".join(conditions), PROCESS_SECONDS)
    found = json.loads(printed.splitlines()[-1])
    if "unfinished_s" in found:
        raise UnfinishedError(found["unfinished_s"])
    nothing = statistics.median(found["nothing"])
    return [seconds - nothing for seconds in found["rows"]], found["answers"]


def pathway(python: Path, folder: Path, conditions: list[str], rounds: int) -> tuple[list[float], int]:
    """Measure Pathway."""
    script = Path(__file__).with_name("pathway_peer.py")

    def run(source: str) -> dict[str, Any]:
        printed = _run(
            [str(python), str(script), str(folder / "named"), source], "\n".join(conditions), PROCESS_SECONDS
        )
        result: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return result

    nothing = statistics.median(run("nothing")["seconds"] for _ in range(rounds))
    found = [run("rows") for _ in range(rounds)]
    return [each["seconds"] - nothing for each in found], found[-1]["answers"]


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw seconds against the number of queries."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(6, 4))
    for key in ("fjord_s", *(f"{name}_net_s" for name in PACKAGES)):
        found = report.get(key, {})
        axes.loglog([int(count) for count in found], [each["median"] for each in found.values()], "o-", label=key)
    axes.set(xlabel="filters", ylabel=f"seconds for {report['rows']:,} rows")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
