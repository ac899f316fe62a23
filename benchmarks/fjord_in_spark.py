"""Fjord's queries in Spark, without proxies and broker: stream tables and plans are written directly.

Its figures of micro-batches are those of the Spark query without state: all queries measured here run in it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from hosted_dataflow import READINGS, append
from pyspark.sql import SparkSession

from cluster.physical.lowering import lower
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.spark.bucket_keys import first_key
from cluster.spark.hosting import start_engine
from cluster.spark.source import SourceOptions
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable
from protocols.wire.streams import StreamSchema


class FjordInSpark:
    """Fjord's two Spark queries, running.

    Parameters
    ----------
    spark
        The session.
    folder
        Holds its tables, plans and checkpoint.
    max_rows
        The most rows of one micro-batch.
    schemas
        The streams; :attr:`table` is that of the first.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        *,
        max_rows: int = 4_000_000,
        schemas: Sequence[StreamSchema] = (READINGS,),
    ) -> None:
        self._plans = PlanFiles(folder / "plans")
        self.tables = {each.name: StreamTable(str(folder / "streams" / each.name), each) for each in schemas}
        self.table = self.tables[schemas[0].name]
        self.results = ResultsTable(str(folder / "results"), "benchmark")
        self.epoch = 1
        self._plans.write(lower(Plan(1)))
        self._fjord = start_engine(
            spark,
            options=SourceOptions(
                str(folder / "streams"),
                str(folder / "plans"),
                4,
                2,
                max_rows,
                str(folder / "relations"),
                first_key=first_key(4, 2),
            ),
            checkpoint=folder / "checkpoint",
            results=self.results,
            on_commit=lambda: None,
            run=uuid.uuid4().hex,
        )
        self._fjord.wait_until_idle()

    def run_plan(self, queries: Sequence[PlannedQuery], *, after_version: int | None = None) -> None:
        """Run these queries from now on; new ones begin after a version of the streams' tables."""
        self.epoch += 1
        begins = {
            name: table.version if after_version is None else after_version for name, table in self.tables.items()
        }
        self._plans.write(lower(Plan(self.epoch, tuple(queries), begins)))

    def append(self, rows: pl.DataFrame, watermark_us: int) -> None:
        """Store rows of ``readings``."""
        append(self.table, rows, watermark_us)

    def wait(self) -> float:
        """Wait until all stored rows are answered; return the seconds it took."""
        began = time.perf_counter()
        self._fjord.wait_until_idle()
        return time.perf_counter() - began

    @property
    def finished(self) -> int:
        """Number of the last finished micro-batch."""
        progress = self._progress
        return -1 if progress is None else int(progress["batchId"])

    @property
    def answered_version(self) -> int:
        """The version of the stream's table up to which all rows are answered."""
        progress = self._progress
        if progress is None:
            return 0
        offset = progress["sources"][0]["endOffset"]
        found = json.loads(offset) if isinstance(offset, str) else offset
        return int(found.get("versions", {}).get(READINGS.name, 0))

    def micro_batch_seconds(self) -> float:
        """Return how long the last micro-batch took."""
        progress = self._progress
        return float(progress["batchDuration"]) / 1000 if progress is not None else 0.0

    def answers(self) -> dict[str, int]:
        """Return rows per query so far."""
        found = ResultsTable(self.results.root, "benchmark")
        frame = pl.scan_delta(found.root).group_by("query").len().collect()
        return dict(frame.iter_rows())

    @property
    def _progress(self) -> Any:
        return self._fjord.progress().get(Host.STATELESS)

    def stop(self) -> None:
        """Stop it."""
        self._fjord.stop()
