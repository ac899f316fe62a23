"""Queries and the relations that they read: which queries read a relation, and which wait for its first version.

A query waits if it was accepted and a relation that it reads has no version yet, so that it could not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.operators import Node
from cluster.plan.called_functions import functions_of
from cluster.service.catalog.relation_store import KnownRelation, RelationStore
from cluster.service.registry.registry import Registry
from cluster.service.registry.relation_registry import WaitingQuery


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
