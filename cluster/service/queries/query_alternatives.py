"""The plans with which a running query could go on, what each is expected to cost, and the one that a number names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.costs.estimates import Totals
from cluster.errors import ClusterError, PlanError
from cluster.expressions.nodes import Expression
from cluster.fjord.batch import instant_text
from cluster.fjord.measured_plans import measured_partners, measured_selectivities
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.operators import Node
from cluster.operators.size_ranges import BEST, ranges_of
from cluster.plan.alternatives import Alternative, alternatives
from cluster.plan.explain import explain
from cluster.plan.history import EVER_US
from cluster.plan.sized import quality_of, sizes_in
from cluster.service.catalog.planning import Planning, PlanningContext
from cluster.service.queries.migrations import planned_migration, without_history
from cluster.service.queries.operator_prices import OperatorPrices
from cluster.service.queries.plan_options import Figures, costs_of
from cluster.service.queries.query_limits import QueryLimits
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import RegisteredQuery

SHOWN = 20
"""So many plans are listed unless more are asked for: the cheapest, and the one that runs."""


class NoAlternativeError(ClusterError):
    """A number that names no plan of a query."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A plan in the list.

    Parameters
    ----------
    number
        Its number; None for one that runs and that rules do not reach.
    words
        What is different from the first one.
    cost
        What it is expected to cost, alone; None if nothing is known.
    runs
        Whether the query runs by it, and answers.
    comes
        Whether it is the plan with which the query goes on: a migration is under way, or waits.
    at
        From when on, if it is known; None if not, and for the beginning.
    waits_for
        What the migration waits for; empty if it is under way.
    migration
        What becomes of rows when the query goes on with it: ``whole`` or ``cut``; empty if it runs or cannot.
    refused
        Why the query cannot go on with it; empty if it can.
    plan
        The plan as a tree.
    """

    number: int | None
    words: str
    cost: Totals | None
    runs: bool
    migration: str
    refused: str
    plan: str
    comes: bool = False
    at: str | None = None
    waits_for: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        work = None if self.cost is None else self.cost.work_us
        kept = None if self.cost is None else self.cost.kept
        return {
            "number": self.number,
            "what": self.words,
            "work_us": _finite(work),
            "kept_rows": _finite(kept),
            "complete": self.cost is not None and self.cost.known,
            "runs": self.runs,
            "comes": self.comes,
            "at": self.at,
            "waits_for": self.waits_for,
            "migration": self.migration,
            "refused": self.refused,
            "plan": self.plan,
        }


def _finite(number: float | None) -> float | None:
    return None if number is None or number == float("inf") else round(number, 1)


@dataclass(frozen=True, slots=True)
class QueryAlternatives:
    """Lists the plans of running queries.

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
        Where plans are looked for.
    context
        Returns that in which queries are planned.
    shares
        Returns, by condition, the shares of pairs that joins of a query have found.
    waiting
        Returns the plan that a migration of a query would bring, and what it waits for; None if there is none.
    """

    registry: Registry
    limits: QueryLimits
    operators: OperatorStatistics
    prices: OperatorPrices
    planning: Planning
    context: Callable[[], PlanningContext]
    shares: Callable[[str], Mapping[Expression, float]]
    waiting: Callable[[str], tuple[Node, str] | None]

    async def of(self, name: str, *, most: int = SHOWN) -> list[Listed]:
        """Return the cheapest plans of a query and the one that runs, cheapest first.

        Raises
        ------
        UnknownQueryError
            If none of this name runs.
        PlanningLimitError, PlanningBusyError
            If it takes too long, or too many statements wait.
        """
        query, context, physical = self.registry.query(name), self.context(), self.registry.physical
        rates, prices = self.limits.rates(query.node.streams), self.prices.current()
        coming = _coming(query, self.waiting(name))

        def listed() -> list[Listed]:
            selectivities = measured_selectivities(physical, self.operators.rates)
            partners = measured_partners(physical, self.operators.rates)
            figures = Figures(rates, selectivities, prices, {name: self.shares(name)}, context.sizes, partners)
            found = plans_of(query, context)
            return _listed(query, coming, found, list(costs_of(name, found, figures)), most)

        return await self.planning.run(listed)

    async def numbered(self, name: str, number: int) -> Node:
        """Return the plan of a query that a number names.

        Raises
        ------
        UnknownQueryError
            If none of this name runs.
        NoAlternativeError
            If it names none.
        """
        query, context = self.registry.query(name), self.context()
        found = await self.planning.run(lambda: plans_of(query, context))
        if not 1 <= number <= len(found):
            plans = "it has one plan" if len(found) == 1 else f"its plans are numbered from 1 to {len(found):,}"
            raise NoAlternativeError(
                f"query {name!r} has no plan {number}: {plans}", hint=f"list them: fjord plan alternatives {name}"
            )
        return found[number - 1].node


def plans_of(query: RegisteredQuery, context: PlanningContext) -> tuple[Alternative, ...]:
    """Return the plans of a query, as they are numbered: reached from its text, not from the plan that runs.

    Raises
    ------
    PlanError
        If its text cannot be planned any more.
    """
    translated = context.ranged(query.sql)
    ranges = ranges_of(translated)
    quality = quality_of(running_plan(query)) if ranges else None
    sizes = None if quality is None else sizes_in(quality, ranges)
    return alternatives(without_history(context.at(translated, BEST if sizes is None else sizes)))


def running_plan(query: RegisteredQuery) -> Node:
    """Return the plan by which a query runs, or is about to."""
    return without_history(query.node if query.next_node is None else query.next_node)


@dataclass(frozen=True, slots=True)
class _Coming:
    """The plan with which a query goes on, from when on, and what that waits for."""

    node: Node
    at_us: int
    waits_for: str


def _coming(query: RegisteredQuery, waiting: tuple[Node, str] | None) -> _Coming | None:
    if query.next is not None and query.next_node is not None:
        return _Coming(without_history(query.next_node), query.next.handover.at_us, "")
    return None if waiting is None else _Coming(without_history(waiting[0]), EVER_US, waiting[1])


def _listed(
    query: RegisteredQuery,
    coming: _Coming | None,
    found: Sequence[Alternative],
    costs: Sequence[Totals | None],
    most: int,
) -> list[Listed]:
    running = without_history(query.node)
    marked = [running] if coming is None else [running, coming.node]
    order = sorted(range(len(found)), key=lambda place: (_work(costs[place]), place))
    shown = [place for place in order[:most] if found[place].node not in marked]
    places = sorted([*shown, *(place for place in order if found[place].node in marked)], key=order.index)
    listed = [_line(query, coming, place + 1, found[place], costs[place]) for place in places]
    words = "planned by an earlier version, or for streams or relations that have changed since"
    unknown = [each for each in marked if all(each != other.node for other in found)]
    return [*listed, *(_line(query, coming, None, Alternative(each, (words,)), None) for each in unknown)]


def _work(cost: Totals | None) -> float:
    return float("inf") if cost is None else cost.work_us


def _line(
    query: RegisteredQuery, coming: _Coming | None, number: int | None, each: Alternative, cost: Totals | None
) -> Listed:
    runs, comes = each.node == without_history(query.node), coming is not None and coming.node == each.node
    migration = refused = waits_for = ""
    at = None
    if not runs:
        try:
            migration = "cut" if planned_migration(query, each.node, None)[1].cut else "whole"
        except PlanError as error:
            refused = "" if comes else error.message
    if comes and coming is not None:
        at = None if coming.at_us <= EVER_US else instant_text(coming.at_us)
        waits_for = coming.waits_for
    return Listed(number, each.words, cost, runs, migration, refused, explain(each.node), comes, at, waits_for)
