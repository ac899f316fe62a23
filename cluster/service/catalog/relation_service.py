"""Creates, drops and describes relations, for the HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cluster.language.catalog import CatalogError, StaticRelation, kind_of
from cluster.language.declarations import CreateRelation, DropRelation
from cluster.language.errors import FjordSqlError, masked, suggest
from cluster.language.translation import parse_statement
from cluster.operators.columns import Schema
from cluster.relations.fitting import all_columns, matched
from cluster.relations.refresh_decisions import State
from cluster.relations.source import (
    RelationSource,
    RelationSourceError,
    SourceAwayError,
    SourceRefusedError,
    SourceSchemaError,
    SourceTooLargeError,
)
from cluster.service.catalog.planning import Planning
from cluster.service.catalog.relation_refresh import RelationReaders, RelationRefresher
from cluster.service.catalog.relation_store import KnownRelation, RelationStore
from cluster.service.catalog.stream_service import StreamService
from cluster.service.registry.registry import Registry
from protocols.event_log import get_logger

log = get_logger(__name__)

MOST_RELATIONS = 256
DISCOVERY_SECONDS = 30.0
"""How long a source may take to return its columns."""
FIRST_READ_SECONDS = 10.0
"""How long a creation waits for the first version; if it takes longer, it is committed later."""


class UnknownRelationError(CatalogError):
    """There is no relation of this name."""


class RelationService:
    """Creates, drops and describes relations.

    Parameters
    ----------
    store
        The relations.
    registry
        The queries that run.
    readers
        The queries that read relations.
    streams
        The streams, whose names relations cannot have.
    refresher
        Reads sources.
    lock
        Held while queries, streams or relations are added or dropped.
    planning
        Plans statements.
    """

    def __init__(
        self,
        store: RelationStore,
        registry: Registry,
        readers: RelationReaders,
        streams: StreamService,
        refresher: RelationRefresher,
        *,
        lock: asyncio.Lock,
        planning: Planning,
    ) -> None:
        self._store = store
        self._registry = registry
        self._readers = readers
        self._streams = streams
        self._refresher = refresher
        self._lock = lock
        self._planning = planning

    async def execute(self, text: str) -> dict[str, Any]:
        """Create or drop a relation; return its description, or that it was dropped.

        Raises
        ------
        FjordSqlError
            If the text is neither, its source is away, or the source lacks declared columns.
        CatalogError
            If the name is taken, unknown, or in use.
        """
        match await self._planning.run(partial(parse_statement, text)):
            case CreateRelation() as statement:
                return await self.create(statement)
            case DropRelation(name=name):
                await self.drop(name)
                return {"name": name, "dropped": True}
            case _:
                raise FjordSqlError(
                    "CREATE RELATION or DROP RELATION was expected here",
                    text=text,
                    start=0,
                    end=len(text),
                    hint="streams are made with `fjord stream create`, queries with `fjord query add`",
                )

    async def create(self, statement: CreateRelation) -> dict[str, Any]:
        """Create a relation and read it for the first time; return its description.

        If its source is away, a relation is created only if its columns are declared.
        """
        self._check_name(statement.name)
        source = self._store.source_of(statement)
        columns = await self._columns(statement, source)
        statement.condition_on(columns)  # an error now, not when it is read
        async with self._lock:
            self._check_name(statement.name)
            relation = self._store.create(statement, columns)
        log.info("relation created", relation=relation.name, source=relation.source.shown)
        reading = asyncio.ensure_future(self._refresher.refresh(relation))
        if not await self._refresher.ended(reading, FIRST_READ_SECONDS):
            with contextlib.suppress(RelationSourceError):
                relation.estimate = await self._refresher.in_thread(source.estimate, seconds=FIRST_READ_SECONDS)
        if isinstance(relation.trouble, SourceSchemaError | SourceTooLargeError | SourceRefusedError):
            async with self._lock:
                if relation.last is None and not self._readers.of(relation):
                    self._store.drop(relation)
                    raise _statement_error(statement, relation.trouble)
        return self.describe(relation)

    async def drop(self, name: str) -> None:
        """Drop a relation.

        Raises
        ------
        CatalogError
            If there is none of this name, it is built in, or a query or stream reads it.
        """
        async with self._lock:
            relation = self.find(name)
            if relation.built_in:
                raise CatalogError(f"relation {relation.name!r} is built in and cannot be dropped")
            self._streams.catalog().without(relation.name, used_by=self._readers.of(relation))
            self._store.drop(relation)
            log.info("relation dropped", relation=relation.name)

    def find(self, name: str) -> KnownRelation:
        """Return a relation.

        Raises
        ------
        UnknownRelationError
            If there is none of this name.
        """
        relation = self._store.find(name)
        if relation is None:
            names = [each.name for each in self._store.all()]
            raise UnknownRelationError(f"there is no relation {name!r}", hint=suggest(name, names, what="there are"))
        return relation

    def all(self) -> list[dict[str, Any]]:
        """Return the descriptions of all relations."""
        readers = self._readers.by_relation()
        return [self._described(each, readers.get(each.identity, ())) for each in self._store.all()]

    def describe(self, relation: KnownRelation) -> dict[str, Any]:
        """Return the description of a relation, without passwords."""
        return self._described(relation, self._readers.of(relation))

    def _described(self, relation: KnownRelation, readers: Sequence[str]) -> dict[str, Any]:
        now = self._store.clock()
        freshness, last, statement = relation.freshness, relation.last, relation.statement
        age = freshness.age(now)
        return {
            "name": relation.name,
            "source": relation.source.shown,
            "text": masked(relation.unreadable) or None if statement is None else statement.shown,
            "columns": [
                {"name": column.name, "type": column.type.value, "unit": column.unit} for column in relation.columns
            ],
            "rows": None if last is None else last.rows,
            "estimated_rows": relation.estimate if last is None else last.rows,
            "bytes": None if last is None else last.bytes,
            "version": None if last is None else last.number,
            "age": None if age is None else round(age, 3),
            "refresh": freshness.refresh_seconds,
            "stale_after": freshness.stale_seconds,
            "state": freshness.state(now).value,
            "reason": freshness.reason,
            "used_by": list(readers),
        }

    def stale(self) -> Mapping[str, dict[str, float | None]]:
        """Return, by running query, the stale relations that it reads, where there are any.

        Each with its name, and when it was surely current, in seconds since 1970; None for never.
        """
        now, wall = self._store.clock(), self._store.wall()
        stale = {
            each.identity: (each.name, None if (age := each.freshness.age(now)) is None else wall - age)
            for each in self._store.all()
            if each.freshness.state(now) is not State.FRESH
        }
        if not stale:
            return {}
        since = {
            query.name: dict(stale[each.identity] for each in query.node.relations if each.identity in stale)
            for query in self._registry.queries()
        }
        return {query: found for query, found in since.items() if found}

    def _check_name(self, name: str) -> None:
        if (unreadable := self._streams.unreadable.find(name)) is not None:
            raise CatalogError(
                f"there is already a stream {unreadable.name!r}, which cannot be read: {unreadable.reason}",
                hint="drop it first, or choose another name",
            )
        taken = self._streams.catalog().find(name)
        if taken is not None:
            raise CatalogError(
                f"there is already a {kind_of(taken)} {taken.name!r}",
                hint="choose another name"
                if isinstance(taken, StaticRelation) and self.find(taken.name).built_in
                else "drop it first, or choose another name",
            )
        if len(self._store.all()) >= MOST_RELATIONS:
            raise CatalogError(f"there are {MOST_RELATIONS} relations already", hint="drop some")

    async def _columns(self, statement: CreateRelation, source: RelationSource) -> Schema:
        """Return the columns of a new relation: those declared, if the source has them, or else those of the source."""
        try:
            given = await self._refresher.in_thread(source.columns, seconds=DISCOVERY_SECONDS)
            if not statement.columns:
                return all_columns(given)
            matched(statement.columns, given)
        except SourceAwayError as error:
            if not statement.columns:
                hint = "declare its columns to create it nevertheless: CREATE RELATION name (column TYPE, ...) FROM ..."
                raise statement.error(f"it cannot be reached: {masked(error.message)}", hint) from None
        except RelationSourceError as error:
            raise _statement_error(statement, error) from None
        return statement.columns


def _statement_error(statement: CreateRelation, error: RelationSourceError) -> FjordSqlError:
    """Return an error of a source as an error about the part of the statement that it concerns."""
    where = "query" if statement.query else "table" if statement.table else "source"
    if isinstance(error, SourceRefusedError):
        where = "source"
    if isinstance(error, SourceSchemaError) and error.column is not None and statement.columns:
        where = f"column {error.column}"
    return statement.error(error.message, error.hint, at=where)
