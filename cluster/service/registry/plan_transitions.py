"""What a change of the queries makes of them and of their plan.

Pure. The registry stores what is decided here, all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from cluster.operators import Node
from cluster.physical.lowering import lower, with_handover, with_query, without_queries, without_query
from cluster.physical.nodes import PhysicalPlan
from cluster.service.registry.running_queries import NextPlan, RegisteredQuery, RunningQueries, SetAsideQuery


class LostEpochs(msgspec.Struct, frozen=True):
    """Epochs that plans or Spark's log mention and the registry has lost, along with changes of queries.

    Parameters
    ----------
    epochs
        How many.
    seen_us
        When the last loss was found.
    """

    epochs: int = 0
    seen_us: int | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of the queries, to be stored.

    Parameters
    ----------
    after
        The queries of the next epoch.
    planned
        Makes their physical plan of the present one; costly.
    come
        Queries that are new.
    goes
        The name of the query that ends.
    changes
        A query that begins to migrate, or has migrated, as it is then.
    used
        The number of the last name that was made up.
    lost
        The epochs that are lost, if that changes.
    aside
        The query that ends, if it keeps its name.
    """

    after: RunningQueries
    planned: Callable[[PhysicalPlan], PhysicalPlan]
    come: tuple[RegisteredQuery, ...] = ()
    goes: str | None = None
    changes: RegisteredQuery | None = None
    used: int | None = None
    lost: LostEpochs | None = None
    aside: SetAsideQuery | None = None


def adding(
    before: RunningQueries, query: RegisteredQuery, positions: Mapping[str, int], used: int | None = None
) -> Transition:
    """Return what adds a query, which begins after these versions of the streams' tables."""
    after = before.with_queries((query,), positions)
    return Transition(
        after, lambda running: with_query(running, query.planned, after.positions), come=(query,), used=used
    )


def adding_many(
    before: RunningQueries, queries: tuple[RegisteredQuery, ...], positions: Mapping[str, int], used: int | None = None
) -> Transition:
    """Return what adds queries with one epoch; they share the tuples of others that are running."""
    after = before.with_queries(queries, positions)
    return Transition(after, lambda running: lower(after.plan, running), come=queries, used=used)


def dropping(before: RunningQueries, query: RegisteredQuery, positions: Mapping[str, int]) -> Transition:
    """Return what ends a query; it still answers what lies before these versions."""
    after = before.without_query(query.name, positions)
    return Transition(
        after, lambda running: without_queries(running, query.all_planned, after.positions), goes=query.name
    )


def setting_aside(
    before: RunningQueries, query: RegisteredQuery, reason: str, positions: Mapping[str, int], now_us: int
) -> Transition:
    """Return what ends a query as :func:`dropping` does, and keeps its name and the reason."""
    return replace(dropping(before, query, positions), aside=SetAsideQuery.of(query, reason, now_us))


def migrating(
    before: RunningQueries, query: RegisteredQuery, node: Node, following: NextPlan, positions: Mapping[str, int]
) -> Transition:
    """Return what lets a query hand over to another plan, which begins after these versions."""
    after = before.changed(query.migrating(node, following), positions)
    old, new = after.by_name[query.name].all_planned
    return Transition(
        after,
        lambda running: with_handover(running, old, new, after.positions),
        changes=after.by_name[query.name],
    )


def finishing(before: RunningQueries, query: RegisteredQuery, positions: Mapping[str, int]) -> Transition:
    """Return what ends the plan that has handed over; it still reads what lies before these versions."""
    after = before.changed(query.migrated, positions)
    return Transition(
        after,
        lambda running: without_query(running, query.planned, after.positions),
        changes=after.by_name[query.name],
    )


def skipping(
    before: RunningQueries, newest: int, positions: Mapping[str, int], lost: LostEpochs, seen_us: int
) -> Transition:
    """Return what moves the queries to the epoch after `newest`, and counts those between as lost.

    Parameters
    ----------
    before
        The queries.
    newest
        An epoch that others know.
    positions
        By stream: the version of its table after which the queries go on.
    lost
        What has been lost before.
    seen_us
        The time of day, in microseconds since 1970.
    """
    after = before.moved(newest + 1, positions)
    more = LostEpochs(lost.epochs + newest - before.epoch, seen_us)
    return Transition(after, lambda running: lower(after.plan, running), lost=more)
