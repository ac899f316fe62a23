"""Queries that wait: accepted, but a relation that they read has no version yet, so that they could not answer."""

from __future__ import annotations

from cluster.language.algebra import Node
from cluster.plan.demand import streams_of
from cluster.plan.relations_read import relations_of
from cluster.service.catalog.relation_store import KnownRelation, RelationStore
from cluster.service.registry.registry import Registry
from cluster.service.registry.relation_registry import WaitingQuery


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
        return bool(self._missing({each.identity for each in relations_of(node)}))

    def ready(self) -> list[WaitingQuery]:
        """Return those whose relations have versions."""
        return [query for query in self.all() if not self._missing(query.relations)]

    def add(self, name: str | None, sql: str, node: Node, reads: frozenset[str]) -> WaitingQuery:
        """Register a query that waits; errors are those of :meth:`Registry.add`."""
        identities = frozenset(each.identity for each in relations_of(node))
        return self._registry.wait(name, sql, reads | streams_of(node), identities)

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
