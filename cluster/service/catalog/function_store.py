"""The functions of users that a cluster has: loaded from the registry, whether or not they are allowed at present."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from cluster.errors import StorageError
from cluster.expressions.user_functions import UserFunction
from cluster.functions.allowed import FunctionRules
from cluster.language.declarations import CreateFunction
from cluster.language.translation import parse_statement
from cluster.service.registry.registry_tables import FunctionRegistry, RegisteredFunction
from protocols.errors import FjordError
from protocols.event_log import get_logger
from protocols.wire.names import folded

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """A function.

    Parameters
    ----------
    registered
        As it was created.
    function
        What the statement says; None if this version cannot read it.
    reason
        Why it cannot.
    """

    registered: RegisteredFunction
    function: UserFunction | None
    reason: str = ""


class FunctionStore:
    """All registered functions, by name.

    Parameters
    ----------
    registry
        Keeps their statements.
    rules
        Which may be used.
    """

    def __init__(self, registry: FunctionRegistry, rules: FunctionRules) -> None:
        self._registry = registry
        self.rules = rules
        self._by_name = {each.name.casefold(): _loaded(each) for each in registry.functions()}

    def all(self) -> list[KnownFunction]:
        """Return all functions, oldest first."""
        return list(self._by_name.values())

    def find(self, name: str) -> KnownFunction | None:
        """Return the function called `name`, or None."""
        return self._by_name.get(folded(name))

    def entries(self) -> Iterable[UserFunction]:
        """Return what queries may call."""
        return [each.function for each in self._by_name.values() if each.function is not None]

    def create(self, statement: CreateFunction) -> KnownFunction:
        """Register a new function."""
        registered = self._registry.create(statement.name, statement.text)
        known = KnownFunction(registered, replace(statement.function, identity=registered.identity))
        self._by_name[statement.name.casefold()] = known
        return known

    def drop(self, known: KnownFunction) -> None:
        """Remove a function."""
        self._registry.drop(known.registered.name)
        self._by_name.pop(known.registered.name.casefold())


def _loaded(registered: RegisteredFunction) -> KnownFunction:
    try:
        statement = parse_statement(registered.text, registered=True)
        if not isinstance(statement, CreateFunction):
            raise StorageError(f"the registry has no CREATE FUNCTION for function {registered.name!r}")
    except FjordError as error:
        log.warning("function cannot be read", function=registered.name, reason=error.message, hint=error.hint)
        return KnownFunction(registered, None, error.message)
    return KnownFunction(registered, replace(statement.function, identity=registered.identity))
