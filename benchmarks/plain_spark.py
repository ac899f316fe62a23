"""The same queries in plain Spark: one Structured Streaming query per user query, over the same rows."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import polars as pl
from pyspark.sql import SparkSession

SCHEMA = "fjord_start_us long, fjord_mote string, fjord_default_rate boolean, k long, x double"


def run_all(spark: SparkSession, queries: list[str], rows: Path, folder: Path) -> tuple[float, dict[str, int]]:
    """Start a streaming query per query, and wait until all have read all rows; return seconds and rows per query."""
    began = time.perf_counter()
    running = [_start(spark, text, rows, folder / f"q{number}") for number, text in enumerate(queries, 1)]
    for query in running:
        query.awaitTermination()
    took = time.perf_counter() - began
    counts = {}
    for number in range(1, len(queries) + 1):
        files = list((folder / f"q{number}" / "rows").glob("*.parquet"))
        counts[f"q{number}"] = sum(pl.scan_parquet(file).select(pl.len()).collect().item() for file in files)
    return took, counts


def seconds_to_add(
    spark: SparkSession, running: list[str], added: list[str], folder: Path, feed: Callable[[Path], None]
) -> list[float]:
    """Return how long each added query takes, among others on a live stream, from its start to its first rows.

    `feed` adds a file of new rows to the stream's folder.
    """
    rows = folder / "rows"
    rows.mkdir(parents=True)
    feed(rows)
    queries = [_start(spark, text, rows, folder / f"q{number}", forever=True) for number, text in enumerate(running)]
    with Feeding(lambda: feed(rows)):
        while not all(
            (folder / f"q{number}" / "rows" / "_spark_metadata" / "1").exists() for number in range(len(running))
        ):
            time.sleep(0.1)
        took = []
        for number, text in enumerate(added):
            began = time.perf_counter()
            queries.append(_start(spark, text, rows, folder / f"added{number}", forever=True))
            while not list((folder / f"added{number}" / "rows").glob("*.parquet")):
                time.sleep(0.005)
            took.append(time.perf_counter() - began)
    spark.sparkContext.setLogLevel("OFF")  # stopped in the middle of a micro-batch, each would tell at length
    for query in queries:
        query.stop()
    time.sleep(1.0)
    spark.sparkContext.setLogLevel("ERROR")
    return took


class Feeding:
    """Adds to a stream every half second, in a thread of its own."""

    def __init__(self, feed: Callable[[], None]) -> None:
        self._feed = feed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            self._feed()
            due += 0.5


def _start(  # noqa: ANN202 - Spark's own type
    spark: SparkSession, text: str, rows: Path, folder: Path, *, forever: bool = False
):
    condition = re.fullmatch(r"SELECT k, x FROM readings WHERE (.*)", text)
    if condition is None:
        raise ValueError(f"{text!r} is no query of this benchmark")
    stream = spark.readStream.schema(SCHEMA).parquet(str(rows)).where(condition[1])
    writer = (
        stream.select("fjord_start_us", "k", "x")
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return (writer if forever else writer.trigger(availableNow=True)).start()
