"""What queries with ranges take at each choice of their sizes. Pure.

State is the upper bound that queries are admitted by (cluster/fjord/state_size.py), so that what is chosen fits where
it is checked; time is the average of cluster/costs, as there is no bound of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.costs.adaptation import Cost
from cluster.costs.estimates import Estimate, estimates_of, totals_of
from cluster.costs.prices import Prices
from cluster.fjord.state_size import state_bytes
from cluster.language.algebra import Node
from cluster.language.size_ranges import Sizes
from cluster.physical.lowering import lower, lower_alone
from cluster.physical.nodes import PhysicalPlan
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.service.catalog.planning import PlanningContext
from cluster.service.queries.size_decisions import Costs, RangedQuery

_Key = tuple[str, tuple[object, ...]]
SECOND_US = 1e6


@dataclass(frozen=True)
class SizeCosts:
    """Estimates of queries at their sizes; each is made once.

    Parameters
    ----------
    context
        In which queries are planned.
    rates
        By stream: tuples in a second.
    prices
        What steps of operators cost.
    timed
        Whether time is limited: else it is not estimated.
    """

    context: PlanningContext
    rates: Mapping[str, float]
    prices: Prices
    timed: bool
    _ranged: dict[str, Node] = field(default_factory=dict)
    _plans: dict[_Key, Node] = field(default_factory=dict)
    _costs: dict[_Key, Cost] = field(default_factory=dict)
    _panes: dict[str, bool] = field(default_factory=dict)

    def ranged(self, sql: str) -> Node:
        """Return the translated plan of a query that was added."""
        if sql not in self._ranged:
            self._ranged[sql] = self.context.ranged(sql)
        return self._ranged[sql]

    def note(self, sql: str, node: Node) -> None:
        """Note the translated plan of a query that has not been added."""
        self._ranged[sql] = node

    def plan(self, sql: str, sizes: Sizes) -> Node:
        """Return the plan of a query with a choice of sizes."""
        key = sql, tuple(sizes.items())
        if key not in self._plans:
            self._plans[key] = self.context.at(self.ranged(sql), sizes)
        return self._plans[key]

    def of(self, query: RangedQuery, sizes: Sizes) -> Cost:
        """Return what a query takes alone; one without ranges is part of all others."""
        return self._cost(query, sizes)

    def of_both(self, query: RangedQuery, old: Sizes, new: Sizes) -> Cost:
        """Return what a query takes while it changes its sizes: panes are shared, other state is kept twice."""
        if query.ranges and not self._shares_panes(query.kind, old):
            return self._cost(query, old) + self._cost(query, new)
        return self._cost(query, old, new)

    def _shares_panes(self, sql: str, sizes: Sizes) -> bool:
        if sql not in self._panes:
            self._panes[sql] = lower_alone(self.plan(sql, sizes)).shares_panes
        return self._panes[sql]

    def _cost(self, query: RangedQuery, *choices: Sizes) -> Cost:
        if not query.ranges:
            return Cost()
        key = query.kind, tuple(tuple(each.items()) for each in choices)
        if key not in self._costs:
            self._costs[key] = self.of_plans([self.plan(query.kind, each) for each in choices])
        return self._costs[key]

    def of_plans(self, nodes: Iterable[Node]) -> Cost:
        """Return what plans take together."""
        plans = list(nodes)
        queries = tuple(PlannedQuery("alone", place, node) for place, node in enumerate(plans))
        return Cost(state_bytes(lower(Plan(0, queries)), self.rates), self._busy(plans))

    def of_running(self, physical: PhysicalPlan, nodes: Iterable[Node]) -> Cost:
        """Return what all queries take, given the plan that runs and those of the queries."""
        return Cost(state_bytes(physical, self.rates), self._busy(nodes))

    def _busy(self, nodes: Iterable[Node]) -> float:
        if not self.timed:
            return 0.0
        found: dict[Node, Estimate] = {}
        for node in nodes:
            estimates_of(node, self.rates, prices=self.prices, known=found)
        return totals_of(found.values()).work_us / SECOND_US

    def beside(self, everything: Cost, queries: Iterable[RangedQuery]) -> Costs:
        """Return the costs of queries with ranges, beside those of all others, which is what is left of everything."""
        own = Costs(Cost(), self.of, self.of_both)
        listed = list(queries)
        taken = own.during(listed, {each.name: each.sizes for each in listed})
        fixed = Cost(max(everything.state_bytes - taken.state_bytes, 0.0), max(everything.busy - taken.busy, 0.0))
        return Costs(fixed, self.of, self.of_both)
