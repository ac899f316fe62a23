"""Queries with ranges: their plans at each choice of sizes, made once for all of a shape, and what these take. Pure.

**The plans of queries with ranges at choices of their sizes: each is made once for all queries of its shape.**

    SELECT a.x FROM a WINDOW(RANGE MIN 1 HOUR, MAX 3 HOURS) JOIN b ...     one shape: streams are numbered in the order
    SELECT d.x FROM d WINDOW(RANGE MIN 1 HOUR, MAX 3 HOURS) JOIN c ...     in which they are read

A fleet has thousands of queries that differ in their streams only. What a plan takes is computed from its shape and the
rates of its streams; so neither changed rates nor new streams make plans anew.

State is the upper bound that queries are admitted by (cluster/fjord/upper_estimates.py), so that what is chosen fits
where it is checked; time is the average of cluster/costs, as there is no bound of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from cluster.costs.adaptation import Cost
from cluster.costs.estimates import Estimate, answering_us, estimates_of, totals_of
from cluster.costs.prices import Prices
from cluster.fjord.upper_estimates import bytes_of_waiting, state_bytes
from cluster.language.catalog import Catalog, DerivedStream
from cluster.operators import Held, Node, Source
from cluster.operators.size_ranges import SizeRange, Sizes
from cluster.operators.walks import from_below, nodes_of, rebuilt
from cluster.physical.lowering import lower
from cluster.physical.migration import Migration, MigrationRefusedError
from cluster.physical.nodes import PhysicalPlan
from cluster.plan.epoch import Handover, Plan, PlannedQuery
from cluster.plan.history import EVER_US
from cluster.service.catalog.planning import PlanningContext
from cluster.shared_nodes import remembered
from protocols.wire.names import folded


@dataclass(frozen=True, slots=True)
class RangedQuery:
    """A query with ranges.

    Parameters
    ----------
    name
        Its name.
    kind
        What its plan follows from, besides its sizes: queries of one kind and the same sizes share all that they keep.
    ranges
        What its author allows.
    sizes
        Those that it has, or gets; none of a query that has not begun.
    before
        Those that it has until then, while it changes: it does not change again before.
    """

    name: str
    kind: str
    ranges: tuple[SizeRange, ...]
    sizes: Sizes
    before: Sizes = field(default_factory=dict)

    def at(self, windows: float, granularities: float) -> Sizes:
        """Return its sizes with windows and granularities at a share each; while it changes, those that it gets."""
        if self.before:
            return self.sizes
        return {each: each.at(windows if each.kind == "window" else granularities) for each in self.ranges}

    def at_most(self, windows: float, granularities: float) -> Sizes:
        """Return its sizes at these shares, or those that it has where they are worse."""
        found = self.at(windows, granularities)
        return {each: min(size, self.sizes.get(each, size), key=share_of(each)) for each, size in found.items()}

    def shared_with(self, sizes: Sizes) -> Hashable:
        """Return a key that is equal for queries which share all that they keep, with these sizes from now on."""
        return self.kind, items_of(sizes), items_of(self.sizes), items_of(self.before)

    def at_least(self, windows: float, granularities: float) -> Sizes:
        """Return its sizes at these shares, or those that it has where they are better."""
        found = self.at(windows, granularities)
        return {each: max(size, self.sizes.get(each, size), key=share_of(each)) for each, size in found.items()}


def items_of(sizes: Sizes) -> tuple[tuple[SizeRange, int], ...]:
    """Return sizes as a key."""
    return tuple(sizes.items())


def share_of(allowed: SizeRange) -> Callable[[int], float]:
    """Return how far a size is from the worst of a range to the best, as a function of the size."""
    return lambda size: (size - allowed.worst_us) / (allowed.best_us - allowed.worst_us)


CostOf = Callable[[RangedQuery, Sizes], Cost]
"""Returns what a query of these sizes takes in its steady state, alone."""
CostOfBoth = Callable[[RangedQuery, Sizes, Sizes], Cost]
"""Returns what a query takes while its plan of the first sizes hands over to that of the second."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Estimates of what queries take.

    Parameters
    ----------
    fixed
        All queries without ranges together.
    of, of_both
        A query with ranges.
    """

    fixed: Cost
    of: CostOf
    of_both: CostOfBoth

    def steady(self, queries: Iterable[RangedQuery], sizes: Mapping[str, Sizes]) -> Cost:
        """Return what all take with these sizes by name; queries of one kind and the same sizes count once."""
        return self._all((each, self.of(each, sizes[each.name]), sizes[each.name]) for each in queries)

    def during(self, queries: Iterable[RangedQuery], sizes: Mapping[str, Sizes]) -> Cost:
        """Return what all take while they change to these sizes."""
        changing = ((each, sizes[each.name]) for each in queries)
        return self._all((each, self.of_change(each, new), new) for each, new in changing)

    def of_change(self, query: RangedQuery, sizes: Sizes) -> Cost:
        """Return what a query takes while it changes to these sizes."""
        old = query.before or query.sizes
        return self.of(query, sizes) if not old or old == sizes else self.of_both(query, old, sizes)

    def _all(self, costs: Iterable[tuple[RangedQuery, Cost, Sizes]]) -> Cost:
        found = {query.shared_with(sizes): cost for query, cost, sizes in costs}
        return sum(found.values(), self.fixed)


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_Sizes = tuple[tuple[SizeRange, int], ...]

MOST_PLANS = 8_192
"""So many plans are kept, and as many physical ones; those that were used last."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan without the names of its streams.

    Parameters
    ----------
    node
        The plan with numbers in place of names; as it is, if it reads relations or a past.
    streams
        Its streams, and what they are named in the plan.
    """

    node: Node
    streams: tuple[tuple[str, str], ...]

    def rates(self, tuples_per_second: Mapping[str, float]) -> dict[str, float]:
        """Return rates by the names that streams have in the plan; unknown ones are left out."""
        found = ((own, tuples_per_second.get(stream)) for stream, own in self.streams)
        return {own: rate for own, rate in found if rate is not None}


@remembered
def shape_of(node: Node) -> Shape:
    """Return the shape of a plan."""
    names = tuple(dict.fromkeys(each.stream for each in from_below(node) if isinstance(each, Source)))
    if node.relations or any(_has_instants(each) for each in nodes_of(node)):
        return Shape(node, tuple((name, name) for name in names))
    numbered = {name: f"s{place:06}" for place, name in enumerate(names)}
    return Shape(_renamed(node, numbered), tuple(numbered.items()))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    def change(current: Node) -> Node:
        return replace(current, stream=names[current.stream]) if isinstance(current, Source) else current

    return rebuilt(node, change)


def _has_instants(node: Node) -> bool:
    return isinstance(node, Held) or (isinstance(node, Source) and node.history is not None)


class SizePlans:
    """Plans of texts and shapes at their sizes, each made once.

    Parameters
    ----------
    context
        In which queries are planned.
    """

    def __init__(self, context: PlanningContext) -> None:
        self.context = context
        self._ranged: dict[str, Node] = {}
        self._shapes: dict[str, Shape] = {}
        self._nodes: dict[Node, Node] = {}
        """One object for equal shapes and plans, so that looking something up compares none."""
        self._plans: OrderedDict[tuple[Node, _Sizes], Node] = OrderedDict()
        self._lowered: OrderedDict[tuple[Node, ...], PhysicalPlan] = OrderedDict()
        self._running: OrderedDict[Node, Node] = OrderedDict()
        self._changeable: OrderedDict[tuple[Node, Node, _Sizes], bool] = OrderedDict()

    def moved_to(self, context: PlanningContext) -> SizePlans:
        """Return the plans of another context: without those that may differ there."""
        if context is self.context:
            return self
        found = SizePlans(context)
        changed = changed_names(self.context.catalog, context.catalog)
        found._ranged = {sql: each for sql, each in self._ranged.items() if not _mentions(sql, changed)}
        found._shapes = {sql: each for sql, each in self._shapes.items() if sql in found._ranged}
        found._nodes = self._nodes.copy()
        holds = found.holds_of(self.context)
        found._plans = OrderedDict((key, each) for key, each in self._plans.items() if holds(key[0]))
        found._lowered = OrderedDict((key, each) for key, each in self._lowered.items() if all(map(holds, key)))
        found._changeable = OrderedDict((key, each) for key, each in self._changeable.items() if holds(key[1]))
        return found

    def holds_of(self, before: PlanningContext) -> Callable[[Node], bool]:
        """Return whether a plan that was made of a translation before is made of it now, too, as a function of it."""
        if (before.sizes, before.large) == (self.context.sizes, self.context.large):
            return lambda _: True
        return lambda node: not node.relations

    def keep(self, texts: Collection[str]) -> None:
        """Forget the translations of all other texts, once there are many of them."""
        if len(self._ranged) > 2 * len(texts) + MOST_PLANS:
            self._ranged = {sql: each for sql, each in self._ranged.items() if sql in texts}
            self._shapes = {sql: each for sql, each in self._shapes.items() if sql in texts}

    def ranged(self, sql: str) -> Node:
        """Return the translated plan of a query that was added."""
        if sql not in self._ranged:
            self._ranged[sql] = self.context.ranged(sql)
        return self._ranged[sql]

    def note(self, sql: str, node: Node) -> None:
        """Note the translated plan of a query that has not been added."""
        self._ranged.setdefault(sql, node)

    def shape(self, sql: str) -> Shape:
        """Return the shape of a text."""
        if sql not in self._shapes:
            found = shape_of(self.ranged(sql))
            self._shapes[sql] = Shape(self._one(found.node), found.streams)
        return self._shapes[sql]

    def _one(self, node: Node) -> Node:
        if len(self._nodes) > 4 * MOST_PLANS:
            self._nodes = {each: each for each in (*self._plans.values(), *(at.node for at in self._shapes.values()))}
        return self._nodes.setdefault(node, node)

    def plan(self, sql: str, sizes: Sizes) -> Node:
        """Return the plan of a query with a choice of sizes."""
        return self.context.at(self.ranged(sql), sizes)

    def at(self, shape: Shape, sizes: Sizes) -> Node:
        """Return the plan of a shape with a choice of sizes."""
        key = shape.node, items_of(sizes)
        return _kept(self._plans, key, lambda: self._one(self.context.at(shape.node, sizes)))

    def lowered(self, nodes: tuple[Node, ...]) -> PhysicalPlan:
        """Return what runs plans together, and nothing else."""
        queries = (PlannedQuery("alone", place, node) for place, node in enumerate(nodes))
        return _kept(self._lowered, nodes, lambda: lower(Plan(0, tuple(queries))))

    def can_change(self, running: Node, sql: str, sizes: Sizes) -> bool:
        """Return whether a query whose plan runs can go on with other sizes."""
        shape = self.shape(sql)
        names = dict(shape.streams)
        if running.streams != names.keys():
            return False  # the text has come to mean something else
        runs = _kept(self._running, running, lambda: _renamed(running, names))
        key = runs, shape.node, items_of(sizes)
        return _kept(self._changeable, key, lambda: _migrates(runs, self.at(shape, sizes)))


def changed_names(before: Catalog, after: Catalog) -> frozenset[str]:
    """Return the names, without case, that mean something else or nothing in a later catalog, however indirectly."""
    if before.functions != after.functions:
        return frozenset(before.entries)
    changed = {name for name, each in before.entries.items() if not _same(each, after.entries.get(name))}
    grows = bool(changed)
    while grows:
        reading = {
            name
            for name, each in before.entries.items()
            if isinstance(each, DerivedStream) and name not in changed and changed & set(map(folded, each.reads))
        }
        changed |= reading
        grows = bool(reading)
    return frozenset(changed)


def _same(one: object, other: object) -> bool:
    return one is other or one == other


def _mentions(sql: str, names: frozenset[str]) -> bool:
    text = folded(sql) if names else ""
    return any(name in text for name in names)


def _migrates(old: Node, new: Node) -> bool:
    try:
        Migration(old, new)
    except MigrationRefusedError:
        return False
    return True


def _kept(found: OrderedDict[K, T], key: K, make: Callable[[], T]) -> T:
    """Return what is kept, or made and kept in place of what has not been used for the longest time."""
    if key in found:
        found.move_to_end(key)
    else:
        found[key] = make()
        if len(found) > MOST_PLANS:
            found.popitem(last=False)
    return found[key]


SECOND_US = 1e6


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a shape at the rates of its streams: its costs, by choices of sizes."""

    shape: Shape
    rates: Mapping[str, float]
    costs: dict[object, Cost] = field(default_factory=dict)
    waiting: dict[object, float] = field(default_factory=dict)
    """Bytes of answers that wait while one choice follows another."""


class SizeCosts:
    """Estimates of queries at their sizes; each is made once, and again when the rates of its streams have changed.

    Parameters
    ----------
    plans
        The plans of queries.
    rates
        By stream: tuples in a second.
    prices
        What steps of operators cost.
    timed
        Whether time is limited: else it is not estimated.
    """

    def __init__(
        self,
        plans: SizePlans,
        rates: Mapping[str, float],
        prices: Prices,
        *,
        timed: bool,
    ) -> None:
        self.plans = plans
        self.rates = rates
        self.prices = prices
        self._timed = timed
        self._by_text: dict[str, _Known] = {}
        self._alone: dict[Node, _Known] = {}
        self._panes: dict[Node, bool] = {}
        self._estimates: dict[Node, Estimate] = {}
        self._checked: set[str] = set()
        """Texts whose shape and rates are those of the present context."""

    def with_all_of(self, before: SizeCosts) -> SizeCosts:
        """Return these with what holds of earlier estimates, at other rates or in another context."""
        if (before.prices, before._timed) == (self.prices, self._timed):
            holds = self.plans.holds_of(before.plans.context)
            self._by_text = {sql: each for sql, each in before._by_text.items() if holds(each.shape.node)}
            self._alone = {node: each for node, each in before._alone.items() if holds(node)}
            self._panes = {node: each for node, each in before._panes.items() if holds(node)}
            self._estimates = dict(before._estimates) if before.rates == self.rates else {}
        return self

    def holds(self, plans: SizePlans, rates: Mapping[str, float], prices: Prices) -> bool:
        """Return whether these are the estimates of plans at some rates and prices."""
        return self.plans is plans and (self.rates, self.prices) == (rates, prices)

    def keep(self, texts: Iterable[str]) -> None:
        """Forget all other texts, once there are many of them."""
        kept = set(texts)
        self.plans.keep(kept)
        if len(self._by_text) > 2 * len(kept) + 100:
            self._by_text = {sql: each for sql, each in self._by_text.items() if sql in kept}
        if len(self._alone) > 10 * len(kept) + 1_000:
            self._alone.clear()

    def of(self, query: RangedQuery, sizes: Sizes) -> Cost:
        """Return what a query takes alone; one without ranges is part of all others."""
        return self._cost(query, sizes)

    def of_both(self, query: RangedQuery, old: Sizes, new: Sizes) -> Cost:
        """Return what a query takes while it changes its sizes: panes are shared, other state is kept twice.

        Answers wait besides.
        """
        if not query.ranges:
            return Cost()
        both = (
            self._cost(query, old, new)
            if self._shares_panes(query.kind, old)
            else self._cost(query, old) + self._cost(query, new)
        )
        return both + Cost(self._waiting(query.kind, old, new))

    def _waiting(self, sql: str, *choices: Sizes) -> float:
        """Return the bytes of the answers that wait while a query goes on with other sizes."""
        known, key = self._known(sql), tuple(map(items_of, choices))
        if key not in known.waiting:
            old, new = (self.plans.at(known.shape, each) for each in choices)
            try:
                delayed_us = Migration(old, new).delay_us
            except MigrationRefusedError:
                delayed_us = 0  # its sizes cannot be changed
            handing = Handover(EVER_US, EVER_US + delayed_us, cut=True)
            known.waiting[key] = bytes_of_waiting(self.plans.lowered((old,)), handing, known.rates)
        return known.waiting[key]

    def of_plan(self, node: Node) -> Cost:
        """Return what a plan that runs would take alone."""
        shape = shape_of(node)
        rates = shape.rates(self.rates)
        known = self._alone.get(node)
        if known is None or known.rates != rates:
            known = self._alone[node] = _Known(shape, rates, {(): self._of_plans((shape.node,), rates)})
        return known.costs[()]

    def _shares_panes(self, sql: str, sizes: Sizes) -> bool:
        shape = self._known(sql).shape.node
        if shape not in self._panes:
            (fragment,) = self.plans.lowered((self.plans.at(self._known(sql).shape, sizes),)).fragments
            self._panes[shape] = fragment.shares_panes
        return self._panes[shape]

    def _known(self, sql: str) -> _Known:
        known = self._by_text.get(sql)
        if known is None or sql not in self._checked:
            shape = self.plans.shape(sql)
            rates = shape.rates(self.rates)
            if known is None or (known.shape, known.rates) != (shape, rates):
                known = self._by_text[sql] = _Known(shape, rates)
            self._checked.add(sql)
        return known

    def _cost(self, query: RangedQuery, *choices: Sizes) -> Cost:
        if not query.ranges:
            return Cost()
        known, key = self._known(query.kind), tuple(map(items_of, choices))
        if key not in known.costs:
            nodes = tuple(self.plans.at(known.shape, each) for each in choices)
            known.costs[key] = self._of_plans(nodes, known.rates)
        return known.costs[key]

    def _of_plans(self, nodes: tuple[Node, ...], rates: Mapping[str, float]) -> Cost:
        """Return what plans of shapes take together."""
        estimates: dict[Node, Estimate] = {}
        for node in nodes if self._timed else ():
            estimates_of(node, rates, prices=self.prices, known=estimates)
        busy = self._taken(estimates, nodes) if self._timed else 0.0
        return Cost(state_bytes(self.plans.lowered(nodes), rates), busy)

    def _taken(self, estimates: Mapping[Node, Estimate], plans: Iterable[Node]) -> float:
        """Return the seconds that plans take of a processor in each; equal ones are one."""
        answering = sum(answering_us(each, estimates, self.prices) for each in dict.fromkeys(plans))
        return (totals_of(estimates.values()).work_us + answering) / SECOND_US

    def of_running(self, physical: PhysicalPlan, nodes: Iterable[Node]) -> Cost:
        """Return what all queries take, given the plan that runs and those of the queries."""
        return Cost(state_bytes(physical, self.rates), self._busy(nodes))

    def _busy(self, nodes: Iterable[Node]) -> float:
        if not self._timed:
            return 0.0
        used: dict[Node, Estimate] = {}
        plans = list(nodes)
        for node in plans:
            estimates_of(node, self.rates, prices=self.prices, known=self._estimates)
            used.update((each, self._estimates[each]) for each in from_below(node))
        self._estimates = used  # of plans that are gone nothing is kept
        return self._taken(used, plans)

    def beside(self, everything: Cost, queries: Iterable[RangedQuery]) -> Costs:
        """Return the costs of queries with ranges, beside those of all others, which is what is left of everything."""
        own = Costs(Cost(), self.of, self.of_both)
        listed = list(queries)
        taken = own.during(listed, {each.name: each.sizes for each in listed})
        fixed = Cost(max(everything.state_bytes - taken.state_bytes, 0.0), max(everything.busy - taken.busy, 0.0))
        return Costs(fixed, self.of, self.of_both)
