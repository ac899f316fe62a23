"""Rows that wait and meet a relation that changes, on Spark: tuple by tuple, and with a worker that begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from cluster.fjord.batch import NEVER, START
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.local.test_waiting_rows_meet_relations import (
    ALL_AT_ONCE,
    CHANGED,
    LAST,
    QUERIES,
    SEEN,
    TENTH,
    held,
    running,
)
from tests.cluster.spark.stored_answers import answers_in, start_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]
SCHEMA = StreamSchema("s", (Field("k", FieldType.TEXT), Field("v", FieldType.INTEGER)))
CATALOG = Catalog.of(
    [SCHEMA, StaticRelation("r", "r@1", (Column("k", FieldType.TEXT), Column("c", FieldType.INTEGER)))]
)
NAMES = ("until the next", "rows", "distinct", "having", "looked up twice")


def test_rows_keep_what_they_have_found(spark: SparkSession, tmp_path: Path) -> None:
    nodes = {name: rewrite(translate(QUERIES[name], CATALOG).node).node for name in NAMES}
    queries = tuple(PlannedQuery(name.replace(" ", "_"), 1, node) for name, node in nodes.items())
    PlanFiles(tmp_path / "plans").write(lower(Plan(1, queries)))
    table = StreamTable(str(tmp_path / "streams" / "s"), SCHEMA)
    results = ResultsTable(str(tmp_path / "results"), "cases")
    versions = RelationVersions(tmp_path / "relations" / "r@1")
    changes = dict(CHANGED)

    def append(rows: list[tuple[int, str, int]], watermark_us: int) -> None:
        found = pl.DataFrame(
            [(at * TENTH, True, k, v, "m") for at, k, v in rows],
            schema={START: pl.Int64, DEFAULT_RATE_COLUMN: pl.Boolean, "k": pl.String, "v": pl.Int64}
            | {"fjord_mote": pl.String},
            orient="row",
        ).to_arrow()
        schema = arrow_schema(SCHEMA)
        pieces = [found.select(schema.names).cast(schema)] if rows else []
        table.append(pieces, StreamPosition(watermark_us, {}), {})

    def change(until: int) -> None:
        for at in sorted(changes):
            if at <= until:
                rows = pl.DataFrame(changes.pop(at), schema={"k": pl.String, "c": pl.Int64}, orient="row")
                versions.prepare(rows)
                versions.commit(rows, {"s": at * TENTH})

    change(0)
    fjord = start_over(spark, tmp_path, results)
    try:
        for number, row in enumerate(sorted(SEEN)):
            change(row[0])
            append([row], row[0] * TENTH + 1)
            fjord.wait_until_idle()
            if number == len(SEEN) // 2:
                fjord.stop()
                fjord = start_over(spark, tmp_path, results)
        append([], NEVER)
        fjord.wait_until_idle()
    finally:
        fjord.stop()
    found = answers_in(results)
    for name in NAMES:
        meant = held(running(QUERIES[name], SEEN, CHANGED, ALL_AT_ONCE).run())
        rows = found.get(name.replace(" ", "_"), [])
        for at in range(LAST):
            here = [tuple(values) for start, end, *values in rows if start <= at * TENTH < end]
            assert sorted(here) == sorted(meant[at].elements()), (name, at)
