"""What a migration of a query waits for, and when it has ended.

Pure. Where queries are carried out is reported to it (:class:`Answered`); :mod:`cluster.service.queries.migrations` is
the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from cluster.operators import Node, Source
from cluster.operators.walks import rebuilt
from cluster.physical.migration import Migration, MigrationRefusedError
from cluster.physical.nodes import Host
from cluster.physical.rules.sensor_demands import sensor_demands
from cluster.plan.epoch import PlannedQuery
from cluster.plan.history import sources_with_history
from cluster.service.registry.running_queries import NextPlan, RegisteredQuery
from protocols.wire.demands import QueryDemand


@dataclass(frozen=True, slots=True)
class Answered:
    """How far one of the two Spark queries has come, with what it has committed.

    Parameters
    ----------
    epoch
        The newest epoch with which it has run.
    backfilling
        The epochs of queries that still read their history.
    passed_us
        By stream: its low watermark behind what has been read; streams without one are left out.
    """

    epoch: int
    backfilling: frozenset[int]
    passed_us: Mapping[str, int]


AnsweredBy = Callable[[Host, frozenset[str]], Answered | None]
"""Returns how far a host has come with some streams; None if that is unknown."""


def planned_migration(query: RegisteredQuery, node: Node, deadline_us: int | None) -> tuple[Node, Migration]:
    """Return the plan with which a query may go on, and how.

    Parameters
    ----------
    query
        The query, as it runs.
    node
        The plan that is wanted; it reads what comes only, and no history, which the present plan has read.
    deadline_us
        As for :class:`~cluster.physical.migration.Migration`.

    Raises
    ------
    MigrationRefusedError
        If it cannot; says why.
    """
    old, new = without_history(query.node), without_history(node)
    if new == query.node:
        raise MigrationRefusedError(f"query {query.name!r} has this plan already")
    if _demands(old) != _demands(new):
        raise MigrationRefusedError(
            "the query cannot go on with this plan: it demands other samples of sensors, and it is not known from "
            "which instant on they send them"
        )
    return new, Migration(query.node, new, deadline_us=deadline_us)


def without_history(node: Node) -> Node:
    """Return a plan that reads of its streams only what comes."""
    if not any(sources_with_history(node)):
        return node
    return rebuilt(node, lambda each: replace(each, history=None) if isinstance(each, Source) else each)


def _demands(node: Node) -> dict[str, frozenset[QueryDemand]]:
    """Return what a plan demands of sensors; in which order it reads streams makes no difference to these."""
    demanded = sensor_demands(PlannedQuery("", 0, node)).streams
    return {stream: frozenset(demands) for stream, demands in demanded}


def waits_for(query: RegisteredQuery, answered: Answered | None) -> str | None:
    """Return in words what a migration of a query waits for before it may begin; None if it may.

    Parameters
    ----------
    query
        The query.
    answered
        How far its host has come.
    """
    if query.next is not None:
        return "another migration of the query to end"
    if not any(sources_with_history(query.node)):
        return None
    behind = answered is None or answered.epoch < query.since_epoch or query.since_epoch in answered.backfilling
    return "the query to have read its history" if behind else None


def has_ended(following: NextPlan, streams: frozenset[str], answered: Answered | None) -> bool:
    """Return whether a plan that hands over to another one has answered all that is its own.

    Parameters
    ----------
    following
        The plan that it hands over to.
    streams
        The streams of the query.
    answered
        How far its host has come.
    """
    if answered is None or answered.epoch < following.since_epoch:
        return False
    opens_us = following.handover.opens_us
    return all(answered.passed_us.get(stream, opens_us - 1) >= opens_us for stream in streams)
