"""An engine over the tables in a folder, and its answers as tests compare them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from cluster.storage.results_table import ResultsTable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cluster.spark.hosting import RunningEngine


def start_over(spark: SparkSession, folder: Path, results: ResultsTable) -> RunningEngine:
    """Start an engine over the streams, plans and relations in a folder, or let one go on from its checkpoint there."""
    from cluster.spark.hosting import start_engine
    from cluster.spark.source import SourceOptions

    streams, plans, relations = (str(folder / each) for each in ("streams", "plans", "relations"))
    return start_engine(
        spark,
        options=SourceOptions(streams, plans, 3, 2, 1_000, relations, first_key=100),
        checkpoint=folder / "checkpoint",
        results=results,
        on_commit=lambda: None,
        run=uuid.uuid4().hex,
    )


def answers_in(results: ResultsTable) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a results table by query: start, end, and values; fail if an error is among them."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    columns = ["query", "start_us", "end_us", "kind", "row"]
    for query, start_us, end_us, kind, row in pl.scan_delta(results.root).select(columns).collect().iter_rows():
        assert kind == "row", row
        found.setdefault(query, []).append((start_us, end_us, *msgspec.json.decode(row).values()))
    return found
