"""What running queries are expected to cost, beside what they do cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.costs.estimate_text import Measured, estimate_text
from cluster.costs.partners import expected_partners
from cluster.costs.prices import SHIPPED, Prices
from cluster.fjord.measured_nodes import measured_nodes
from cluster.fjord.measured_partners import measured_partners
from cluster.fjord.measured_selectivities import measured_selectivities
from cluster.fjord.operator_statistics import OperatorStatistics, Rates
from cluster.physical.nodes import Fragment
from cluster.physical.words import named, queries_counted
from cluster.plan.explain import explain
from cluster.service.catalog.planning import Planning, PlanningContext
from cluster.service.queries.operator_prices import FILE, OperatorPrices
from cluster.service.queries.query_limits import QueryLimits
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import RegisteredQuery


@dataclass(frozen=True, slots=True)
class QueryEstimates:
    """Estimates the plans of running queries.

    Parameters
    ----------
    registry
        The queries that run.
    limits
        Has the rates of streams.
    operators
        What the operators of the running plan do.
    prices
        What steps of operators cost here.
    planning
        Where this is computed.
    context
        Returns that in which queries are planned: it has the sizes of relations.
    """

    registry: Registry
    limits: QueryLimits
    operators: OperatorStatistics
    prices: OperatorPrices
    planning: Planning
    context: Callable[[], PlanningContext]

    async def running(self, name: str) -> str:
        """Return as text the plan of a query that runs: what is expected of each operator, and what it does.

        Raises
        ------
        UnknownQueryError
            If none of this name runs.
        """
        query, physical = self.registry.query(name), self.registry.physical
        rates, prices = self.limits.rates(query.node.streams), self.prices.current()
        sizes = self.context().sizes

        def text() -> str:
            fragment = physical.by_query[query.identity]
            selectivities = measured_selectivities(physical, self.operators.rates)
            measured = {
                node: _measured(each)
                for node, each in measured_nodes(query.node, fragment, self.operators.rates).items()
            }
            partners = expected_partners(query.node, sizes) | measured_partners(physical, self.operators.rates)
            table = estimate_text(query.node, rates, selectivities, prices, measured, partners=partners)
            bounds = self.limits.bounds_text(physical.alone(query.identity), rates)
            described = f"{table}\n{bounds}" if table else explain(query.node)
            return f"{_heading(query, fragment)}\n{described}\n{_source(prices)}\n"

        return await self.planning.run(text)


def _measured(rates: Rates) -> Measured:
    return Measured(rates.rows_out_per_second, rates.busy * 1e6, rates.microseconds_per_row)


def _heading(query: RegisteredQuery, fragment: Fragment) -> str:
    others = [each.query for each in fragment.subscribers if each.identity != query.identity]
    shared = f", which {queries_counted(len(others))} more subscribe to: {named(others)}" if others else ""
    return f"{query.name} runs in fragment {fragment.identity}{shared}"


def _source(prices: Prices) -> str:
    if prices is SHIPPED:
        return "Work as priced by default; `fjord plan calibrate` measures the prices of this machine."
    return f"Work as priced {prices.measured or 'by hand'} ({prices.machine or FILE})."
