"""A stream joined with a relation as a user of Spark would write it: Structured Streaming's stream-static join.

python benchmarks/plain_spark_join.py FOLDER TURNS FILES:MICRO_BATCHES ...: in each case the stream is in so many files
of FOLDER/rows-FILES, and read in so many micro-batches; the relation is in FOLDER/places.parquet. The benchmark runs in
a process of its own, with Spark's default settings: those of Fjord's session make it faster.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import polars as pl

from cluster.spark.java import find_java, use_java

SCHEMA = "fjord_start_us long, fjord_mote string, fjord_default_rate boolean, k long, x double"
ANSWER = ("fjord_start_us", "k", "x", "name")
WAYS = ("broadcast", "shuffle_hash")


def main(folder: Path, turns: int, cases: Sequence[tuple[int, int]]) -> None:
    """Run every case in every way so many times; print, case by case, the seconds and rows by way, as JSON."""
    spark = session(folder)
    for how in WAYS:
        join(spark, folder, folder / f"plain-warm-{how}", how=how, files=cases[0][0], micro_batches=cases[0][1])
    found = [
        {
            how: [
                join(
                    spark, folder, folder / f"plain-{how}-{batches}-{turn}", how=how, files=files, micro_batches=batches
                )
                for turn in range(turns)
            ]
            for how in WAYS
        }
        for files, batches in cases
    ]
    spark.stop()
    print(json.dumps(found))


def session(folder: Path) -> Any:
    """Return a default Spark session, but with one shuffle partition per core: the default of 200 would be slower."""
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


def join(spark: Any, data: Path, folder: Path, *, how: str, files: int, micro_batches: int) -> tuple[float, int]:
    """Run the join over all rows; return the seconds that the micro-batches took, and the number of answer rows.

    Parameters
    ----------
    spark
        The session.
    data
        The folder of the Parquet files of stream and relation.
    folder
        Holds answers and checkpoint.
    how
        The join that Spark is to use: one of :data:`WAYS`.
    files, micro_batches
        Into how many files the stream is cut, and in how many micro-batches these are read: as many, or one.
    """
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files // micro_batches)
    tuples = reader.parquet(str(data / f"rows-{files}"))
    static = spark.read.parquet(str(data / "places.parquet")).hint(how)
    pairs = tuples.join(static, tuples["k"] == static["key"]).where("x > high").select(*ANSWER)
    query = (
        pairs.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took_ms = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
    return sum(took_ms) / 1000, _count((folder / "rows").glob("*.parquet"))


def _count(files: Iterable[Path]) -> int:
    return sum(pl.scan_parquet(file).select(pl.len()).collect().item() for file in files)


if __name__ == "__main__":
    given = [tuple(map(int, case.split(":"))) for case in sys.argv[3:]]
    main(Path(sys.argv[1]), int(sys.argv[2]), [(files, batches) for files, batches in given])
