"""NEXMark's queries in plain Spark, where Structured Streaming can express them: one streaming query each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMAS = {
    "person": "fjord_start_us long, id long, name string, city string, state string",
    "auction": "fjord_start_us long, id long, item string, description string, initial_bid long, reserve long, "
    "expires long, seller long, category long, extra string",
    "bid": "fjord_start_us long, auction long, bidder long, price long, channel string, url string, extra string",
    "side_input": "key long, value string",
}
"""The columns that are read."""
Read = Callable[[str], DataFrame]


def q0(read: Read) -> DataFrame:
    """Pass through."""
    return read("bid").select("auction", "bidder", "price", "extra")


def q1(read: Read) -> DataFrame:
    """Currency conversion."""
    return read("bid").select("auction", "bidder", (0.908 * f.col("price")).alias("price"), "extra")


def q2(read: Read) -> DataFrame:
    """Selection."""
    return read("bid").where("auction % 123 = 0").select("auction", "price")


def q3(read: Read) -> DataFrame:
    """Local item suggestion, within an hour."""
    auctions = read("auction").where("category = 10").select("seller", f.col("id").alias("auction"), "at")
    people = read("person").where("state IN ('OR', 'ID', 'CA')").withColumnRenamed("at", "registered")
    near = "seller = id AND at BETWEEN registered - INTERVAL 1 HOUR AND registered + INTERVAL 1 HOUR"
    return auctions.join(people, f.expr(near)).select("name", "city", "state", "auction")


def q8(read: Read) -> DataFrame:
    """Monitor new users."""
    people = read("person").groupBy(f.window("at", "10 seconds"), "id", "name").count()
    sellers = read("auction").groupBy(f.window("at", "10 seconds"), "seller").count()
    sellers = sellers.withColumnRenamed("window", "within")
    return people.join(sellers, f.expr("id = seller AND window = within")).select("id", "name")


def q12(read: Read) -> DataFrame:
    """Windows of ten seconds."""
    counted = read("bid").groupBy(f.window("at", "10 seconds"), "bidder").count()
    return counted.select("bidder", "count")


def q13(read: Read) -> DataFrame:
    """Bounded side input."""
    joined = read("bid").join(read("side_input"), f.expr("auction % 10000 = key"))
    return joined.select("auction", "bidder", "price", "value")


def q17(read: Read) -> DataFrame:
    """Auction statistics report."""
    levels = ("price < 10000", "price BETWEEN 10000 AND 999999", "price >= 1000000")
    counts = [f.count_if(f.expr(level)).alias(f"rank{number}_bids") for number, level in enumerate(levels, 1)]
    price = [f.min("price"), f.max("price"), f.avg("price"), f.sum("price")]
    return read("bid").groupBy(f.window("at", "1 day"), "auction").agg(f.count("*"), *counts, *price).drop("window")


def q20(read: Read) -> DataFrame:
    """Expand bid with auction, of the last hour."""
    auctions = read("auction").where("category = 10").withColumnRenamed("at", "opened")
    auctions = auctions.withColumnRenamed("extra", "auction_extra")
    near = "auction = id AND at BETWEEN opened AND opened + INTERVAL 1 HOUR"
    return read("bid").join(auctions, f.expr(near)).drop("at", "opened", "id")


def q21(read: Read) -> DataFrame:
    """Add channel id."""
    number = f.expr("nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')")
    known = f.expr("CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' "
                   "WHEN 'baidu' THEN '3' END")  # fmt: skip
    found = read("bid").select("auction", "bidder", "price", "channel", f.coalesce(known, number).alias("channel_id"))
    return found.where("channel_id IS NOT NULL")


def q22(read: Read) -> DataFrame:
    """Get URL directories."""
    parts = [f.split_part("url", f.lit("/"), f.lit(place)).alias(f"dir{place - 3}") for place in (4, 5, 6)]
    return read("bid").select("auction", "bidder", "price", "channel", *parts)


QUERIES: dict[str, Callable[[Read], DataFrame]] = {
    each.__name__: each for each in (q0, q1, q2, q3, q8, q12, q13, q17, q20, q21, q22)
}
"""By name. Structured Streaming has no DISTINCT aggregates (q15, q16), joins no aggregate with itself (q5, q7), and
keeps no first or last rows of groups (q18)."""


def run(spark: SparkSession, name: str, sources: Path, folder: Path) -> tuple[float, int]:
    """Run a query over all files of the streams once; return seconds of its micro-batches, and rows written.

    Parameters
    ----------
    spark
        The session.
    name
        The query.
    sources
        Has a folder of Parquet files for each stream.
    folder
        For what it writes.
    """
    query = (
        QUERIES[name](lambda source: _read(spark, source, sources))
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1e3
    files = (folder / "rows").glob("*.parquet")
    return took, sum(pl.scan_parquet(file).select(pl.len()).collect().item() for file in files)


def _read(spark: SparkSession, source: str, sources: Path) -> DataFrame:
    folder = str(sources / source)
    if source == "side_input":
        return spark.read.schema(SCHEMAS[source]).parquet(folder)
    stream = spark.readStream.schema(SCHEMAS[source]).parquet(folder)
    stamped = stream.withColumn("at", f.timestamp_micros("fjord_start_us")).drop("fjord_start_us")
    return stamped.withWatermark("at", "0 seconds")
