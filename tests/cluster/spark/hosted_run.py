"""Runs plans on the local engine over what is stored of one stream: micro-batches, parts, buckets, epochs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cluster.fjord.answer_kinds import ERROR
from cluster.fjord.counters import Counters, added
from cluster.fjord.relation_tables import RelationTables
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.local.engine import LocalEngine
from cluster.operators import Node
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.local.stored_arrivals import StoredArrivals

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


class Plans:
    """Plans of a run by epoch, and their files; what is written there is what runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = PlanFiles(folder)
        self._known: dict[int, Plan] = {}

    def write(self, plan: Plan) -> None:
        self._known[plan.epoch] = plan
        self._files.write(lower(plan))

    def read(self, epoch: int) -> Plan:
        assert PlanFiles(self.folder).read(epoch) == lower(self._known[epoch])
        return self._known[epoch]


class Run:
    """Feeds a table's versions to an engine, micro-batch by micro-batch."""

    def __init__(
        self, folder: Path, plan: Plan, schema: StreamSchema = TRAFFIC, *, relation_memory_bytes: int = 2**30
    ) -> None:
        self.folder = folder
        self.schema = schema
        self.plans = Plans(folder / "plans")
        self.plans.write(plan)
        self.table = StreamTable(str(folder / "streams" / schema.name), schema)
        tables = partial(
            RelationTables, str(folder / "relations"), {}, buckets=BUCKETS, memory_bytes=relation_memory_bytes
        )
        self.engine = LocalEngine(plan, buckets=BUCKETS, tables=tables)
        self.rows: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
        self.errors: dict[str, list[str]] = {}
        self.counters: Counters = {}
        self._stored = StoredArrivals(folder / "streams", {schema.name: self.table})

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
        before = self.engine.checkpoint()
        plan = None if epoch is None else self.plans.read(epoch)
        answered = self.engine.run(self._stored.new(), plan=plan, parts=parts, relations=self.relations)
        if not keep:
            self.engine.restore(before)
            return
        self._stored.passed()
        self.counters = added(self.counters, answered.counters)
        for query, start, end, kind, row in answered.rows.iter_rows():
            if kind == ERROR:
                self.errors.setdefault(query, []).append(msgspec.json.decode(row))
            else:
                self.rows.setdefault(query, []).append((start, end, msgspec.json.decode(row)))


def queries(**sql: str) -> tuple[PlannedQuery, ...]:
    return tuple(PlannedQuery(name, number, plan_node(text)) for number, (name, text) in enumerate(sql.items(), 1))
