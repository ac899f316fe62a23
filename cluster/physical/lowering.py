"""From the logical plan of an epoch to its physical plan: in one pass each query goes to the fragment of its kind.

This is the only place that decides what runs where; hosts only instantiate (:mod:`cluster.fjord.running_kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cluster.operators import Node
from cluster.physical.nodes import NOTHING, Fragment, PhysicalPlan, Subscriber
from cluster.physical.rules.folded_queries import FoldedQuery
from cluster.physical.rules.folding import shares_tuples
from cluster.physical.rules.shared_extents import CoalescingQuery
from cluster.physical.rules.shared_panes import WindowedQuery
from cluster.physical.subscriber_tally import SubscriberTally
from cluster.physical.successors import Step, indexed, place_in, successor
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import has_own_beginning
from cluster.plan.pane_query import pane_query_of
from cluster.shared_nodes import remembered

Lowered = FoldedQuery | WindowedQuery | CoalescingQuery
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
        if subscriber is None:
            subscriber = lowered.subscriber(query)
        subscribers.setdefault(identity, []).append(_handing_over(subscriber, query))
    # Folded queries first; otherwise in the order of the oldest queries.
    ordered = sorted(kinds.items(), key=lambda each: isinstance(each[1], WindowedQuery))
    fragments = [
        _fragment(kind, tuple(subscribers[identity]), before.by_identity.get(identity)) for identity, kind in ordered
    ]
    return PhysicalPlan(plan.epoch, tuple(fragments), plan.positions)


def with_query(running: PhysicalPlan, query: PlannedQuery, positions: Mapping[str, int] | None = None) -> PhysicalPlan:
    """Return the physical plan with one more query.

    Parameters
    ----------
    running
        The running plan.
    query
        The query; it becomes the newest.
    positions
        Those of the new plan; None for those of the running one.
    """
    positions = running.positions if positions is None else positions
    return successor(indexed(running), running.epoch + 1, positions, (_joining(running, query),))


def with_handover(
    running: PhysicalPlan, old: PlannedQuery, new: PlannedQuery, positions: Mapping[str, int]
) -> PhysicalPlan:
    """Return the physical plan in which one plan of a query hands over to another, which is new.

    Parameters
    ----------
    running
        The running plan, with the old one.
    old, new
        Both, with the handover; the new one becomes the newest.
    positions
        Those of the new plan.
    """
    part, was = running.by_query[old.identity], running.subscribers[old.identity]
    at, now = place_in(part.subscribers, was), _handing_over(was, old)
    handing = replace(part, subscribers=(*part.subscribers[:at], now, *part.subscribers[at + 1 :]))
    handing.__dict__["tally"] = part.tally
    kind, identity = _lowered(new.node)
    if part.identity == identity:
        subscriber = kind.subscriber(new)
        steps: tuple[Step, ...] = (Step(part, _grown(kind, handing, subscriber), (was,), (now, subscriber)),)
    else:
        steps = (Step(part, handing, (was,), (now,)), _joining(running, new))
    return successor(indexed(running), running.epoch + 1, positions, steps)


def without_query(running: PhysicalPlan, query: PlannedQuery, positions: Mapping[str, int]) -> PhysicalPlan:
    """Return the physical plan without one of its queries.

    Parameters
    ----------
    running
        The running plan.
    query
        One of its queries.
    positions
        Those of the new plan.
    """
    return without_queries(running, (query,), positions)


def without_queries(
    running: PhysicalPlan, queries: Sequence[PlannedQuery], positions: Mapping[str, int]
) -> PhysicalPlan:
    """Return the physical plan without some of its queries, or some of the plans of one."""
    steps: dict[str, Step] = {}
    for query in queries:
        part, subscriber = running.by_query[query.identity], running.subscribers[query.identity]
        known = steps.get(part.identity, Step(part, part))
        steps[part.identity] = Step(part, _without(known.after, query, subscriber), (*known.go, subscriber))
    return successor(indexed(running), running.epoch + 1, positions, tuple(steps.values()))


def _without(part: Fragment | None, query: PlannedQuery, subscriber: Subscriber) -> Fragment | None:
    assert part is not None  # noqa: S101 - it has this subscriber
    if len(part.subscribers) == 1:
        return None
    at = place_in(part.subscribers, subscriber)
    left = (*part.subscribers[:at], *part.subscribers[at + 1 :])
    kind, _ = _lowered(query.node)
    return _tallied(kind, part.tally.without_subscriber(subscriber, left), left)


def _joining(running: PhysicalPlan, query: PlannedQuery) -> Step:
    """Return the step by which a new query joins those whose fragment it shares, or gets one of its own."""
    kind, identity = _lowered(query.node)
    before, subscriber = running.by_identity.get(identity), kind.subscriber(query)
    after = kind.fragment((subscriber,)) if before is None else _grown(kind, before, subscriber)
    return Step(before, after, come=(subscriber,))


def _grown(kind: Lowered, part: Fragment, subscriber: Subscriber) -> Fragment:
    return _tallied(kind, part.tally.with_subscriber(subscriber), (*part.subscribers, subscriber))


def _handing_over(subscriber: Subscriber, query: PlannedQuery) -> Subscriber:
    """Return a query's subscriber as it stands between other plans of the query."""
    if (subscriber.since, subscriber.until) == (query.since, query.until):
        return subscriber
    return replace(subscriber, since=query.since, until=query.until)


def _tallied(kind: Lowered, tally: SubscriberTally, subscribers: tuple[Subscriber, ...]) -> Fragment:
    found = kind.changed(tally, subscribers)
    found.__dict__["tally"] = tally
    return found


def begins_with_others(node: Node) -> bool:
    """Return whether a query may begin with the epoch of others: if neither its group nor its beginning needs one."""
    kind, _ = _lowered(node)
    shares = isinstance(kind, WindowedQuery | CoalescingQuery) or shares_tuples(kind.template)
    return shares and not has_own_beginning(node)


def sharing_of_query(query: PlannedQuery) -> tuple[str, int]:
    """Return the identity of the fragment that would run a query, and its query group there: equal ones share rows."""
    kind, identity = _lowered(query.node)
    return identity, kind.subscriber(query).group


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
    found: Lowered | None = CoalescingQuery.of(node) if windowed is None else WindowedQuery(windowed)
    found = found or FoldedQuery.of(node)
    return found, found.identity


def _fragment(kind: Lowered, subscribers: tuple[Subscriber, ...], before: Fragment | None) -> Fragment:
    if before is not None and before.subscribers == subscribers:
        return before
    return kind.fragment(subscribers)
