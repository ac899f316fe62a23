"""What queries with ranges take at each choice of their sizes. Pure.

State is the upper bound that queries are admitted by (cluster/fjord/state_size.py), so that what is chosen fits where
it is checked; time is the average of cluster/costs, as there is no bound of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.costs.adaptation import Cost
from cluster.costs.answering import answering_us
from cluster.costs.estimates import Estimate, estimates_of, totals_of
from cluster.costs.prices import Prices
from cluster.fjord.state_size import bytes_of_waiting, state_bytes
from cluster.operators import Node
from cluster.operators.size_ranges import Sizes
from cluster.operators.walks import from_below
from cluster.physical.migration import Migration, MigrationRefusedError
from cluster.physical.nodes import PhysicalPlan
from cluster.plan.epoch import Handover
from cluster.plan.history import EVER_US
from cluster.service.queries.ranged_queries import Costs, RangedQuery, items_of
from cluster.service.queries.size_plans import Shape, SizePlans, shape_of

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
