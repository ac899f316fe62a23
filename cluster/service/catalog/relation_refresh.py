"""Refreshes relations, each once a period, and knows which queries read one or wait for its first version.

**Queries and the relations that they read: which queries read a relation, and which wait for its first version.**

A query waits if it was accepted and a relation that it reads has no version yet, so that it could not answer.

**Refreshes relations: reads each source once a period, and commits a version if its rows have changed.**

A version begins, for every stream, after all rows that are stored or being stored. So it is committed between two
batches, with nothing awaited in between.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import polars as pl

from cluster.errors import ClusterError
from cluster.operators import Node
from cluster.operators.columns import Schema
from cluster.plan.names_read import functions_of
from cluster.relations.refresh_decisions import Commit, Trouble, commit_after_read, overdue_failure, rows_needed
from cluster.relations.source import SourceAwayError
from cluster.service.catalog.relation_store import KnownRelation, RelationStore, SensorsSource
from cluster.service.registry.registry import Registry
from cluster.service.registry.registry_tables import WaitingQuery
from cluster.storage.relation_versions import RelationVersion
from protocols.event_log import get_logger


class RelationReaders:
    """The queries that read relations.

    Parameters
    ----------
    registry
        The queries that run and wait.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def of(self, relation: KnownRelation) -> Sequence[str]:
        """Return the names of the queries that read a relation, or wait to."""
        return self.by_relation().get(relation.identity, ())

    def exist(self, relation: KnownRelation) -> bool:
        """Return whether a query reads a relation, or waits to; however many run, this takes no time."""
        waiting = self._registry.relations.waiting()
        return relation.identity in self._registry.physical.relations or any(
            relation.identity in each.relations for each in waiting
        )

    def by_relation(self) -> Mapping[str, Sequence[str]]:
        """Return, by identity of a relation, the names of the queries that read it, or wait to."""
        found: dict[str, list[str]] = {}
        for query in self._registry.queries():
            for identity in {each.identity for each in query.node.relations}:
                found.setdefault(identity, []).append(query.name)
        for waiting in self._registry.relations.waiting():
            for identity in waiting.relations:
                found.setdefault(identity, []).append(waiting.name)
        return found


class WaitingQueries:
    """The queries that wait for relations.

    Parameters
    ----------
    registry
        Keeps them.
    relations
        The relations that they wait for.
    """

    def __init__(self, registry: Registry, relations: RelationStore) -> None:
        self._registry = registry
        self._relations = relations
        self.troubles: dict[str, str] = {}
        """By name: why a query could not begin although its relations have versions."""

    def all(self) -> list[WaitingQuery]:
        """Return them, oldest first."""
        return self._registry.relations.waiting()

    def find(self, name: str) -> WaitingQuery | None:
        """Return the waiting query of this name, or None."""
        return next((query for query in self.all() if query.name == name), None)

    def must_wait(self, node: Node) -> bool:
        """Return whether a relation that a plan reads has no version yet."""
        return bool(self._missing({each.identity for each in node.relations}))

    def ready(self) -> list[WaitingQuery]:
        """Return those whose relations have versions."""
        return [query for query in self.all() if not self._missing(query.relations)]

    def add(self, name: str | None, sql: str, node: Node, reads: frozenset[str]) -> WaitingQuery:
        """Register a query that waits; errors are those of :meth:`Registry.add`."""
        identities = frozenset(each.identity for each in node.relations)
        functions = frozenset(each.identity for each in functions_of(node))
        return self._registry.wait(name, sql, reads | node.streams, identities, functions)

    def drop(self, name: str) -> bool:
        """Remove a query if it waits; return whether it did."""
        if self.find(name) is None:
            return False
        self._registry.relations.remove_waiting(name)
        self.troubles.pop(name, None)
        return True

    def state(self, query: WaitingQuery) -> str:
        """Return what a query waits for, in words."""
        missing = self._missing(query.relations)
        if not missing:
            return f"cannot begin: {self.troubles.get(query.name, 'its relations have just been read')}"
        return "waiting for " + " and ".join(
            f"relation {relation.name} ({relation.freshness.reason or 'it has not been read yet'})"
            for relation in missing
        )

    def _missing(self, identities: frozenset[str] | set[str]) -> list[KnownRelation]:
        return [each for each in self._relations.all() if each.identity in identities and each.last is None]


log = get_logger(__name__)

READERS = 4
"""Sources that are read at the same time."""
LONGEST_READ_SECONDS = 180.0
"""Beyond the sources' own limits: a read that hangs in the file system cannot be interrupted, only abandoned."""
TICK_SECONDS = 0.25
T = TypeVar("T")


class RelationRefresher:
    """Refreshes all relations.

    Parameters
    ----------
    store
        The relations.
    instants
        Returns, by stream, an instant after all rows that are stored or being stored.
    readers
        The queries that read relations: the catalog of sensors gets new versions only while a query reads it.
    """

    def __init__(
        self,
        store: RelationStore,
        instants: Callable[[], Mapping[str, int]],
        readers: RelationReaders,
    ) -> None:
        self._store = store
        self._instants = instants
        self._readers = readers
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="relations")
        self.changed = asyncio.Event()
        """Set when a relation has a new version."""

    async def run(self) -> None:
        """Refresh until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for relation in self.due():
                        tasks.create_task(self.refresh(relation), name=f"refresh of {relation.name}")
                    self.mark_overdue()
                    self._store.remove_dropped()
                    await asyncio.sleep(TICK_SECONDS)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def due(self) -> list[KnownRelation]:
        """Return the relations whose sources are to be read now."""
        now = self._store.clock()
        return [each for each in self._store.all() if each.refreshing.is_due(now)]

    async def refresh(self, relation: KnownRelation, *, wanted: bool = False) -> None:
        """Read a relation's source, and commit a version if its rows have changed; failures are noted.

        Parameters
        ----------
        relation
            The relation.
        wanted
            True if a query is about to read the relation.
        """
        async with relation.reading:
            try:
                await self._refresh(relation, wanted=wanted)
            except ClusterError as error:
                self._failed(relation, error, error.message)
            except Exception as error:  # noqa: BLE001 - see below
                # A failure of one relation must not end the refreshing of others. The text of a library's error may
                # quote rows and addresses, so only its place is shown.
                place = "".join(traceback.format_tb(error.__traceback__))
                log.error("relation cannot be refreshed", relation=relation.name, place=place)  # noqa: TRY400
                self._failed(relation, error, f"{type(error).__name__}; the log of the cluster has the place")
            finally:
                relation.preparing = False
                relation.next_look = self._store.clock() + relation.freshness.pause(self._store.chance())

    def mark_overdue(self) -> None:
        """Commit an empty version of each relation that has been stale for too long, so that its queries report it."""
        now = self._store.clock()
        for relation in self._store.all():
            if not relation.refreshing.is_overdue(now):
                continue
            failure = overdue_failure(relation.name, relation.freshness)
            try:
                self._note_version(relation, relation.versions.commit_failure(failure, self._instants()))
            except (ClusterError, OSError) as error:
                log.warning("relation cannot be marked as stale", relation=relation.name, error=str(error))
                continue
            log.error("relation is away", relation=relation.name, reason=relation.freshness.reason)

    async def in_thread(self, call: Callable[[], T], *, seconds: float | None = None) -> T:
        """Return the result of a blocking call.

        Raises
        ------
        SourceAwayError
            If it takes longer than `seconds`. If it has begun it goes on, and its result is dropped.
        """
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        if seconds is not None and not await self.ended(running, seconds):
            running.cancel()
            raise SourceAwayError(f"it did not answer within {seconds:g} seconds")
        return await running

    async def ended(self, running: asyncio.Future[Any], seconds: float) -> bool:
        """Wait at most this many seconds for a task; return whether it has ended. If not, it keeps running."""
        timeout = asyncio.ensure_future(self._store.pause(seconds))
        try:
            await asyncio.wait([running, timeout], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timeout.cancel()
        return running.done()

    async def _refresh(self, relation: KnownRelation, *, wanted: bool) -> None:
        if not relation.idle.is_set():
            raise SourceAwayError("reading it has not ended yet")
        columns, rows = await self.in_thread(lambda: _changed(relation), seconds=LONGEST_READ_SECONDS)
        last = relation.last
        needed = rows is not None and rows_needed(
            built_in=relation.statement is None,
            wanted=wanted,
            has_version=last is not None,
            same_columns=columns == relation.columns,
            is_read=partial(self._readers.exist, relation),
        )
        commit = commit_after_read(changed=rows is not None, needed=needed, failure=relation.refreshing.failure)
        if rows is not None and commit is Commit.ROWS:
            relation.preparing = True
            await self.in_thread(partial(relation.versions.prepare, rows))
        if self._store.find(relation.name) is not relation:
            return  # it was dropped in the meantime
        if rows is not None and commit is Commit.ROWS:
            relation.columns = columns
            self._note_version(relation, relation.versions.commit(rows, self._instants()))
        elif commit is Commit.RECOVERY:
            self._note_version(relation, relation.versions.commit_failure("", self._instants()))
        if relation.freshness.failures:
            log.info("relation is back", relation=relation.name)
        relation.trouble = None
        self._store.note_fresh(relation)
        if last is not relation.last:
            now = self._store.wall()  # the clock of file stamps
            await self.in_thread(lambda: relation.versions.prune(now_seconds=now))

    def _note_version(self, relation: KnownRelation, version: RelationVersion) -> None:
        relation.last = version
        relation.versions_total += 1
        self.changed.set()
        log.info("relation changed", relation=relation.name, version=version.number, rows=version.rows)

    def _failed(self, relation: KnownRelation, error: Exception, reason: str) -> None:
        before, relation.trouble = relation.kind_of_trouble, error
        if relation.kind_of_trouble is not before:
            write = log.info if relation.kind_of_trouble is Trouble.STARTING else log.warning
            write("relation cannot be read", relation=relation.name, reason=reason)
        relation.failures_total += 1
        relation.freshness = relation.freshness.failed(reason)


def _changed(relation: KnownRelation) -> tuple[Schema, pl.DataFrame | None]:
    """Return the relation's columns, and its rows if they differ from those of its last version in more than order."""
    relation.idle.clear()
    try:
        return _read(relation)
    finally:
        relation.idle.set()


def _read(relation: KnownRelation) -> tuple[Schema, pl.DataFrame | None]:
    source = relation.source
    columns = source.schema() if relation.statement is None and isinstance(source, SensorsSource) else relation.columns
    rows = source.rows(columns, relation.condition)
    rows = rows.sort(rows.columns)
    if relation.last is None:
        return columns, rows
    try:
        before = pl.read_parquet(relation.versions.snapshot(relation.last.number), glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        log.warning("last version cannot be read", relation=relation.name, error=str(error))
        return columns, rows
    same = before.schema == rows.schema and before.height == rows.height and before.sort(before.columns).equals(rows)
    return columns, None if same else rows
