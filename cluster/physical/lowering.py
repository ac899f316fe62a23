"""From the logical plan of an epoch to its physical plan: in one pass each query goes to the fragment of its kind.

This is the only place that decides what runs where; hosts only instantiate (:mod:`cluster.fjord.instantiation`).
"""

from __future__ import annotations

from msgspec.structs import replace

from cluster.language.algebra import Node
from cluster.physical.nodes import NOTHING, Fragment, PhysicalPlan, Subscriber
from cluster.physical.rules.folded_queries import FoldedQuery
from cluster.physical.rules.shared_panes import WindowedQuery
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.pane_query import pane_query_of
from cluster.shared_nodes import remembered

Lowered = FoldedQuery | WindowedQuery
"""A query, with the rule that builds the fragment that it may share."""


def lower(plan: Plan, before: PhysicalPlan = NOTHING) -> PhysicalPlan:
    """Return the physical plan of a logical plan.

    Parameters
    ----------
    plan
        The logical plans of an epoch.
    before
        The physical plan of an earlier epoch. Unchanged fragments are reused, and in the others the subscribers that
        stay; so the cost of lowering is that of the change.

    Raises
    ------
    UnsupportedPlanError
        If something cannot be run; says why.
    """
    kinds: dict[str, Lowered] = {}
    subscribers: dict[str, list[Subscriber]] = {}
    known = before.subscribers
    for query in plan.queries:
        lowered, identity = _lowered(query.node)
        kinds.setdefault(identity, lowered)
        subscriber = known.get(query.identity)
        subscribers.setdefault(identity, []).append(lowered.subscriber(query) if subscriber is None else subscriber)
    # Folded queries first; otherwise in the order of the oldest queries.
    ordered = sorted(kinds.items(), key=lambda each: isinstance(each[1], WindowedQuery))
    fragments = [
        _fragment(kind, tuple(subscribers[identity]), before.by_identity.get(identity)) for identity, kind in ordered
    ]
    return PhysicalPlan(plan.epoch, tuple(fragments), plan.positions)


def with_query(running: PhysicalPlan, query: PlannedQuery) -> PhysicalPlan:
    """Return the physical plan with one more query.

    Parameters
    ----------
    running
        The running plan.
    query
        The query; it becomes the newest.
    """
    kind, identity = _lowered(query.node)
    before = running.by_identity.get(identity)
    subscriber = kind.subscriber(query)
    if before is not None:
        added = kind.fragment((*before.subscribers, subscriber))
        fragments = tuple(added if each is before else each for each in running.fragments)
        return replace(running, epoch=running.epoch + 1, fragments=fragments)
    fragments = running.fragments
    place = len(fragments)
    if isinstance(kind, FoldedQuery):
        place = next((at for at, each in enumerate(fragments) if each.shares_panes), place)
    fragments = (*fragments[:place], kind.fragment((subscriber,)), *fragments[place:])
    return replace(running, epoch=running.epoch + 1, fragments=fragments)


def lower_alone(node: Node) -> Fragment:
    """Return the fragment of a query without any others.

    Raises
    ------
    UnsupportedPlanError
        If something cannot be run; says why.
    """
    (fragment,) = lower(Plan(0, (PlannedQuery("alone", 0, node),))).fragments
    return fragment


@remembered
def _lowered(node: Node) -> tuple[Lowered, str]:
    """Return a query in the form in which it is folded, and the identity of its fragment."""
    windowed = pane_query_of(node)
    found: Lowered = FoldedQuery.of(node) if windowed is None else WindowedQuery(windowed)
    return found, found.identity


def _fragment(kind: Lowered, subscribers: tuple[Subscriber, ...], before: Fragment | None) -> Fragment:
    if before is not None and before.subscribers == subscribers:
        return before
    return kind.fragment(subscribers)
