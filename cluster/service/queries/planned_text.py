"""Queries that have been planned, and have not begun."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.language.algebra import Node
from cluster.language.translation import Query
from cluster.plan.epoch import PlannedQuery

EARLY_BY_DEFAULT = True
"""Whether a query without EMIT is published early."""


@dataclass(frozen=True, slots=True)
class Adding:
    """How far the addition of several queries has come.

    Parameters
    ----------
    queries
        How many there are.
    planned
        How many of them have been planned.
    """

    queries: int
    planned: int = 0


@dataclass(frozen=True, slots=True)
class PlannedText:
    """A text with its plan, and the name that its query is to have; None for any."""

    name: str | None
    sql: str
    query: Query
    node: Node

    @property
    def early(self) -> bool:
        """Whether it is published early."""
        return is_early(self.query)

    def in_epoch(self, epoch: int) -> PlannedQuery:
        """Return it as it would begin."""
        return PlannedQuery(self.name or "", epoch, self.node, self.early)


def is_early(query: Query) -> bool:
    """Return whether a query that begins now is published early."""
    return EARLY_BY_DEFAULT if query.early is None else query.early
