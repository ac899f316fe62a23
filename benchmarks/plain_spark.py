"""What a user of Spark would write: one Structured Streaming query per user query, over the same rows."""

from __future__ import annotations

import re
import time
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

SCHEMA = "fjord_start_us long, fjord_mote string, fjord_default_rate boolean, k long, x double"


def run_all(spark: SparkSession, queries: list[str], rows: Path, folder: Path) -> tuple[float, dict[str, int]]:
    """Start a streaming query per query, wait until all have read everything; return seconds and rows per query."""
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


def seconds_to_add(spark: SparkSession, text: str, rows: Path, folder: Path) -> float:
    """Return how long one more query takes from its start to its first rows."""
    began = time.perf_counter()
    _start(spark, text, rows, folder).awaitTermination()
    return time.perf_counter() - began


def _start(spark: SparkSession, text: str, rows: Path, folder: Path):  # noqa: ANN202 - Spark's own type
    condition = re.fullmatch(r"SELECT k, x FROM readings WHERE (.*)", text)
    if condition is None:
        raise ValueError(f"{text!r} is no query of this benchmark")
    stream = spark.readStream.schema(SCHEMA).parquet(str(rows)).where(condition[1])
    return (
        stream.select("fjord_start_us", "k", "x")
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
