"""Creates, drops and describes functions of users, for the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cluster.functions.calling import check_function
from cluster.functions.process import UserFunctionError
from cluster.language.catalog import CatalogError
from cluster.language.declarations import CreateFunction, DropFunction
from cluster.language.errors import FjordSqlError, suggest
from cluster.language.translation import parse_statement
from cluster.plan.names_read import functions_of
from cluster.service.catalog.function_store import FunctionStore, KnownFunction
from cluster.service.catalog.planning import Planning, finished
from cluster.service.catalog.stream_service import StreamService
from cluster.service.registry.registry import Registry
from protocols.event_log import get_logger

log = get_logger(__name__)

MOST_FUNCTIONS = 256


class UnknownFunctionError(CatalogError):
    """There is no function of this name."""


class FunctionService:
    """Creates, drops and describes functions.

    Parameters
    ----------
    store
        The functions.
    registry
        The queries that run and wait.
    streams
        The streams; derived ones may call functions.
    lock
        Held while queries, streams, relations or functions are added or dropped.
    planning
        Plans statements.
    """

    def __init__(
        self,
        store: FunctionStore,
        registry: Registry,
        streams: StreamService,
        *,
        lock: asyncio.Lock,
        planning: Planning,
    ) -> None:
        self._store = store
        self._registry = registry
        self._streams = streams
        self._lock = lock
        self._planning = planning
        self._one_check = asyncio.Lock()

    async def execute(self, text: str) -> dict[str, Any]:
        """Create or drop a function; return its description, or that it was dropped.

        Raises
        ------
        FjordSqlError
            If the text is neither, or the function is not allowed, cannot be imported or takes other arguments.
        CatalogError
            If the name is taken, unknown, or in use.
        """
        match await self._planning.run(partial(parse_statement, text)):
            case CreateFunction() as statement:
                return await self.create(statement)
            case DropFunction(name=name):
                await self.drop(name)
                return {"name": name, "dropped": True}
            case _:
                raise FjordSqlError(
                    "CREATE FUNCTION or DROP FUNCTION was expected here",
                    text=text,
                    start=0,
                    end=len(text),
                    hint="streams are made with `fjord stream create`, queries with `fjord query add`",
                )

    async def create(self, statement: CreateFunction) -> dict[str, Any]:
        """Create a function that can be imported; return its description."""
        self._check_name(statement.name)
        # In a process of its own, and in a thread: a module that hangs when it is imported keeps its author waiting.
        async with self._one_check:
            try:
                check = partial(check_function, statement.function, self._store.rules)
                await finished(asyncio.to_thread(check))
            except UserFunctionError as error:
                raise statement.path_error(error.message) from None
        async with self._lock:
            self._check_name(statement.name)
            known = self._store.create(statement)
        log.info("function created", function=statement.name, path=statement.function.path)
        return self.describe(known)

    async def drop(self, name: str) -> None:
        """Drop a function.

        Raises
        ------
        CatalogError
            If there is none of this name, or a query or stream calls it.
        """
        async with self._lock:
            known = self.find(name)
            if users := self._users().get(known.registered.identity):
                name = known.registered.name
                raise CatalogError(f"function {name!r} is in use by {', '.join(users)}", hint="drop those first")
            self._store.drop(known)
            log.info("function dropped", function=known.registered.name)

    def find(self, name: str) -> KnownFunction:
        """Return a function.

        Raises
        ------
        UnknownFunctionError
            If there is none of this name.
        """
        known = self._store.find(name)
        if known is None:
            names = [each.registered.name for each in self._store.all()]
            raise UnknownFunctionError(f"there is no function {name!r}", hint=suggest(name, names, what="there are"))
        return known

    def all(self) -> list[dict[str, Any]]:
        """Return the descriptions of all functions."""
        users = self._users()
        return [self._described(each, users.get(each.registered.identity, ())) for each in self._store.all()]

    def describe(self, known: KnownFunction) -> dict[str, Any]:
        """Return the description of a function."""
        return self._described(known, self._users().get(known.registered.identity, ()))

    def _described(self, known: KnownFunction, users: Sequence[str]) -> dict[str, Any]:
        function, text = known.function, known.registered.text
        found = {"name": known.registered.name, "text": text, "used_by": list(users), "reason": known.reason}
        if function is None:
            return {**found, "shape": "", "result": "", "language": "", "strict": False, "path": "", "allowed": False}
        return {
            **found,
            "shape": function.shape,
            "result": function.result.value,
            "language": function.language.value,
            "strict": function.strict,
            "path": function.path,
            "allowed": self._store.rules.allow(function.module, function.attribute),
        }

    def _users(self) -> Mapping[str, Sequence[str]]:
        """Return, by identity of a function, the names of the queries and derived streams that call it."""
        found: dict[str, list[str]] = {}
        nodes = [(each.name, each.node) for each in self._registry.queries()]
        nodes += [(each.name, each.node) for each in self._streams.derived]
        for name, node in nodes:
            for function in functions_of(node):
                found.setdefault(function.identity, []).append(name)
        for waiting in self._registry.relations.waiting():
            for identity in waiting.functions:
                found.setdefault(identity, []).append(waiting.name)
        return {identity: sorted(names) for identity, names in found.items()}

    def _check_name(self, name: str) -> None:
        if (known := self._store.find(name)) is not None:
            raise CatalogError(
                f"there is already a function {known.registered.name!r}",
                hint="drop it first, or choose another name: a function has one list of types",
            )
        if len(self._store.all()) >= MOST_FUNCTIONS:
            raise CatalogError(f"there are {MOST_FUNCTIONS} functions already", hint="drop some")
