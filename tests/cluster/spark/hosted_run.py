"""Runs plans on the hosts without Spark: micro-batches, parts, buckets, state stores, epochs."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cluster.fjord.answers import COUNTERS
from cluster.fjord.counters import Counters, added
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.algebra import Column, Node
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.plan.epoch import Plan, PlanFiles, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.spark.downstream import BucketHost, Envelope
from cluster.spark.envelopes import unpack_rows
from cluster.spark.upstream import run_upstream
from cluster.spark.upstream_task import UpstreamTask
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.streams import Field, FieldType, StreamSchema
from tests.cluster.spark.stateless_run import answered, slices

TRAFFIC = StreamSchema("traffic", (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.INTEGER)))
BUCKETS = 3


PLACES = StaticRelation(
    "places",
    "places@1",
    (Column("sensor", FieldType.TEXT), Column("segment", FieldType.INTEGER), Column("name", FieldType.TEXT)),
)
LIMITS = StaticRelation(
    "limits", "limits@1", (Column("segment", FieldType.INTEGER), Column("fastest", FieldType.INTEGER))
)
CATALOG = Catalog.of([TRAFFIC, PLACES, LIMITS])


def plan_node(sql: str, large: frozenset[str] = frozenset()) -> Node:
    return rewrite(translate(sql, CATALOG).node, large=large).node


def relation_rows(relation: StaticRelation, rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {column.name: POLARS_TYPES[column.type] for column in relation.columns}
    return pl.DataFrame(rows, schema=schema, orient="row")


@dataclass
class Memory:
    """A bucket's state store."""

    values: dict[str, bytes] = field(default_factory=dict)

    def get(self, name: str) -> bytes | None:
        return self.values.get(name)

    def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    def remove(self, name: str) -> None:
        del self.values[name]

    def names(self) -> Iterable[str]:
        return list(self.values)


class Run:
    """Feeds a table's versions to hosts, micro-batch by micro-batch, as Spark would."""

    def __init__(
        self, folder: Path, plan: Plan, schema: StreamSchema = TRAFFIC, *, relation_memory_bytes: int = 2**30
    ) -> None:
        self.relation_memory_bytes = relation_memory_bytes
        self.folder = folder
        self.schema = schema
        self.plans = PlanFiles(folder / "plans")
        self.plans.write(plan)
        self.epoch = plan.epoch
        self.table = StreamTable(str(folder / "streams" / schema.name), schema)
        self.stores = [Memory() for _ in range(BUCKETS)]
        self.rows: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
        self.errors: dict[str, list[str]] = {}
        self.counters: Counters = {}
        self._read = 0
        self._passed_us: dict[str, int] = {}

    def change(self, relation: StaticRelation, rows: list[tuple[Any, ...]], begin_us: int) -> None:
        """Give a relation a new version, which tuples stamped from `begin_us` on meet."""
        versions = RelationVersions(self.folder / "relations" / relation.identity)
        table = relation_rows(relation, rows)
        versions.prepare(table)
        versions.commit(table, {self.schema.name: begin_us})

    @property
    def relations(self) -> dict[str, int]:
        folder = self.folder / "relations"
        return {each.identity: RelationVersions(folder / each.identity).latest() for each in (PLACES, LIMITS)}

    def append(self, rows: list[tuple[int, str, int]], watermark: int) -> None:
        table = pl.DataFrame(
            {
                "fjord_start_us": [at for at, _, _ in rows],
                "fjord_mote": ["m"] * len(rows),
                "fjord_default_rate": [True] * len(rows),
                "sensor": [sensor for _, sensor, _ in rows],
                "speed": [speed for _, _, speed in rows],
            },
            schema_overrides={"fjord_start_us": pl.Int64, "speed": pl.Int64, "fjord_default_rate": pl.Boolean},
        ).to_arrow()
        self.table.append([table.cast(arrow_schema(TRAFFIC))], StreamPosition(watermark, {}), {})

    def step(self, *, epoch: int | None = None, parts: int = 1, keep: bool = True) -> None:
        """Run one micro-batch over everything new, in so many parts; `keep` False loses what it did, as a crash."""
        previous, current = self.epoch, epoch if epoch is not None else self.epoch
        files: list[str] = []
        for version in range(self._read + 1, self.table.version + 1):
            files.extend(file.path for file in self.table.log.read(version).files)
        watermark = self.table.position().watermark_us
        envelopes: dict[int, list[Envelope]] = {}
        for origin in range(parts):
            task = UpstreamTask(
                str(self.plans.folder), str(self.folder / "streams"), current, previous, BUCKETS, origin,
                tuple((self.schema.name, path) for path in files[origin::parts]),
                {} if watermark is None else {self.schema.name: watermark},
                str(self.folder / "relations"), self.relations, self.relation_memory_bytes,
            )  # fmt: skip
            for batch in run_upstream(task):
                for row in batch.to_pylist():
                    envelopes.setdefault(row["bucket"], []).append(Envelope(row["edge"], row["origin"], row["payload"]))
        without_state, counters = answered(slices(task, {self.schema.name: self.table}, self._passed_us, parts))
        before = copy.deepcopy(self.stores)
        relations = str(self.folder / "relations")
        host = BucketHost(str(self.plans.folder), BUCKETS, "run", relations, self.relation_memory_bytes)
        answers = [
            unpack_rows(output.payload)
            for bucket in range(BUCKETS)
            for output in host.process(bucket, envelopes[bucket], self.stores[bucket])
        ]
        if not keep:
            self.stores = before
            return
        self._read, self.epoch = self.table.version, current
        if watermark is not None:
            self._passed_us[self.schema.name] = watermark
        self.counters = added(self.counters, counters)
        for rows in (*answers, without_state):
            for query, start, end, kind, row in rows.iter_rows():
                if kind == COUNTERS:
                    self.counters = added(self.counters, msgspec.json.decode(row, type=Counters))
                elif kind == "error":
                    self.errors.setdefault(query, []).append(msgspec.json.decode(row))
                else:
                    self.rows.setdefault(query, []).append((start, end, msgspec.json.decode(row)))


def queries(**sql: str) -> tuple[PlannedQuery, ...]:
    return tuple(PlannedQuery(name, number, plan_node(text)) for number, (name, text) in enumerate(sql.items(), 1))
