"""The relations there are: where each comes from, how fresh it is, and its versions."""

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

from cluster.errors import StorageError
from cluster.language.catalog import StaticRelation
from cluster.language.columns import Schema
from cluster.language.comparisons import Comparison
from cluster.language.relation_statements import CreateRelation
from cluster.language.translation import parse_statement
from cluster.relations.freshness import Freshness
from cluster.relations.opening import SENSORS, open_source
from cluster.relations.source import Limits, RelationSource
from cluster.relations.unreadable import UnreadableSource
from cluster.service.catalog.sensor_catalog import SensorCatalog
from cluster.service.catalog.sensors_source import SensorsSource
from cluster.service.registry.relation_registry import RegisteredRelation, RelationRegistry
from cluster.storage.relation_versions import RelationVersion, RelationVersions
from protocols.errors import FjordError
from protocols.event_log import get_logger

log = get_logger(__name__)

BUILT_IN_REFRESH_SECONDS = 5.0
UNREADABLE_REFRESH_SECONDS = 3600.0
"""How often the log hears of a relation whose statement cannot be read."""
KEEP_DROPPED_SECONDS = 3600.0
"""How long versions of a relation that is gone stay: a replay may ask for them."""


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass(slots=True, eq=False)
class KnownRelation:
    """A relation and how it is.

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
        What is known of its source.
    statement
        What created it; None if it is always there.
    condition
        Which rows of the source it has.
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
    """When its source is looked at again, by the clock of the store."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its source is looked at."""
    idle: threading.Event = field(default_factory=_set_event)
    """Clear while a thread reads its source, which may be longer than anybody waits for it."""
    unreadable: str = ""
    """The statement that created it, if that cannot be read any more."""
    preparing: bool = False
    """True from the writing of a version's rows to its commit: no other version may come between."""
    estimate: int | None = None
    """How many rows its source says it has, if the first reading takes long."""
    trouble: Exception | None = None
    """What went wrong when its source was looked at last."""
    failures_total: int = 0
    versions_total: int = 0
    last: RelationVersion | None = field(default=None)
    """Its newest version; None before the first."""

    @property
    def built_in(self) -> bool:
        """True if it is always there."""
        return self.statement is None and not self.unreadable


class RelationStore:
    """All relations by name, as the registry remembers them.

    Parameters
    ----------
    registry
        Remembers them.
    folder
        Where their versions are.
    limits
        What reading one may take.
    sensors
        The catalog of sensors, which is a relation without being created; None for none.
    clock
        Seconds of a clock that is never set: periods and ages are measured by it.
    wall
        Seconds since 1970, which somebody may set: what is remembered from one run to the next is stamped by it.
    chance
        Random numbers from 0 to 1.
    pause
        Waits so many seconds: how long a source may take to answer.
    """

    def __init__(
        self,
        registry: RelationRegistry,
        folder: Path,
        *,
        limits: Limits | None = None,
        sensors: SensorsSource | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._registry = registry
        self._folder = folder
        self._limits = limits or Limits()
        self._sensors = sensors
        self.clock = clock
        self.wall = wall
        self.chance = chance
        self.pause = pause
        self._by_name: dict[str, KnownRelation] = {}
        self._dropped: dict[Path, float] = {}
        for registered in registry.relations():
            try:
                self.take_up(registered)
            except FjordError as error:
                self._keep_unreadable(registered, error)
        if sensors is not None and self.find(SENSORS) is None:
            self._add_sensors(sensors)
        kept = {relation.versions.folder for relation in self.all()}
        for left in folder.glob("*@*") if folder.is_dir() else ():
            if left not in kept:
                self._dropped[left] = clock()

    @classmethod
    def of(cls, registry: RelationRegistry, folder: Path, catalog: SensorCatalog, limits: Limits) -> RelationStore:
        """Return the relations of a cluster with a catalog of sensors."""
        return cls(registry, folder, limits=limits, sensors=SensorsSource.of(catalog, limits=limits))

    def all(self) -> list[KnownRelation]:
        """Return all relations, oldest first."""
        return list(self._by_name.values())

    def find(self, name: str) -> KnownRelation | None:
        """Return the relation called `name`, or None."""
        return self._by_name.get(name.casefold())

    def entries(self) -> list[StaticRelation]:
        """Return them as a catalog has them."""
        return [StaticRelation(each.name, each.identity, each.columns) for each in self.all()]

    def source_of(self, statement: CreateRelation) -> RelationSource:
        """Return the source a statement names; errors are those of :func:`open_source`."""
        return open_source(statement, limits=self._limits, sensors=self._sensors)

    def create(self, statement: CreateRelation, columns: Schema) -> KnownRelation:
        """Remember a new relation; it has no version yet."""
        relation = self.take_up(self._registry.create(statement.name, statement.text, columns))
        relation.next_look = self.clock() + relation.freshness.refresh_seconds  # who creates it looks at once
        return relation

    def take_up(self, registered: RegisteredRelation) -> KnownRelation:
        """Return the relation that was registered, with the versions it has."""
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
            RelationVersions(self._folder / registered.identity),
            Freshness(statement.refresh_us / 1e6, stale, self._fresh_at(registered)),
            statement,
            statement.condition_on(registered.columns),
        )
        self._by_name[relation.name.casefold()] = relation
        return self._recalled(relation)

    def drop(self, relation: KnownRelation) -> None:
        """Forget a relation; its versions go when no replay can ask for them any more."""
        self._registry.drop(relation.name)
        self._by_name.pop(relation.name.casefold())
        self._dropped[relation.versions.folder] = self.clock()

    def fresh(self, relation: KnownRelation) -> None:
        """Note that a relation is as its source is now."""
        relation.freshness = relation.freshness.succeeded(self.clock())
        if relation.statement is not None:
            self._registry.set_fresh(relation.name, int(self.wall() * 1e6))

    def remove_dropped(self) -> None:
        """Remove versions of relations that have been gone for long."""
        for folder, since in list(self._dropped.items()):
            if self.clock() - since >= KEEP_DROPPED_SECONDS:
                del self._dropped[folder]
                shutil.rmtree(folder, ignore_errors=True)
                log.info("versions removed", relation=folder.name)

    def _keep_unreadable(self, registered: RegisteredRelation, error: FjordError) -> None:
        """Let what queries have of a relation go on, though the statement that created it cannot be read any more."""
        log.warning("relation cannot be read", relation=registered.name, reason=error.message, hint=error.hint)
        source, versions = UnreadableSource(error), RelationVersions(self._folder / registered.identity)
        freshness = Freshness(UNREADABLE_REFRESH_SECONDS, None, self._fresh_at(registered))
        relation = KnownRelation(registered.name, registered.identity, registered.columns, source, versions, freshness)
        relation.unreadable = registered.text
        self._by_name[relation.name.casefold()] = self._recalled(relation)

    def _fresh_at(self, registered: RegisteredRelation) -> float | None:
        """Return by the store's clock when a relation was fresh; now, if the wall clock has been set back since."""
        if registered.fresh_us is None:
            return None
        return self.clock() - max(self.wall() - registered.fresh_us / 1e6, 0.0)

    def _add_sensors(self, sensors: SensorsSource) -> None:
        identity = f"{SENSORS}@0"
        versions = RelationVersions(self._folder / identity)
        freshness = Freshness(BUILT_IN_REFRESH_SECONDS)
        relation = self._recalled(KnownRelation(SENSORS, identity, (), sensors, versions, freshness))
        if relation.last is not None:
            sensors.remember(versions.snapshot(relation.last.number))
        relation.columns = sensors.schema()
        self._by_name[SENSORS] = relation

    @staticmethod
    def _recalled(relation: KnownRelation) -> KnownRelation:
        for number in reversed(relation.versions.numbers()):
            try:
                relation.last = relation.versions.version(number)
                break
            except StorageError as error:
                log.warning("version of a relation is lost", relation=relation.name, reason=error.message)
                relation.versions.set_aside(number)
        return relation
