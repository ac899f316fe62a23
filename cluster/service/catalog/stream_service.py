"""Creates and drops streams, and reserves their names: CREATE STREAM, CREATE STREAM ... AS and DROP STREAM.

**Names by which no proxy may offer a stream: those of relations, of derived streams and of unreadable streams.**

A stream is unreadable if an earlier version accepted the statement that created it and this one refuses it. It keeps
its name until it is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from cluster.errors import UnwritableError
from cluster.ingest.service import Ingest
from cluster.language.catalog import BaseStream, Catalog, CatalogError, DerivedStream, StaticRelation, kind_of
from cluster.language.declarations import CreateFunction, CreateRelation, DropFunction, DropRelation
from cluster.language.errors import FjordSqlError, suggest
from cluster.language.translation import (
    CreateDerivedStream,
    CreateStream,
    DropStream,
    SelectStatement,
    parse_statement,
    translate_derived,
)
from cluster.service.catalog.function_store import FunctionStore
from cluster.service.catalog.planning import Planning
from cluster.service.catalog.relation_store import RelationStore
from cluster.service.registry.registry import Registry
from protocols.errors import FjordError, TopicError
from protocols.event_log import get_logger
from protocols.wire.names import folded
from protocols.wire.topics import check_name


@dataclass(frozen=True, slots=True)
class UnreadableStream:
    """A stream whose statement this version rejects.

    Parameters
    ----------
    name
        Its name.
    text
        The statement that created it.
    reason
        Why this version refuses it.
    """

    name: str
    text: str
    reason: str


class UnreadableStreams:
    """All unreadable streams, by name without regard to case."""

    def __init__(self) -> None:
        self._by_name: dict[str, UnreadableStream] = {}

    def all(self) -> list[UnreadableStream]:
        """Return all, oldest first."""
        return list(self._by_name.values())

    def find(self, name: str) -> UnreadableStream | None:
        """Return the stream of this name, or None."""
        return self._by_name.get(folded(name))

    def add(self, name: str, text: str, error: FjordError) -> None:
        """Note why a stream cannot be read."""
        self._by_name[name.casefold()] = UnreadableStream(name, text, str(error))

    def remove(self, name: str) -> None:
        """Remove a stream, if it is unreadable."""
        self._by_name.pop(name.casefold(), None)


class ReservedNames:
    """The reserved names, shared by the ingest, which rejects offers of them, and by the services that reserve them.

    Parameters
    ----------
    relations
        The relations.
    """

    def __init__(self, relations: RelationStore) -> None:
        self.relations = relations
        self.derived: dict[str, DerivedStream] = {}
        """By name, oldest first."""
        self.unreadable = UnreadableStreams()

    def reserved_for(self, name: str) -> str | None:
        """Return what a name is reserved for; None if a proxy may offer a stream of this name."""
        if self.relations.find(name) is not None:
            return "relation"
        if self.unreadable.find(name) is not None:
            return "stream that cannot be read called"
        return "derived stream" if name.casefold() in {each.casefold() for each in self.derived} else None


log = get_logger(__name__)

SOURCES = ("mqtt",)
"""What can feed a stream: proxies, over MQTT."""


class StreamService:
    """The streams that a query may name: those that proxies offer, those declared before, and derived ones.

    Parameters
    ----------
    registry
        Keeps the statements.
    ingest
        Keeps the tables of base streams.
    lock
        Held while queries, streams or relations are added or dropped.
    names
        The relations, and the names by which no proxy may offer a stream.
    planning
        Plans statements.
    functions
        What queries may call.
    """

    def __init__(
        self,
        registry: Registry,
        ingest: Ingest,
        lock: asyncio.Lock,
        names: ReservedNames,
        *,
        planning: Planning,
        functions: FunctionStore,
    ) -> None:
        self._functions = functions
        self._registry = registry
        self._ingest = ingest
        self._names = names
        self._lock = lock
        self._planning = planning
        self._stamps: dict[str, str | None] = {}
        self.unreadable = names.unreadable
        self._load_statements(registry.streams.statements())
        for each in self.unreadable.all():
            log.warning("stream cannot be read: drop it, and create it again", stream=each.name, reason=each.reason)

    @property
    def derived(self) -> list[DerivedStream]:
        """All derived streams, oldest first."""
        return list(self._names.derived.values())

    def catalog(self) -> Catalog:
        """Return what a query may name now."""
        base = [BaseStream(schema, self._stamps.get(name)) for name, schema in self._ingest.schemas.items()]
        catalog = Catalog.of([*base, *self._names.derived.values()]).with_functions(self._functions.entries())
        for relation in self._names.relations.entries():
            # A stream that is older than the built-in relation of its name keeps the name.
            if catalog.find(relation.name) is None:
                catalog = catalog.with_stream(relation)
        reasons = {each.name.casefold(): each.reason for each in self.unreadable.all()}
        return replace(catalog, unreadable=MappingProxyType(reasons))

    async def execute(self, text: str) -> str:
        """Create or drop a stream; return its name.

        Raises
        ------
        FjordSqlError
            If the text is no declaration, or its query cannot be translated.
        CatalogError
            If the name is taken, unknown, or in use.
        PlanningLimitError, PlanningBusyError
            If it takes too long to plan, or too many others wait to be planned.
        """
        statement = await self._planning.run(partial(parse_statement, text))
        async with self._lock:
            match statement:
                case CreateStream() | CreateDerivedStream():
                    return await self._create(statement)
                case DropStream():
                    return self._drop(statement.name)
                case SelectStatement():
                    reason, hint = "declaration was expected here, not a query", "started with `fjord query add`"
                    raise FjordSqlError(f"a {reason}", text=text, start=0, end=len(text), hint=f"queries are {hint}")
                case CreateFunction() | DropFunction():
                    reason, hint = "this is about a function, not a stream", "functions have `fjord function`"
                    raise FjordSqlError(reason, text=text, start=0, end=len(text), hint=hint)
                case CreateRelation() | DropRelation():
                    reason, hint = "this is about a relation, not a stream", "relations have `fjord relation`"
                    raise FjordSqlError(reason, text=text, start=0, end=len(text), hint=hint)

    async def drop(self, name: str) -> None:
        """Drop a stream and its table.

        Raises
        ------
        CatalogError
            If there is none of this name, or a query, a derived stream or a proxy uses it.
        """
        async with self._lock:
            self._drop(name)

    async def _create(self, statement: CreateStream | CreateDerivedStream) -> str:
        if (known := self.catalog().find(statement.name)) is not None:
            raise CatalogError(
                f"there is already a {kind_of(known)} {known.name!r}", hint="drop it first, or choose another name"
            )
        if (unreadable := self.unreadable.find(statement.name)) is not None:
            raise CatalogError(
                f"there is already a stream {unreadable.name!r}, which cannot be read: {unreadable.reason}",
                hint="drop it first, or choose another name",
            )
        text = statement.text
        if isinstance(statement, CreateStream):
            name = self._add_base(statement)
        else:
            derived = await self._planning.run(partial(translate_derived, text, self.catalog()))
            name, text = self._add_derived(derived), derived.text
        try:
            self._registry.streams.create(name, text)
        except UnwritableError:
            self._undo(name)
            raise
        log.info("stream created", stream=name)
        self._load_statements({each.name: each.text for each in self.unreadable.all()})
        return name

    def _undo(self, name: str) -> None:
        """Remove a stream that was just added, and that nothing can have used yet."""
        if self._names.derived.pop(name, None) is None:
            self._stamps.pop(name, None)
            self._ingest.forget(name)

    def _load_statements(self, statements: Mapping[str, str]) -> None:
        """Load streams that were created before, by name; those that cannot be read do not stop the others."""
        left: dict[str, str] = {}
        for name, text in statements.items():
            try:
                self._load(text, registered=True)
            except FjordError as error:
                self.unreadable.add(name, text, error)
                left[name] = text
            else:
                self.unreadable.remove(name)
        if 0 < len(left) < len(statements):
            # A stream may read another that was dropped and created again after it.
            self._load_statements(left)

    def _load(self, text: str, *, registered: bool = False) -> str:
        statement = parse_statement(text, registered=registered)
        if isinstance(statement, CreateStream):
            return self._add_base(statement)
        derived = translate_derived(text, self.catalog(), registered=registered)
        if registered and derived.warnings:
            log.warning("stream created before", stream=derived.name, warnings=derived.warnings)
        return self._add_derived(derived)

    def _add_base(self, statement: CreateStream) -> str:
        self._ingest.declare(statement.stream.schema, only_proxy=_feeder(statement))
        self._stamps[statement.name] = statement.stream.stamp
        return statement.name

    def _add_derived(self, derived: DerivedStream) -> str:
        self._names.derived[derived.name] = derived
        return derived.name

    def _drop(self, name: str) -> str:
        catalog = self.catalog()
        entry = catalog.find(name)
        unreadable = self.unreadable.find(name)
        if entry is None and unreadable is not None:
            # No new query can read it, and those that run have its plan in theirs.
            self._registry.streams.drop(unreadable.name)
            self.unreadable.remove(name)
            log.info("stream dropped", stream=unreadable.name)
            return unreadable.name
        wanted = folded(name)
        using = [
            query.name
            for query in self._registry.queries()
            if wanted in {each.casefold() for each in (*query.reads, *query.node.streams)}
        ]
        using += [
            query.name
            for query in self._registry.relations.waiting()
            if wanted in {each.casefold() for each in query.reads}
        ]
        if isinstance(entry, StaticRelation):
            raise CatalogError(f"{name!r} is a relation", hint="drop it with `fjord relation drop`")
        catalog.without(name if entry is None else entry.name, used_by=using)
        assert entry is not None  # noqa: S101 - `without` has refused unknown names
        if isinstance(entry, BaseStream):
            if feeding := self._ingest.feeding(entry.name):
                raise CatalogError(
                    f"stream {entry.name!r} is fed by proxy {', '.join(sorted(feeding))}",
                    hint="stop the proxy first: it would offer the stream again",
                )
            # If the table cannot be removed after that, the stream has no statement left, and can be dropped again.
            self._registry.streams.drop(entry.name)
            self._ingest.forget(entry.name)
            self._stamps.pop(entry.name, None)
        else:
            self._registry.streams.drop(entry.name)
            self._names.derived.pop(entry.name)
        self.unreadable.remove(entry.name)
        log.info("stream dropped", stream=entry.name)
        return entry.name


def _feeder(statement: CreateStream) -> str | None:
    """Return the one proxy that may feed a stream; None if any may."""
    if statement.source.casefold() not in SOURCES:
        hint = suggest(statement.source, SOURCES, what="sources are")
        raise statement.source_error(f"there is no source {statement.source!r}", hint)
    if not statement.arguments:
        return None
    if len(statement.arguments) > 1 or not isinstance(statement.arguments[0], str):
        hint = "SOURCE mqtt() or SOURCE mqtt('roadside')"
        raise statement.source_error("mqtt takes at most the name of the proxy that feeds the stream", hint)
    try:
        return check_name(statement.arguments[0], "proxy")
    except TopicError as error:
        raise statement.source_error(error.message, error.hint) from None
