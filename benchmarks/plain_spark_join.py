"""A stream joined with a relation as a user of Spark would write it: Structured Streaming's stream-static join.

python benchmarks/plain_spark_join.py FOLDER TURNS: the stream is in FOLDER/rows, the relation in FOLDER/places.parquet.
It runs in a process of its own, with Spark's own settings: those of Fjord's session make it faster.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import polars as pl

from cluster.java import find_java, use_java

SCHEMA = "fjord_start_us long, fjord_mote string, fjord_default_rate boolean, k long, x double"
ANSWER = ("fjord_start_us", "k", "x", "name")
WAYS = ("broadcast", "shuffle_hash")


def main(folder: Path, turns: int) -> None:
    """Run every way so many times; print by way the seconds of each turn and the rows answered, as JSON."""
    spark = session(folder)
    join(spark, folder, folder / "plain-warm", how="broadcast", at_once=True)
    found: dict[str, Any] = {}
    for how in WAYS:
        for at_once in (False, True):
            name = f"{how}{'_at_once' if at_once else ''}"
            runs = [
                join(spark, folder, folder / f"plain-{name}-{turn}", how=how, at_once=at_once) for turn in range(turns)
            ]
            found[name] = {"seconds": [seconds for seconds, _ in runs], "rows": [rows for _, rows in runs]}
    spark.stop()
    print(json.dumps(found))


def session(folder: Path) -> Any:
    """Return a session as Spark makes it, with one shuffle partition per core: its usual 200 would be slower."""
    use_java(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - needs Java's place to be known

    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.appName("plain").master("local[*]")
    for name, value in options.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def join(spark: Any, data: Path, folder: Path, *, how: str, at_once: bool) -> tuple[float, int]:
    """Run the join over everything; return seconds and rows answered.

    Parameters
    ----------
    spark
        The session.
    data
        Where the stream's Parquet files and the relation's are.
    folder
        For answers and checkpoint.
    how
        Which join Spark is told to use: one of :data:`WAYS`.
    at_once
        True gives it all files in one micro-batch, False one file in each.
    """
    reader = spark.readStream.schema(SCHEMA)
    if not at_once:
        reader = reader.option("maxFilesPerTrigger", 1)
    tuples = reader.parquet(str(data / "rows"))
    static = spark.read.parquet(str(data / "places.parquet")).hint(how)
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
    return took, _count((folder / "rows").glob("*.parquet"))


def _count(files: Iterable[Path]) -> int:
    return sum(pl.scan_parquet(file).select(pl.len()).collect().item() for file in files)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
