"""Relations on the left, on Spark: versions change, tuples come out of order, and a micro-batch is run once more."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from cluster.fjord.batch import NEVER
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from tests.cluster.local.test_flowing_relations import (
    CASES,
    LAST,
    SCHEMA,
    STEP,
    UNBEGUN,
    frame,
    histories,
    meant,
    planned,
    snapshot,
    unbegun,
    version,
)
from tests.cluster.spark.stored_answers import answers_in, start_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]
TUPLES = [(at, 1 + at * 7 % 3, 1 + at % 3) for at in (0, 2, 3, 3, 7, 9, 12, 13, 14, 20, 22)]
VERSIONS: list[list[tuple[Any, ...]]] = [
    [(1, 1), (2, 2), (4, 3)],
    [(1, 1), (2, 2), (2, 2), (None, 1)],
    [],
    [(3, 1), (1, 2), (9, 3)],
]
SEED = 4
SHORT, LONG = 4, 7
TWICE = (
    f"SELECT * FROM r WHERE NOT EXISTS (SELECT * FROM a WINDOW(RANGE {SHORT * STEP} US) WHERE x = k) "
    f"AND NOT EXISTS (SELECT * FROM a WINDOW(RANGE {LONG * STEP} US) WHERE x = k AND y > 1)"
)
"""Rows are held against two windows."""


def held_against_two_windows(rows: list[tuple[Any, ...]], at: int) -> Counter[tuple[Any, ...]]:
    """Definition of TWICE; `at` is a number of steps."""
    if at * STEP < LONG * STEP + 2:
        return Counter()
    short = {x for stamp, x, _ in TUPLES if stamp <= at < stamp + SHORT}
    long = {x for stamp, x, y in TUPLES if stamp <= at < stamp + LONG and y > 1}
    return Counter(row for row in rows if row[0] not in short | long)


def test_each_instant_has_the_answer_of_its_version_and_its_window(spark: SparkSession, tmp_path: Path) -> None:
    queries = tuple(PlannedQuery(f"q{number}", 1, planned(text)) for number, text in enumerate(CASES))
    # These are there before the stream, and begin with it: with its first tuple, though that does not pass.
    queries += tuple(PlannedQuery(f"u{n}", 1, unbegun(text, epoch=-n)) for n, text in enumerate(UNBEGUN))
    queries += (PlannedQuery("twice", 1, planned(TWICE)), PlannedQuery("u_twice", 1, unbegun(TWICE, epoch=-9)))
    table = StreamTable(str(tmp_path / "streams" / "a"), SCHEMA)
    results = ResultsTable(str(tmp_path / "results"), "cases")
    PlanFiles(tmp_path / "plans").write(lower(Plan(1, queries)))
    versions = RelationVersions(tmp_path / "relations" / "r@1")

    def change(rows: list[tuple[Any, ...]], begins: int) -> None:
        table_of_rows = version(rows).rows
        versions.prepare(table_of_rows)
        versions.commit(table_of_rows, {"a": begins * STEP})

    batches, changes = histories(TUPLES, VERSIONS, random.Random(SEED))
    assert len(changes) > 2
    change(VERSIONS[0], 0)
    fjord = start_over(spark, tmp_path, results)
    try:
        for number, (comes, reached, begun) in enumerate([*batches, ([], NEVER // STEP, [])]):
            for begins, rows in begun:
                change(rows, begins)
            stored = frame(comes).with_columns(pl.lit("m").alias("fjord_mote")).to_arrow()
            schema = arrow_schema(SCHEMA)
            pieces = [stored.select(schema.names).cast(schema)] if comes else []
            watermark_us = NEVER if reached > LAST + 20 else reached * STEP
            table.append(pieces, StreamPosition(watermark_us, {}), {})
            fjord.wait_until_idle()
            if number in (2, 4):
                # As if a crash had come before its commit: the last micro-batch is run once more.
                fjord.stop()
                commits = tmp_path / "checkpoint" / Host.STATEFUL.value / "commits"
                last = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
                for each in (last, last.with_name(f".{last.name}.crc")):
                    each.unlink(missing_ok=True)
                fjord = start_over(spark, tmp_path, results)
    finally:
        fjord.stop()
    found = answers_in(results)
    for number, text in enumerate(CASES):
        for at in range(0, (LAST + 8) * STEP, STEP):
            assert snapshot(found.get(f"q{number}", []), at) == meant(CASES[text], TUPLES, changes, at), (text, at)
    for number, (text, definition) in enumerate(UNBEGUN.items()):
        for at in range(0, (LAST + 8) * STEP, STEP):
            assert snapshot(found.get(f"u{number}", []), at) == meant(definition, TUPLES, changes, at), (text, at)
    for at in range(LAST + 8):
        held = [rows for begins, rows in changes if begins <= at][-1]
        for name in ("twice", "u_twice"):
            assert snapshot(found.get(name, []), at * STEP) == held_against_two_windows(held, at), (name, at)
