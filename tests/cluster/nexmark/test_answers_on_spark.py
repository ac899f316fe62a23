"""Every query of examples/nexmark, all in one plan on Spark, against its definition in DuckDB."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from cluster.physical.lowering import lower
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from tests.cluster.nexmark.definitions import DEFINITIONS, changes, evaluated
from tests.cluster.nexmark.running import SIDE_INPUT, SIDE_ROWS, generator, micro_batches, planned, schemas
from tests.cluster.spark.stored_answers import answers_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

EVENTS, RATE = 8_000, 200
"""40 seconds of events."""


def test_every_query_answers_what_duckdb_does(spark: SparkSession, tmp_path: Path) -> None:
    from cluster.spark.hosting import start_engine
    from cluster.spark.source import SourceOptions

    streams = generator().events(EVENTS, rate=RATE).streams
    versions = RelationVersions(tmp_path / "relations" / SIDE_INPUT.identity)
    versions.prepare(SIDE_ROWS)
    versions.commit(SIDE_ROWS, {})
    tables = {each.name: StreamTable(str(tmp_path / "streams" / each.name), each) for each in schemas()}
    plans, results = PlanFiles(tmp_path / "plans"), ResultsTable(str(tmp_path / "results"), "nexmark")
    plans.write(lower(Plan(1, planned())))
    options = SourceOptions(
        str(tmp_path / "streams"), str(tmp_path / "plans"), 3, 2, 10_000, str(tmp_path / "relations"), first_key=100
    )
    fjord = start_engine(
        spark,
        options=options,
        checkpoint=tmp_path / "checkpoint",
        results=results,
        on_commit=lambda: None,
        run=uuid.uuid4().hex,
    )
    try:
        for batch, watermark_us in micro_batches(streams, 3):
            for name, rows in batch.items():
                schema = arrow_schema(tables[name].schema)
                pieces = rows.with_columns(pl.lit("m").alias("fjord_mote")).to_arrow().select(schema.names).cast(schema)
                tables[name].append([pieces] if rows.height else [], StreamPosition(watermark_us, {}), {})
            fjord.wait_until_idle()
    finally:
        fjord.stop()
    found = answers_in(results)
    sources = {**streams, SIDE_INPUT.name: SIDE_ROWS}
    wrong = [name for name in DEFINITIONS if changes(evaluated(name, sources)) != changes(found.get(name, []))]
    assert not wrong
