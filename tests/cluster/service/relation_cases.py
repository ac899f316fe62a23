"""A scripted source, a clock that tests set, and a service over both."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import polars as pl

from cluster.operators.columns import Column
from cluster.relations.fitting import matched, settled
from cluster.relations.source import SourceAwayError, SourceColumn
from cluster.service.catalog.relation_store import RelationStore
from protocols.wire.streams import FieldType

SEGMENT, CLOSED = Column("segment", FieldType.TEXT), Column("closed", FieldType.BOOLEAN)
CREATE = "CREATE RELATION roads FROM 'roads.csv' REFRESH EVERY 30 SECONDS STALE AFTER 5 MINUTES"
DECLARED = CREATE.replace("roads FROM", "roads (segment TEXT, closed BOOLEAN) FROM")
JOINED = "SELECT t.sensor, t.speed, r.closed FROM traffic AS t, roads AS r WHERE t.sensor = r.segment"


@dataclass
class ScriptedSource:
    """A source with the rows or the error that a test sets."""

    table: list[tuple[str | None, bool | None]] = field(default_factory=lambda: [("s1", False)])
    given: tuple[Column, ...] = (SEGMENT, CLOSED)
    error: Exception | None = None
    reads: int = 0
    shown: str = "csv:roads.csv"

    def away(self, reason="connection refused"):
        self.error = SourceAwayError(reason)

    def back(self):
        self.error = None

    def columns(self):
        self._fail()
        return tuple(SourceColumn(column.name, column.type, column.type.value) for column in self.given)

    def rows(self, columns, condition=()):
        self.reads += 1
        self._fail()
        matched(columns, self.columns())
        frame = pl.DataFrame(self.table, schema={"segment": pl.String, "closed": pl.Boolean}, orient="row")
        return settled(frame.select(column.name for column in columns), columns, condition)

    def estimate(self):
        self._fail()
        return len(self.table)

    def _fail(self):
        if self.error is not None:
            raise self.error


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self):
        return self.now


class Relations:
    """A query service whose relations all come from one scripted source."""

    def __init__(self, service, folder, clock=None, sensors=None):
        self.service = service
        self.folder = folder
        self.clock = clock or Clock()
        self.set_back = 0.0
        self.source = ScriptedSource()
        self.sensors = sensors
        self.pause = asyncio.sleep
        """Ends when the timeout of a source is over."""
        self.start()

    def start(self):
        """Start, or start again as after a crash."""
        relations = self

        class Store(RelationStore):
            def source_of(self, statement):
                return relations.source

        self.store = Store(
            self.service.registry.relations, self.folder, sensors=self.sensors, clock=self.clock, wall=self.wall,
            chance=lambda: 0.5, pause=self.patience,
        )  # fmt: skip
        self.queries = self.service.started(self.store)

    async def patience(self, seconds):
        """Wait for the timeout of a source, as the test has set it."""
        await self.pause(seconds)

    def wall(self):
        """Return the time of the wall clock, which may be set."""
        return self.clock.now + 1.7e9 - self.set_back

    async def create(self, text=CREATE):
        return await self.queries.relations.execute(text)

    async def passes(self, seconds):
        """Let time pass, and then refresh as a running service would."""
        self.clock.now += seconds
        for relation in self.queries.refresher.due():
            await self.queries.refresher.refresh(relation)
        self.queries.refresher.mark_overdue()
        await self.queries.start_waiting()

    @property
    def known(self):
        return self.store.find("roads")

    @property
    def shown(self):
        return self.queries.relations.describe(self.known)

    def rows(self):
        relation = self.known
        return pl.read_parquet(relation.versions.snapshot(relation.last.number)).rows()
