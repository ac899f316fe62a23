"""Queries that have been planned and have not begun, and where they would begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.errors import ClusterError
from cluster.language.translation import Query
from cluster.operators import Node
from cluster.plan.epoch import PlannedQuery
from cluster.storage.stream_tables import StreamTable

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


def positions_between_epochs(
    streams: frozenset[str], before: Mapping[str, int], tables: Mapping[str, StreamTable]
) -> Mapping[str, int]:
    """Return by stream the last version of its table that belongs to the present epoch, if another one begins now.

    A stream whose table was set aside is away until it is offered again; its queries keep their positions.

    Parameters
    ----------
    streams
        Those that are read.
    before
        Where the present epoch began, by stream.
    tables
        By stream.

    Raises
    ------
    ClusterError
        If a stream has no table, and was not read before.
    """
    kept = {each: at for each, at in before.items() if each not in tables}
    missing = streams - tables.keys() - kept.keys()
    if missing:
        raise ClusterError(f"stream {min(missing)!r} has no table")
    return {each: kept[each] if each in kept else tables[each].version for each in streams}
