"""Windowed aggregates as the choice among families of panes sees them, and the cheapest plan of a new query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.costs.choice import Option, cheapest
from cluster.costs.pane_families import Family, Move, Pane, PaneUser, keys_seen, moves, placed
from cluster.costs.selectivity import share_passing
from cluster.costs.work import BATCHES_PER_SECOND, SECOND_US
from cluster.fjord.operator_statistics import Rates
from cluster.operators import Node
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import Scalar
from cluster.operators.size_ranges import ranges_of
from cluster.physical.lowering import sharing_of_query
from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.operations import Panes, PartialAggregate
from cluster.plan.alternatives import Alternative, alternatives
from cluster.plan.epoch import PlannedQuery
from cluster.plan.history import has_own_beginning
from cluster.plan.pane_query import families_of, pane_query_of, with_family
from cluster.plan.sized import quality_of
from cluster.service.queries.plan_options import Figures, PlannedText, has_choice, options_of
from cluster.service.queries.query_alternatives import running_plan
from cluster.service.registry.running_queries import RegisteredQuery
from cluster.shared_nodes import remembered

KIND = "Panes"
"""What families are priced as."""


@dataclass(frozen=True, slots=True)
class _Window:
    """What is always true of a windowed aggregate."""

    panes_of: str
    stream: str
    condition: Scalar | None
    family: Family
    own_us: int
    size_us: int
    slide_us: int
    families: tuple[Family, ...]
    keyed: bool


@remembered
def _window_of(plan: Node) -> _Window | None:
    """Return the window of a plan that shares panes; None of another one, or if its tuples cannot be estimated."""
    found = pane_query_of(plan)
    if found is None or found.source.detector is not None or found.source.sample_period_us is not None:
        return None
    common = -found.pane_class
    return _Window(
        found.panes_of,
        found.source.stream,
        found.predicate,
        common if found.family_us is None else found.family_us,
        found.own_pane_us,
        found.size_us,
        found.slide_us,
        (common, *families_of(plan)),
        bool(found.keys),
    )


def shares_panes(plan: Node) -> bool:
    """Return whether a plan has a window that may be in one family of panes or another."""
    return _window_of(plan) is not None


@dataclass(frozen=True, slots=True)
class PaneUsers:
    """All windows that run over the same tuples and keys.

    Parameters
    ----------
    users
        The windows.
    keys
        How many keys they have: as seen, or as assumed.
    """

    users: Sequence[PaneUser]
    keys: float


@dataclass(slots=True)
class _Found:
    users: list[PaneUser] = field(default_factory=list)
    fragments: dict[str, tuple[Fragment, dict[int, float]]] = field(default_factory=dict)
    """With the tuples of their groups in a second."""
    keyed: bool = False


def pane_users(
    queries: Iterable[RegisteredQuery],
    physical: PhysicalPlan,
    figures: Figures,
    rates: Callable[[str], Rates],
    may_move: Callable[[RegisteredQuery], bool],
) -> dict[str, PaneUsers]:
    """Return the windows that run, by what their panes are of; those of streams without a rate are left out.

    Parameters
    ----------
    queries
        The queries that run.
    physical
        Their plan.
    figures
        What plans cost by.
    rates
        Of an operator, by its name.
    may_move
        Whether a query may go on with another plan now.
    """
    found: dict[str, _Found] = {}
    shares: dict[tuple[str, Scalar], float] = {}
    for query in queries:
        plan = running_plan(query)
        window = _window_of(plan)
        if window is None or window.stream not in figures.rates:
            continue
        identity = query.all_planned[-1].identity
        subscriber, fragment = physical.subscribers.get(identity), physical.by_query.get(identity)
        if subscriber is None or fragment is None:
            continue
        pane = _pane_of(window, subscriber.group, figures, shares)
        own = found.setdefault(window.panes_of, _Found())
        own.users.append(PaneUser(query.name, window.family, pane, window.families if may_move(query) else ()))
        own.fragments.setdefault(fragment.identity, (fragment, {}))[1][subscriber.group] = pane.per_second
        own.keyed = window.keyed
    return {name: PaneUsers(each.users, _keys(each, rates)) for name, each in found.items()}


def _pane_of(window: _Window, group: int, figures: Figures, shares: dict[tuple[str, Scalar], float]) -> Pane:
    """Return what a window needs of its panes; adds to known shares of tuples that meet conditions."""
    per_second = figures.rates[window.stream]
    if window.condition is not None:
        place = window.stream, window.condition
        if place not in shares:
            shares[place] = share_passing(window.stream, window.condition.expression, figures.selectivities)
        per_second *= shares[place]
    return Pane(group, per_second, window.own_us, window.size_us, window.slide_us)


def _keys(found: _Found, rates: Callable[[str], Rates]) -> float:
    """Return how many keys windows have, by the partial rows that the busiest of their families makes."""
    if not found.keyed:
        return 1.0
    most, seen = 0.0, None
    for fragment, per_second in found.fragments.values():
        width_us = next(each.operation.width_us for each in fragment.nodes if isinstance(each.operation, Panes))
        made = rates(next(each.id for each in fragment.nodes if isinstance(each.operation, PartialAggregate)))
        if made.rows_in_per_second > most:
            # As many tuples as came are taken for those that are expected.
            most, expected = made.rows_in_per_second, sum(per_second.values())
            came = [each * most / expected for each in per_second.values()] if expected else []
            seen = keys_seen(made.rows_out_per_second, came, min(width_us / SECOND_US, 1 / BATCHES_PER_SECOND))
    return float(KEYS_ASSUMED) if seen is None else seen


def family_moves(found: PaneUsers, figures: Figures, most: int) -> list[Move]:
    """Return the moves of windows to other families that pay, the best one first, of no more than so many queries."""
    return moves(found.users, figures.prices.named(KIND), keys=found.keys, most=most)


def narrows_panes(plan: Node, physical: PhysicalPlan) -> bool:
    """Return whether a new query would make panes that run narrower for all that share them."""
    window = _window_of(plan)
    if window is None:
        return False
    fragment = physical.by_identity.get(sharing_of_query(PlannedQuery("", 0, plan))[0])
    widths = () if fragment is None else (each.operation for each in fragment.nodes)
    return any(window.own_us % each.width_us != 0 for each in widths if isinstance(each, Panes))


def family_of_new(query: PlannedQuery, running: Mapping[str, PaneUsers], figures: Figures) -> Family | None:
    """Return the family in which a new query costs least beside those that run; None for the one in which it is."""
    window = _window_of(query.node)
    if window is None or window.panes_of not in running:
        return None
    beside = running[window.panes_of]
    _, group = sharing_of_query(query)
    pane = _pane_of(window, group, figures, {})
    found = placed(pane, window.families, beside.users, figures.prices.named(KIND), keys=beside.keys)
    return None if found == window.family else found


def may_choose(query: PlannedText, physical: PhysicalPlan) -> bool:
    """Return whether it is worth while to look for another plan of a new query beside those that run."""
    return has_choice(query.node) or narrows_panes(query.node, physical)


def with_cheapest_plan(query: PlannedText, physical: PhysicalPlan, figures: Figures) -> PlannedText:
    """Return a new query that joins with the plan that costs least beside those that run."""
    if has_own_beginning(query.node) or ranges_of(query.query.node):
        return query
    planned = query.in_epoch(physical.epoch + 1)
    first = options_of(planned, (Alternative(query.node),), figures)
    if not first:
        return query
    plans = alternatives(query.node)
    options = [*first, *(each for each in options_of(planned, plans, figures) if each.number != 1)]
    best = cheapest(options, _running_beside(options, physical))
    return query if best.number == 1 else replace(query, node=plans[best.number - 1].node)


def _running_beside(options: Sequence[Option], physical: PhysicalPlan) -> list[Option]:
    """Return what runs in the fragments that plans would join, a plan for each query group."""
    return [
        replace(each, number=0, group=str(group))
        for each in {option.fragment: option for option in options}.values()
        if each.fragment in physical.by_identity
        for group in physical.by_identity[each.fragment].groups
    ]


def in_cheapest_family(
    query: PlannedText,
    queries: Sequence[RegisteredQuery],
    physical: PhysicalPlan,
    figures: Figures,
    rates: Callable[[str], Rates],
) -> PlannedText:
    """Return a new query whose window would make the panes of others narrow in the family in which it costs least.

    Parameters
    ----------
    query
        The new query.
    queries, physical
        Those that run, and their plan.
    figures
        What plans cost by.
    rates
        Of an operator, by its name.
    """
    if has_own_beginning(query.node) or quality_of(query.node) is not None:
        return query
    running = pane_users(queries, physical, figures, rates, lambda _: False)
    family = family_of_new(query.in_epoch(physical.epoch + 1), running, figures)
    return query if family is None or family <= 0 else replace(query, node=with_family(query.node, family))
