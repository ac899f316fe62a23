"""A stream joined with a relation as a user of Spark would write it: Structured Streaming's stream-static join."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import polars as pl

SCHEMA = "fjord_start_us long, fjord_mote string, fjord_default_rate boolean, k long, x double"
ANSWER = ("fjord_start_us", "k", "x", "name")


def join(spark: Any, stream: Path, relation: Path, folder: Path, *, how: str, at_once: bool) -> tuple[float, int]:
    """Run the join over everything; return seconds and rows answered.

    Parameters
    ----------
    spark
        The session.
    stream, relation
        Folder of the stream's Parquet files, and the relation's Parquet file.
    folder
        For answers and checkpoint.
    how
        Which join Spark is told to use: ``broadcast`` or ``shuffle_hash``.
    at_once
        True gives it all files in one micro-batch, False one file in each.
    """
    reader = spark.readStream.schema(SCHEMA)
    if not at_once:
        reader = reader.option("maxFilesPerTrigger", 1)
    tuples = reader.parquet(str(stream))
    static = spark.read.parquet(str(relation)).hint(how)
    pairs = tuples.join(static, tuples["k"] == static["key"]).where("x > high").select(*ANSWER)
    began = time.perf_counter()
    query = (
        pairs.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = time.perf_counter() - began
    files = list((folder / "rows").glob("*.parquet"))
    return took, sum(pl.scan_parquet(file).select(pl.len()).collect().item() for file in files)
