"""A Fjord's own work, without Spark's: the hosts of both sides in one process, micro-batch by micro-batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from msgspec.structs import replace

from cluster.fjord.batch import ALWAYS
from cluster.language.algebra import Column, Node
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.plan.epoch import Plan, PlanFiles, PlannedQuery
from cluster.plan.hosts import Host, hosted_by
from cluster.plan.rewrite import rewrite
from cluster.spark.downstream import BucketHost, Envelope
from cluster.spark.envelopes import unpack_rows
from cluster.spark.stateless import run_stateless
from cluster.spark.upstream import run_upstream
from cluster.spark.upstream_task import UpstreamTask
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.streams import Field, FieldType, StreamSchema

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
    """Return a query as a plan holds it."""
    node: Node = rewrite(translate(text, CATALOG).node).node
    return PlannedQuery(f"q{number}", number, node)


def filter_queries(count: int, *, keys: int = KEYS) -> list[str]:
    """Queries that each want one in `keys` tuples: half of them one key, half of them a range of values."""
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
    """Return rows as a stream table holds them: keys and values evenly drawn, stamps in order."""
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
    """Give the relation its next version, for all that comes."""
    versions = RelationVersions(folder / "relations" / PLACES.identity)
    versions.prepare(rows)
    versions.commit(rows, {})


class Memory:
    """A bucket's state store."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        """Return a value, or None."""
        return self.values.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Set a value."""
        self.values[name] = value

    def remove(self, name: str) -> None:
        """Remove a value."""
        del self.values[name]

    def names(self) -> Iterable[str]:
        """Return the names of all values."""
        return list(self.values)


class HostedFjord:
    """A plan on its hosts.

    Parameters
    ----------
    folder
        With the stream tables in ``streams``; plans are put in a folder of their own.
    name
        Tells it from other Fjords on the same tables.
    queries
        What runs, all from the beginning.
    """

    def __init__(self, folder: Path, name: str, queries: Sequence[PlannedQuery]) -> None:
        self._plans = PlanFiles(folder / "plans" / name)
        self._plan = Plan(1, tuple(queries))
        self._plans.write(self._plan)
        self._passed_us = ALWAYS
        self._streams = str(folder / "streams")
        self._stores = [Memory() for _ in range(BUCKETS)]
        self._relations = str(folder / "relations")
        self._host = BucketHost(str(self._plans.folder), BUCKETS, name, self._relations)
        self._log = StreamTable(f"{self._streams}/{READINGS.name}").log
        self.seconds = 0.0
        self.answers: dict[str, int] = {}

    def micro_batch(self, version: int, watermark_us: int) -> float:
        """Run one version of the stream through the plan; return the seconds it took."""
        files = tuple((READINGS.name, file.path) for file in self._log.read(version).files)
        began = time.perf_counter()
        task = UpstreamTask(
            str(self._plans.folder), self._streams, 1, 1, BUCKETS, 0, files, {READINGS.name: watermark_us},
            self._relations, {PLACES.identity: RelationVersions(Path(self._relations, PLACES.identity)).latest()},
        )  # fmt: skip
        outputs = self._without_state(task) + self._with_state(task)
        took = time.perf_counter() - began
        self.seconds += took
        for rows in outputs:
            for query, count in rows.filter(pl.col("query") != "").group_by("query").len().iter_rows():
                self.answers[query] = self.answers.get(query, 0) + count
        return took

    def _without_state(self, task: UpstreamTask) -> list[pl.DataFrame]:
        if not hosted_by(self._plan, Host.STATELESS).queries:
            return []
        between = {stream: (self._passed_us, watermark) for stream, watermark in task.watermarks_us.items()}
        self._passed_us = task.watermarks_us[READINGS.name]
        mine = replace(task, host=Host.STATELESS, between_us=between)
        payloads = [payload for batch in run_stateless(mine) for payload in batch.column("payload").to_pylist()]
        return [unpack_rows(payload) for payload in payloads]

    def _with_state(self, task: UpstreamTask) -> list[pl.DataFrame]:
        if not hosted_by(self._plan, Host.STATEFUL).queries:
            return []
        arrived: dict[int, list[Envelope]] = {}
        for batch in run_upstream(task):
            for row in batch.to_pylist():
                arrived.setdefault(row["bucket"], []).append(Envelope(row["edge"], row["origin"], row["payload"]))
        return [
            unpack_rows(output.payload)
            for bucket, envelopes in arrived.items()
            for output in self._host.process(bucket, envelopes, self._stores[bucket])
        ]
