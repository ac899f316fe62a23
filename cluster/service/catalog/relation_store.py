"""The relations, that of sensors too: where each comes from, how fresh it is, and its versions."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from cluster.errors import StorageError
from cluster.language.catalog import StaticRelation
from cluster.language.comparisons import Comparison
from cluster.language.declarations import CreateRelation
from cluster.language.translation import parse_statement
from cluster.operators.columns import Column, Schema
from cluster.relations.fitting import POLARS_TYPES, settled
from cluster.relations.opening import SENSORS, Reach, open_source
from cluster.relations.refresh_decisions import Freshness, Refreshing, Trouble
from cluster.relations.source import Limits, RelationSource, SourceColumn, SourceStartingError, UnreadableSource
from cluster.service.catalog.sensor_catalog import SensorCatalog
from cluster.service.registry.registry_tables import RegisteredRelation, RelationRegistry
from cluster.storage.relation_versions import RelationVersion, RelationVersions
from protocols.errors import FjordError
from protocols.event_log import get_logger
from protocols.wire.names import folded
from protocols.wire.streams import FieldType

SETTLING_SECONDS = 10.0
"""From a connection to the broker until retained messages, and those of returning proxies, have come."""

_FIELD_TYPES = {kind: field for field, kind in POLARS_TYPES.items()}


class SensorsSource:
    """The catalog as a source.

    Columns are never removed, because queries may read them: a property that no sensor has any more is NULL. A property
    keeps its first type; values of another type that cannot be converted are NULL.

    Parameters
    ----------
    read
        Returns the catalog as a table; any thread may call it.
    limits
        Limits of its size.
    connected_at
        Returns when the catalog began to fill; None if it has not. Until it has had time to, the source is away: after
        a restart of the cluster, sensors must not seem to have been removed.
    clock
        Seconds of a monotonic clock.
    """

    shown = "catalog:sensors"

    def __init__(
        self,
        read: Callable[[], pl.DataFrame],
        *,
        limits: Limits | None = None,
        connected_at: Callable[[], float | None] = lambda: -math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._limits = limits or Limits()
        self._connected_at = connected_at
        self._clock = clock
        self._known: dict[str, Column] = {}

    @classmethod
    def of(
        cls, catalog: SensorCatalog, *, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> SensorsSource:
        """Return the source of a catalog."""
        return cls(
            catalog.relation,
            limits=limits,
            connected_at=lambda: catalog.connected_at,
            clock=clock,
        )

    def remember(self, snapshot: Path) -> None:
        """Add the columns of an earlier version."""
        for name, dtype in pl.scan_parquet(snapshot, glob=False).collect_schema().items():
            self._add_column(name, dtype)

    def schema(self) -> Schema:
        """Return the present and all earlier columns."""
        return self._schema(self._read())

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the present and all earlier columns, as a source does."""
        return tuple(SourceColumn(column.name, column.type, column.type.value) for column in self.schema())

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows; a column that no sensor has is NULL."""
        since = self._connected_at()
        if since is None or self._clock() - since < SETTLING_SECONDS:
            raise SourceStartingError(
                "the cluster has just connected to the broker, and sensors are still being announced"
            )
        found = self._read()
        by_folded = {name.casefold(): name for name in found.columns}
        frame = found.select(
            (
                pl.col(by_folded[column.name.casefold()]).cast(POLARS_TYPES[column.type], strict=False)
                if column.name.casefold() in by_folded
                else pl.lit(None, dtype=POLARS_TYPES[column.type])
            ).alias(column.name)
            for column in columns
        )
        self._limits.check(frame.height, int(frame.estimated_size()))
        return settled(frame, columns, condition)

    def estimate(self) -> int | None:
        """Return how many sensors there are."""
        return self._read().height

    def _schema(self, frame: pl.DataFrame) -> Schema:
        for name, dtype in frame.schema.items():
            self._add_column(name, dtype)
        return tuple(self._known.values())

    def _add_column(self, name: str, dtype: pl.DataType) -> None:
        self._known.setdefault(name.casefold(), Column(name, _FIELD_TYPES.get(dtype.base_type(), FieldType.TEXT)))


log = get_logger(__name__)

BUILT_IN_REFRESH_SECONDS = 5.0
UNREADABLE_REFRESH_SECONDS = 3600.0
"""How often a relation whose statement cannot be read is logged."""
KEEP_DROPPED_SECONDS = 3600.0
"""How long the versions of a dropped relation are kept: a replay may need them."""


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass(slots=True, eq=False)
class KnownRelation:
    """A relation and its state.

    Parameters
    ----------
    name, identity
        See :class:`StaticRelation`.
    columns
        What queries may name.
    source
        Where it comes from.
    versions
        Its versions.
    freshness
        How fresh it is, and how often its source is read.
    statement
        The statement that created it; None if it is built in.
    condition
        Which rows of the source it contains.
    """

    name: str
    identity: str
    columns: Schema
    source: RelationSource
    versions: RelationVersions
    freshness: Freshness
    statement: CreateRelation | None = None
    condition: tuple[Comparison, ...] = ()
    next_look: float = -math.inf
    """When its source is read again, by the clock of the store."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is refreshed."""
    idle: threading.Event = field(default_factory=_set_event)
    """Clear while a thread reads its source, which may go on after a refresh has given up."""
    unreadable: str = ""
    """The statement that created it, if this version cannot read it."""
    preparing: bool = False
    """True from the writing of a version's rows to its commit: no other version may be committed in between."""
    estimate: int | None = None
    """The source's estimate of its rows, if the first reading takes long."""
    trouble: Exception | None = None
    """The error of its last refresh; None if that succeeded."""
    failures_total: int = 0
    versions_total: int = 0
    last: RelationVersion | None = field(default=None)
    """Its newest version; None before the first."""

    @property
    def built_in(self) -> bool:
        """True if it exists without having been created."""
        return self.statement is None and not self.unreadable

    @property
    def refreshing(self) -> Refreshing:
        """What decides whether its source is read, and whether its rows may still be used."""
        failure = None if self.last is None else self.last.failure
        return Refreshing(self.freshness, self.next_look, self.reading.locked(), self.preparing, failure)

    @property
    def kind_of_trouble(self) -> Trouble:
        """What its last refresh failed by."""
        if self.trouble is None:
            return Trouble.NONE
        return Trouble.STARTING if isinstance(self.trouble, SourceStartingError) else Trouble.AWAY


class RelationStore:
    """All registered relations, by name.

    Parameters
    ----------
    registry
        Keeps their statements.
    folder
        Where their versions are.
    limits
        Limits of reading a source.
    reach
        What relations may reach outside of the cluster.
    sensors
        The catalog of sensors, a built-in relation; None for none.
    clock
        Seconds of a monotonic clock, for periods and ages.
    wall
        Seconds since 1970, for stamps that outlive this process; this clock may be set.
    chance
        Random numbers from 0 to 1.
    pause
        Waits so many seconds, for timeouts of sources.
    """

    def __init__(
        self,
        registry: RelationRegistry,
        folder: Path,
        *,
        limits: Limits | None = None,
        reach: Reach | None = None,
        sensors: SensorsSource | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._registry = registry
        self._folder = folder
        self._limits = limits or Limits()
        self._reach = reach or Reach()
        self._sensors = sensors
        self.clock = clock
        self.wall = wall
        self.chance = chance
        self.pause = pause
        self._by_name: dict[str, KnownRelation] = {}
        self._dropped: dict[Path, float] = {}
        for registered in registry.relations():
            try:
                self.load(registered)
            except FjordError as error:
                self._keep_unreadable(registered, error)
        if sensors is not None and self.find(SENSORS) is None:
            self._add_sensors(sensors)
        kept = {relation.versions.folder for relation in self.all()}
        for left in folder.glob("*@*") if folder.is_dir() else ():
            if left not in kept:
                self._dropped[left] = clock()

    @classmethod
    def of(
        cls,
        registry: RelationRegistry,
        folder: Path,
        catalog: SensorCatalog,
        limits: Limits,
        reach: Reach,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> RelationStore:
        """Return the relations of a cluster with a catalog of sensors."""
        sensors = SensorsSource.of(catalog, limits=limits, clock=clock)
        return cls(registry, folder, limits=limits, reach=reach, sensors=sensors, clock=clock, wall=wall, chance=chance)

    def all(self) -> list[KnownRelation]:
        """Return all relations, oldest first."""
        return list(self._by_name.values())

    def find(self, name: str) -> KnownRelation | None:
        """Return the relation called `name`, or None."""
        return self._by_name.get(folded(name))

    def entries(self) -> list[StaticRelation]:
        """Return the entries of a catalog."""
        return [StaticRelation(each.name, each.identity, each.columns) for each in self.all()]

    def source_of(self, statement: CreateRelation) -> RelationSource:
        """Return the source that a statement names; errors are those of :func:`open_source`."""
        return open_source(statement, limits=self._limits, reach=self._reach, sensors=self._sensors)

    def create(self, statement: CreateRelation, columns: Schema) -> KnownRelation:
        """Register a new relation; it has no version yet."""
        relation = self.load(self._registry.create(statement.name, statement.text, columns))
        # Its creation refreshes it for the first time.
        relation.next_look = self.clock() + relation.freshness.refresh_seconds
        return relation

    def load(self, registered: RegisteredRelation) -> KnownRelation:
        """Return the relation that was registered, with its versions."""
        statement = parse_statement(registered.text, registered=True)
        if not isinstance(statement, CreateRelation):
            raise StorageError(f"the registry has no CREATE RELATION for relation {registered.name!r}")
        if statement.warnings:
            log.warning("relation created before", relation=registered.name, warnings=statement.warnings)
        stale = None if statement.stale_us is None else statement.stale_us / 1e6
        relation = KnownRelation(
            registered.name,
            registered.identity,
            registered.columns,
            self.source_of(statement),
            RelationVersions.below(self._folder, registered.identity),
            Freshness(statement.refresh_us / 1e6, stale, self._fresh_at(registered)),
            statement,
            statement.condition_on(registered.columns),
        )
        self._by_name[relation.name.casefold()] = relation
        return self._with_last_version(relation)

    def drop(self, relation: KnownRelation) -> None:
        """Remove a relation; its versions are removed when no replay can need them any more."""
        self._registry.drop(relation.name)
        self._by_name.pop(relation.name.casefold())
        self._dropped[relation.versions.folder] = self.clock()

    def note_fresh(self, relation: KnownRelation) -> None:
        """Note that a relation equals its source now."""
        relation.freshness = relation.freshness.succeeded(self.clock())
        if relation.statement is not None:
            self._registry.set_fresh(relation.name, int(self.wall() * 1e6))

    def remove_dropped(self) -> None:
        """Remove the versions of relations that were dropped long ago."""
        for folder, since in list(self._dropped.items()):
            if self.clock() - since >= KEEP_DROPPED_SECONDS:
                del self._dropped[folder]
                shutil.rmtree(folder, ignore_errors=True)
                log.info("versions removed", relation=folder.name)

    def _keep_unreadable(self, registered: RegisteredRelation, error: FjordError) -> None:
        """Keep the versions of a relation for its queries, although this version cannot read the statement."""
        log.warning("relation cannot be read", relation=registered.name, reason=error.message, hint=error.hint)
        source, versions = UnreadableSource(error), RelationVersions.below(self._folder, registered.identity)
        freshness = Freshness(UNREADABLE_REFRESH_SECONDS, None, self._fresh_at(registered))
        name, identity, columns = registered.name, registered.identity, registered.columns
        relation = KnownRelation(name, identity, columns, source, versions, freshness, unreadable=registered.text)
        self._by_name[relation.name.casefold()] = self._with_last_version(relation)

    def _fresh_at(self, registered: RegisteredRelation) -> float | None:
        """Return when a relation was last fresh, by the store's clock; now, if the wall clock has been set back."""
        if registered.fresh_us is None:
            return None
        return self.clock() - max(self.wall() - registered.fresh_us / 1e6, 0.0)

    def _add_sensors(self, sensors: SensorsSource) -> None:
        identity = f"{SENSORS}@0"
        versions = RelationVersions(self._folder / identity)
        freshness = Freshness(BUILT_IN_REFRESH_SECONDS)
        relation = self._with_last_version(KnownRelation(SENSORS, identity, (), sensors, versions, freshness))
        if relation.last is not None:
            sensors.remember(versions.snapshot(relation.last.number))
        relation.columns = sensors.schema()
        self._by_name[SENSORS] = relation

    @staticmethod
    def _with_last_version(relation: KnownRelation) -> KnownRelation:
        for number in reversed(relation.versions.numbers()):
            try:
                relation.last = relation.versions.version(number)
                break
            except StorageError as error:
                log.warning("version of a relation is lost", relation=relation.name, reason=error.message)
                relation.versions.set_aside(number)
        return relation
