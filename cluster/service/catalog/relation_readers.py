"""Which queries read a relation or wait to: whether it may be dropped, and must be refreshed, depends on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.plan.relations_read import relations_of
from cluster.service.catalog.relation_store import KnownRelation
from cluster.service.registry.registry import Registry


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

    def by_relation(self) -> Mapping[str, Sequence[str]]:
        """Return, by identity of a relation, the names of the queries that read it, or wait to."""
        found: dict[str, list[str]] = {}
        for query in self._registry.queries():
            for identity in {each.identity for each in relations_of(query.node)}:
                found.setdefault(identity, []).append(query.name)
        for waiting in self._registry.relations.waiting():
            for identity in waiting.relations:
                found.setdefault(identity, []).append(waiting.name)
        return found
