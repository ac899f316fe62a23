"""On Spark: the process of a function of a user ends with the last query that calls it, wherever it was called."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import psutil
import pytest

from cluster.functions import child
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host, host_of
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from cluster.storage.table_folders import folder_of
from tests.cluster.functions.declared import FUNCTIONS, RULES
from tests.cluster.local.host_cases import SCHEMAS, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")]

SECONDS = 60.0
LETTERS = "SELECT letters(sensor, lane) AS n FROM traffic"
HALVED = "SELECT halved(SUM(lane)) AS h FROM traffic WINDOW(RANGE 2 MICROSECONDS SLIDE 2 MICROSECONDS) GROUP BY sensor"
KNOWN = "SELECT known(sensor) AS k FROM traffic"
OTHER = "SELECT sensor FROM traffic"


def of_functions() -> Counter[int]:
    """Return how many processes of functions each of Spark's workers has."""
    found: Counter[int] = Counter()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if child.__file__ in process.cmdline():
                found[process.ppid()] += 1
    return found


def test_the_process_of_a_function_ends_with_the_last_query_that_calls_it(spark: SparkSession, tmp_path: Path) -> None:
    from cluster.spark.hosting import start_engine
    from cluster.spark.source import SourceOptions

    catalog = Catalog.of(SCHEMAS.values()).with_functions(FUNCTIONS)
    letters, halved, known, other = (
        PlannedQuery(f"q{number}", 1, rewrite(translate(sql, catalog).node).node)
        for number, sql in enumerate((LETTERS, HALVED, KNOWN, OTHER))
    )
    assert [host_of(each.node) for each in (letters, halved)] == [Host.STATELESS, Host.STATEFUL]
    table = StreamTable(str(tmp_path / "streams" / folder_of("traffic")), SCHEMAS["traffic"])
    plans, results = PlanFiles(tmp_path / "plans"), ResultsTable(str(tmp_path / "results"), "functions")
    plans.write(lower(Plan(1, (letters, halved, known, other))))
    options = SourceOptions(
        str(tmp_path / "streams"), str(tmp_path / "plans"), 3, 2, 1_000, str(tmp_path / "relations"),
        first_key=200, functions=RULES,
    )  # fmt: skip
    fjord = start_engine(
        spark,
        options=options,
        checkpoint=tmp_path / "checkpoint",
        results=results,
        on_commit=lambda: None,
        run=uuid.uuid4().hex,
    )
    instants = itertools.count(0, 10)

    def until(holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < ends, of_functions()
            at = next(instants)
            rows = frame("traffic", [(at + each, (f"s{each}", 1, 2.0, each, True)) for each in range(9)])
            stored = rows.with_columns(pl.lit("m").alias("fjord_mote")).to_arrow()
            schema = arrow_schema(SCHEMAS["traffic"])
            table.append([stored.select(schema.names).cast(schema)], StreamPosition(at + 10, {}), {})
            fjord.wait_until_idle()

    try:
        until(lambda: sum(of_functions().values()) >= 3)
        plans.write(lower(Plan(2, (known, other), {"traffic": table.version})))
        until(lambda: set(of_functions().values()) == {1})
        plans.write(lower(Plan(3, (other,), {"traffic": table.version})))
        until(lambda: not of_functions())
    finally:
        fjord.stop()
