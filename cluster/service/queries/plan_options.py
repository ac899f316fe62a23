"""The plans with which queries could go on, or begin, as the choice among them sees them: what they share and cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.costs.choice import Candidate, Option
from cluster.costs.estimates import NO_SHARES, Estimate, Keys, Totals, coalescing_us, estimates_of, moves, totals_of
from cluster.costs.prices import Prices
from cluster.costs.selectivity import Partners, expected_partners
from cluster.errors import ClusterError, PlanError
from cluster.expressions.nodes import Expression
from cluster.language.translation import Query
from cluster.operators import AntiJoin, Join, Node, SemiJoin, Source
from cluster.operators.walks import from_below, nodes_of
from cluster.physical.lowering import sharing_of_query
from cluster.physical.rules.shared_extents import CoalescingQuery
from cluster.plan.alternatives import Alternative
from cluster.plan.epoch import PlannedQuery
from cluster.plan.extents import extent_of
from cluster.plan.names_read import RelationSize
from cluster.service.queries.migrations import planned_migration
from cluster.service.registry.running_queries import RegisteredQuery
from cluster.shared_nodes import remembered
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


MOST_OPTIONS = 8
"""Of each query so many plans are looked at together with those of others: the cheapest."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is measured and plans cost by.

    Parameters
    ----------
    rates
        Tuples per second, by stream.
    selectivities
        Of conditions, by stream and condition.
    shares
        By query: the shares of pairs that meet the conditions of its joins.
    prices
        What steps of operators cost.
    relations
        Sizes of relations, by identity.
    partners
        What lookups that run make of a tuple.
    keys
        How many keys the samples of extents have, and how many are linked.
    """

    rates: Mapping[str, float]
    selectivities: Mapping[tuple[str, Expression], float]
    prices: Prices
    shares: Mapping[str, Mapping[Expression, float]] = field(default_factory=dict)
    relations: Mapping[str, RelationSize] = field(default_factory=dict)
    partners: Partners = field(default_factory=dict)
    keys: Keys = field(default_factory=dict)

    def partners_of(self, plan: Node) -> Partners:
        """Return what lookups of a plan make of a tuple: as measured, else as expected."""
        return {**expected_partners(plan, self.relations), **self.partners}


@remembered
def has_choice(plan: Node) -> bool:
    """Return whether it is worth while to look for other plans: of joins, extents, and what is looked up twice."""
    return extent_of(plan) is not None or any(
        isinstance(each, Join | SemiJoin | AntiJoin) or (isinstance(each, Source) and len(each.lookups) > 1)
        for each in nodes_of(plan)
    )


def costs_of(query: str, plans: Iterable[Alternative], figures: Figures) -> Iterator[Totals | None]:
    """Yield what plans of a query are expected to cost, each alone; None where nothing is known."""
    known: dict[Node, Estimate] = {}
    shares = figures.shares.get(query, NO_SHARES)
    for each in plans:
        estimates_of(
            each.node,
            figures.rates,
            figures.selectivities,
            prices=figures.prices,
            pair_shares=shares,
            partners=figures.partners_of(each.node),
            keys=figures.keys,
            known=known,
        )
        own = [known[node] for node in from_below(each.node)]
        yield None if all(estimate.flow is None for estimate in own) else totals_of(own)


def options_of(
    query: PlannedQuery, plans: Sequence[Alternative], figures: Figures, *, most: int = MOST_OPTIONS
) -> list[Option]:
    """Return the cheapest plans of a query, cheapest alone first; none if something is not known of the first one.

    Parameters
    ----------
    query
        The query; its own plan does not matter.
    plans
        Its plans, as they are numbered.
    figures
        What they cost by.
    most
        How many.
    """
    costs: list[tuple[float, int]] = []
    for place, total in enumerate(costs_of(query.name, plans, figures)):
        if total is not None and total.known and total.work_us < float("inf"):
            costs.append((total.work_us, place))
        elif not place:
            return []
    return [option_of(query, place + 1, plans[place].node, cost, figures) for cost, place in sorted(costs)[:most]]


def option_of(query: PlannedQuery, number: int, node: Node, cost_us: float, figures: Figures) -> Option:
    """Return a plan of a query, given what it costs alone."""
    fragment, group = sharing_of_query(PlannedQuery(query.name, query.since_epoch, node, query.early))
    moved_us, own_us, own = _of_extent(node, figures)
    own_us = min(own_us, cost_us)
    batches_us = sum(figures.prices.of(each).batch for each in from_below(node))
    fixed_us = min(batches_us + moved_us, cost_us - own_us)
    return Option(number, fragment, str(group), fixed_us, cost_us - own_us - fixed_us, own_us, f"{own} {group}")


def _of_extent(node: Node, figures: Figures) -> tuple[float, float, int]:
    """Return what an extent that may be shared takes whenever its window moves, and what coalescing it, if it is lazy.

    And its number, which is that of extents that are coalesced in one way.
    """
    found, extent = CoalescingQuery.of(node), extent_of(node)
    if found is None or extent is None:
        return 0.0, 0.0, 0
    estimates = estimates_of(extent, figures.rates, figures.selectivities)
    samples, kept = estimates[extent.input].flow, estimates[extent].kept
    if samples is None or kept is None:
        return 0.0, 0.0, 0
    own_us = coalescing_us(extent, samples, kept, figures.prices, figures.keys)
    return moves(samples) * figures.prices.of(extent).moved, own_us, found.number


def candidate(
    query: RegisteredQuery, plans: Sequence[Alternative], running: Node, figures: Figures
) -> Candidate | None:
    """Return a running query with the plans that it could go on with; None if nothing is known of its own.

    Parameters
    ----------
    query
        The query.
    plans
        Its plans, as they are numbered.
    running
        The one by which it runs.
    figures
        What they cost by.
    """
    place = next((place for place, each in enumerate(plans) if each.node == running), None)
    own = [Alternative(running)] if place is None else [plans[place]]
    now = options_of(query.planned, own, figures)
    if not now:
        return None
    current = replace(now[0], number=0 if place is None else place + 1)
    others = [
        each
        for each in options_of(query.planned, plans, figures)
        if each.number != current.number and _may_follow(query, plans[each.number - 1].node)
    ]
    return Candidate(query.name, current, tuple(others))


def _may_follow(query: RegisteredQuery, node: Node) -> bool:
    try:
        planned_migration(query, node, None)
    except PlanError:
        return False
    return True
