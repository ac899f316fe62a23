"""Fjord's work without Spark's: a plan on the local host, micro-batch by micro-batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from cluster.fjord.relation_tables import RelationTables
from cluster.fjord.stream_scan import RowsInFile
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Node
from cluster.operators.columns import Column
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.wire.streams import Field, FieldType, StreamSchema

READINGS = StreamSchema("readings", (Field("k", FieldType.INTEGER), Field("x", FieldType.REAL)))
PLACES = StaticRelation(
    "places",
    "places@1",
    (Column("key", FieldType.INTEGER), Column("high", FieldType.REAL), Column("name", FieldType.TEXT)),
)
CATALOG = Catalog.of([READINGS, PLACES])
KEYS = 1_000
BUCKETS = 4


def planned(text: str, number: int) -> PlannedQuery:
    """Return a query in the form that plans hold."""
    node: Node = rewrite(translate(text, CATALOG).node).node
    return PlannedQuery(f"q{number}", number, node)


def filter_queries(count: int, *, keys: int = KEYS) -> list[str]:
    """Return queries that each select one in `keys` tuples: half of them by a key, half by a range of values."""
    return [
        f"SELECT k, x FROM readings WHERE k = {number * 7 % keys}"
        if number % 2
        else f"SELECT k, x FROM readings WHERE x >= {number * 3 % keys} AND x < {number * 3 % keys + 1}"
        for number in range(count)
    ]


AGGREGATES = ("COUNT(*)", "SUM(x)", "AVG(x)", "MIN(x)", "MAX(x)", "STDDEV(x)", "VARIANCE(x)", "COUNT(x)", "FIRST(x)",
              "LAST(x)")  # fmt: skip
WINDOWS = tuple((size, slide) for slide in (1, 2, 5, 10) for size in (10, 20, 30, 40, 60))
"""Minutes; the first of each slide is the shortest."""


def window_query(aggregate: str, size: int, slide: int) -> str:
    """A windowed aggregate by key, minutes given."""
    window = f"WINDOW(RANGE {size} MINUTES SLIDE {slide} MINUTES)"
    return f"SELECT k, {aggregate} AS answer FROM readings {window} GROUP BY k"


def readings(count: int, *, first: int = 0, step_us: int = 1_000, keys: int = KEYS) -> pl.DataFrame:
    """Return rows of a stream table: keys and values drawn uniformly, stamps in order."""
    dice = np.random.default_rng(1 + first)
    stamps = (np.arange(first, first + count) * step_us).astype(np.int64)
    columns = {
        "fjord_start_us": stamps,
        "fjord_mote": ["m"] * count,
        "fjord_default_rate": [True] * count,
        "k": dice.integers(0, keys, count),
        "x": dice.uniform(0, keys, count),
    }
    return pl.DataFrame(columns)


def append(table: StreamTable, rows: pl.DataFrame, watermark_us: int) -> None:
    """Store rows as one version of a stream table."""
    arrow = rows.to_arrow().cast(arrow_schema(READINGS))
    table.append([arrow], StreamPosition(watermark_us, {}), {})


def change_places(folder: Path, rows: pl.DataFrame) -> None:
    """Write the relation's next version, which holds for all later tuples."""
    versions = RelationVersions(folder / "relations" / PLACES.identity)
    versions.prepare(rows)
    versions.commit(rows, {})


class HostedDataflow:
    """A plan on the local host, over stream tables.

    Parameters
    ----------
    folder
        Holds the stream tables in ``streams``, and relations in ``relations``.
    queries
        The queries, all from the beginning of the stream.
    """

    def __init__(self, folder: Path, queries: Sequence[PlannedQuery]) -> None:
        self._stream = f"{folder}/streams/{READINGS.name}"
        self._relations = folder / "relations"
        tables = partial(RelationTables, str(self._relations), {}, buckets=BUCKETS)
        self._engine = LocalEngine(Plan(1, tuple(queries)), buckets=BUCKETS, tables=tables)
        self._log = StreamTable(self._stream).log
        self.seconds = 0.0
        self.answers: dict[str, int] = {}

    def micro_batch(self, version: int, watermark_us: int) -> float:
        """Run one version of the stream through the plan; return the seconds it took."""
        files = self._log.read(version).files
        rows = tuple(RowsInFile(f"{self._stream}/{file.path}", last_us=watermark_us - 1) for file in files)
        relations = {PLACES.identity: RelationVersions(self._relations / PLACES.identity).latest()}
        began = time.perf_counter()
        answered = self._engine.run({READINGS.name: Arrival(rows, watermark_us)}, relations=relations)
        took = time.perf_counter() - began
        self.seconds += took
        for query, count in answered.rows.group_by("query").len().iter_rows():
            self.answers[query] = self.answers.get(query, 0) + count
        return took
