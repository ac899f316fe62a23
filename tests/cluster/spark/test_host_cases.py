"""The table of cases on Spark: all in one plan, in one session, and each answers what it means."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from cluster.physical.lowering import lower
from cluster.physical.nodes import ANSWERS_RETURNED, Host, host_of
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from cluster.storage.table_folders import folder_of, relation_folder
from tests.cluster.functions.declared import RULES
from tests.cluster.local.host_cases import (
    ARRIVING,
    CASES,
    SCHEMAS,
    STATIC,
    difference,
    frame,
    planned,
    relation_frame,
)
from tests.cluster.spark.java_threads import threads_write_java
from tests.cluster.spark.stored_answers import answers_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


@pytest.mark.parametrize("returned", [ANSWERS_RETURNED, 0], ids=["by the driver", "by tasks"])
def test_every_case_answers_what_it_means(spark: SparkSession, tmp_path: Path, returned: int) -> None:
    from cluster.spark.hosting import start_engine
    from cluster.spark.source import SourceOptions

    queries = planned()
    assert {host_of(query.node) for query in queries} == set(Host)
    for name, relation in STATIC.items():
        versions, rows = (
            RelationVersions(tmp_path / "relations" / relation_folder(relation.identity)),
            relation_frame(name),
        )
        versions.prepare(rows)
        versions.commit(rows, {})
    tables = {
        name: StreamTable(str(tmp_path / "streams" / folder_of(name)), schema) for name, schema in SCHEMAS.items()
    }
    plans, results = PlanFiles(tmp_path / "plans"), ResultsTable(str(tmp_path / "results"), "cases")
    plans.write(lower(Plan(1, queries)))
    fjord = start_engine(
        spark,
        options=SourceOptions(
            str(tmp_path / "streams"),
            str(tmp_path / "plans"),
            3,
            2,
            1_000,
            str(tmp_path / "relations"),
            first_key=100,
            answers_returned=returned,
            functions=RULES,
        ),
        checkpoint=tmp_path / "checkpoint",
        results=results,
        on_commit=lambda: None,
        run=uuid.uuid4().hex,
    )
    try:
        assert not threads_write_java(spark)
        for batch, watermark_us in ARRIVING:
            for name, rows in batch.items():
                stored = frame(name, rows).with_columns(pl.lit("m").alias("fjord_mote")).to_arrow()
                schema = arrow_schema(SCHEMAS[name], published="fjord_previous_us" in stored.column_names)
                pieces = [stored.select(schema.names).cast(schema)] if rows else []
                tables[name].append(pieces, StreamPosition(watermark_us, {}), {})
            fjord.wait_until_idle()
    finally:
        fjord.stop()
    assert any(Path(results.root).glob("part-????????????????-*.parquet")) == (returned == 0)
    found = answers_in(results)
    wrong = {name: wrong_in for name in CASES if (wrong_in := difference(name, found.get(name.replace(" ", "-"), [])))}
    assert not wrong
