"""NEXMark: events per second of each query, by Fjord on Spark and by plain Spark, where that can express the query.

Events of examples/nexmark/generate.py are stored first. Fjord reads its stream tables, as far as numbered answers on
disk; plain Spark reads the same Parquet files and writes Parquet, in one streaming query, of which only the
micro-batches are counted, not its start. Both have a session that is warm, and take turns. That Fjord's answers are
right is tested (tests/cluster/nexmark).

    python benchmarks/nexmark.py [--quick] [--json]
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

# In Spark's workers operators use one thread each.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import nexmark_spark
import polars as pl
import typer
from fjord_in_spark import FjordInSpark
from reports import machine, write_report
from rich.console import Console
from rich.progress import track

from cluster.language.translation import translate
from cluster.plan.epoch import PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.spark.session import SessionSettings, open_session
from cluster.spark.spark_log import SparkLog
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stream_tables import StreamPosition, arrow_schema
from tests.cluster.nexmark.running import (
    QUERIES,
    SIDE_INPUT,
    SIDE_ROWS,
    catalog,
    generator,
    micro_batches,
    schemas,
)

RATE = 10_000
"""Events a second of their own time, as in nexmark/nexmark."""
FILES = 8
MAX_ROWS = 500_000
"""Of one micro-batch, as in a cluster that is not configured otherwise."""


class Contest:
    """Both engines, over the same stored events.

    Parameters
    ----------
    spark
        The session.
    folder
        For all that is written.
    events
        How many.
    """

    def __init__(self, spark: Any, folder: Path, events: int) -> None:
        self._spark, self._folder = spark, folder
        versions = RelationVersions(folder / "relations" / SIDE_INPUT.identity)
        versions.prepare(SIDE_ROWS)
        versions.commit(SIDE_ROWS, {})
        self._fjord = FjordInSpark(spark, folder, max_rows=MAX_ROWS, schemas=schemas())
        self._names = itertools.count(1)
        self._sources = folder / "sources"
        (self._sources / SIDE_INPUT.name).mkdir(parents=True)
        SIDE_ROWS.write_parquet(self._sources / SIDE_INPUT.name / "rows.parquet")
        streams = generator().events(events, rate=RATE).streams
        for batch, watermark_us in micro_batches(streams, FILES):
            for name, rows in batch.items():
                self._store(name, rows.sort("fjord_start_us"), watermark_us)

    def _store(self, name: str, rows: pl.DataFrame, watermark_us: int) -> None:
        table = self._fjord.tables[name]
        schema = arrow_schema(table.schema)
        pieces = rows.with_columns(pl.lit("m").alias("fjord_mote")).to_arrow().select(schema.names).cast(schema)
        table.append([pieces], StreamPosition(watermark_us, {}), {})
        source = self._sources / name
        source.mkdir(exist_ok=True)
        (source / f"{table.version:02}.parquet").hardlink_to(max(Path(table.root).glob("*.parquet"), key=_written))

    def fjord(self, name: str) -> tuple[float, int]:
        """Answer a query over all events; return seconds, and rows."""
        number = next(self._names)
        own = f"{name}-{number}"
        node = rewrite(translate(QUERIES[name], catalog()).node).node
        began = time.perf_counter()
        self._fjord.run_plan([PlannedQuery(own, number, node)], after_version=0)
        self._fjord.wait()
        took = time.perf_counter() - began
        self._fjord.run_plan([])
        self._fjord.wait()
        return took, self._fjord.answers().get(own, 0)

    def plain(self, name: str) -> tuple[float, int]:
        """Answer it by plain Spark."""
        return nexmark_spark.run(self._spark, name, self._sources, self._folder / f"plain-{name}-{next(self._names)}")

    def stop(self) -> None:
        """Stop Fjord's queries."""
        self._fjord.stop()


def _written(file: Path) -> int:
    return file.stat().st_mtime_ns


def main(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="100,000 events, one round: within a minute.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    events: Annotated[int, typer.Option(help="How many.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Measurements of each, after one that does not count.")] = 3,
) -> None:
    """Events per second of each of NEXMark's queries, by Fjord and by plain Spark."""
    events, rounds = (100_000, 1) if quick else (events, rounds)
    console = Console(stderr=True, quiet=as_json)
    report: dict[str, Any] = {"machine": machine(), "events": events, "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="fjord-nexmark-") as folder:
        spark = open_session(SessionSettings(), Path(folder) / "spark", SparkLog(Path(folder) / "spark.log"))
        try:
            contest = Contest(spark, Path(folder) / "contest", events)
            contest.fjord("q0")
            contest.plain("q0")
            for name in track(sorted(QUERIES, key=_place), "queries", console=console, disable=as_json):
                report[name] = measured(contest, name, events, rounds, warm_up=not quick)
            contest.stop()
        finally:
            spark.stop()
    ratios = [report[name]["over_spark"] for name in QUERIES if "over_spark" in report[name]]
    report["median_over_spark"] = round(statistics.median(ratios), 2)
    write_report(report, "nexmark", lambda path: plot(report, path), as_json=as_json)


def measured(contest: Contest, name: str, events: int, rounds: int, *, warm_up: bool) -> dict[str, Any]:
    """Return events per second of both, in turns, and their ratio."""
    ours: list[float] = []
    theirs: list[float] = []
    rows = {}
    for number in range(rounds + warm_up):
        took, rows["fjord_rows"] = contest.fjord(name)
        plain, rows["spark_rows"] = contest.plain(name) if name in nexmark_spark.QUERIES else (0.0, 0)
        if number >= warm_up:
            ours.append(took)
            theirs.append(plain)
    report: dict[str, Any] = {"fjord_events_per_s": round(events / statistics.median(ours)), "rows": rows["fjord_rows"]}
    if name in nexmark_spark.QUERIES:
        ratios = [plain / took for took, plain in zip(ours, theirs, strict=True)]
        report |= {
            "spark_events_per_s": round(events / statistics.median(theirs)),
            "spark_rows": rows["spark_rows"],
            "over_spark": round(statistics.median(ratios), 2),
            "over_spark_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        }
    return report


def _place(name: str) -> int:
    return int(name[1:])


def plot(report: dict[str, Any], path: Path) -> None:
    """Draw events per second of both."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    names = sorted(QUERIES, key=_place)
    figure, axes = plt.subplots(figsize=(11, 4))
    for shift, engine, color in ((-0.2, "fjord", "tab:blue"), (0.2, "spark", "tab:grey")):
        rates = [report[name].get(f"{engine}_events_per_s", 0) for name in names]
        axes.bar([place + shift for place in range(len(names))], rates, 0.4, color=color, label=engine)
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="events per second", title=f"NEXMark, {report['events']:,} events")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
