"""Acceptance of a query: whether it can be run at all, and how many rows it makes.

The rows made of one tuple, and in a second, are limited (see :mod:`cluster.fjord.made_rows`). The rows of one tuple are
known before any tuple has come; those of a second, only once streams have a rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.costs.partners import NO_SIZES, Sizes
from cluster.errors import PlanError
from cluster.fjord.instantiation import subscribed_operator
from cluster.fjord.made_rows import RowFlow, RowFlows, approximate, exact, known_at_rates
from cluster.fjord.scalars import compile_scalar
from cluster.language.algebra import Node
from cluster.language.quantities import written
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow, PhysicalPlan
from cluster.physical.operations import Exchange, GroupedFilter, Lookup, Sink
from cluster.physical.successors import summed
from cluster.physical.words import describe
from cluster.plan.completeness import check_completeness
from cluster.planning_budget import spend

ROUND_US = (
    *(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    *(60_000_000, 600_000_000, 3_600_000_000, 86_400_000_000, 604_800_000_000),
)
"""Usual lengths of slides."""


class RowLimitError(PlanError):
    """A query that would make more rows than allowed.

    Parameters
    ----------
    message
        The number of rows, the reason, and the limit.
    way_out
        How to change the query.
    of_a_tuple
        Whether these are the rows of one tuple, or those of a second.
    """

    def __init__(self, message: str, *, way_out: str, of_a_tuple: bool) -> None:
        option = "--max-rows-per-tuple" if of_a_tuple else "--max-rows-per-second"
        super().__init__(message, hint=f"{way_out}, or start the cluster with a higher {option}")
        self.way_out = way_out
        self.of_a_tuple = of_a_tuple


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Limits on the number of rows.

    Parameters
    ----------
    per_tuple
        Rows of one tuple, in any part of one query.
    per_second
        Rows of all queries together, without those that streams bring.
    """

    per_tuple: int = 100_000
    per_second: int = 2_000_000


def check_rows(
    before: PhysicalPlan,
    after: PhysicalPlan,
    query: str,
    tuples_per_second: Mapping[str, float],
    limits: RowLimits,
    *,
    sizes: Sizes = NO_SIZES,
) -> None:
    """Refuse a query that makes too many rows of a tuple, or with which a plan would make too many in a second.

    Parameters
    ----------
    before, after
        The plan without it, and with it.
    query
        The query's identity.
    tuples_per_second
        By stream; streams that have brought no tuples are missing.
    limits
        The limits.
    sizes
        Of relations, by identity. What the query finds there counts; what others do, as one row for each tuple.

    Raises
    ------
    RowLimitError
        With the number of rows, the reason, the limit, and a slide that would be accepted.
    """
    alone = after.alone(query)
    _check_tuple(alone, limits, sizes)
    made = made_per_second(after, tuples_per_second) + _made_of_relations(alone, tuples_per_second, sizes)
    if made <= limits.per_second:
        return
    without = made_per_second(before, tuples_per_second)
    if made <= without:
        return
    rates = ", ".join(
        f"{stream} brings {tuples_per_second.get(stream, 0.0):,.0f} tuples per second"
        for stream in sorted(alone.streams)
    )
    raise RowLimitError(
        f"with this query the plan would make up to {made:,.0f} rows per second, {made - without:,.0f} of them for "
        f"this query alone{_most_in(alone, tuples_per_second, sizes)} ({rates}); the limit is {limits.per_second:,}",
        way_out="let its windows move in longer steps, make them shorter, join on columns that must be equal, "
        "aggregate before a join, drop other queries",
        of_a_tuple=False,
    )


def _made_of_relations(alone: Fragment, tuples_per_second: Mapping[str, float], sizes: Sizes) -> float:
    """Return how many more rows a query makes in a second than if each tuple found one row in a relation."""
    if not any(isinstance(node.operation, Lookup) for node in alone.nodes):
        return 0.0
    return made_by(alone, tuples_per_second, sizes) - made_by(alone, tuples_per_second)


def _most_in(alone: Fragment, tuples_per_second: Mapping[str, float], sizes: Sizes) -> str:
    """Return, in words, the operator of a query that makes most rows; nothing if it is the only one that makes any."""
    flows = RowFlows(alone, tuples_per_second, sizes)
    makes = [(flow.made_per_second, node) for node, flow in flows if flow.made_per_second]
    if len(makes) < 2:  # noqa: PLR2004 - the sum says it all
        return ""
    most, node = max(makes, key=lambda each: each[0])
    return f', {most:,.0f} in "{describe(node, alone)}"'


def _check_tuple(alone: Fragment, limits: RowLimits, sizes: Sizes) -> None:
    flows = RowFlows(alone, {}, sizes)
    for node, flow in flows:
        if flow.per_tuple > limits.per_tuple:
            raise RowLimitError(
                f"one tuple would make up to {flow.per_tuple:,.0f} rows, because of "
                f"{flow.because or 'how often the query reads it'}; the limit is "
                f"{limits.per_tuple:,}",
                way_out=_way_out(node, flows.window_of(node), flow, limits),
                of_a_tuple=True,
            )


def _way_out(node: OperatorNode, window: PaneWindow | None, flow: RowFlow, limits: RowLimits) -> str:
    if isinstance(node.operation, Lookup):
        return "look tuples up by a column that must be equal, of which the relation has few rows each"
    if window is None:
        return "let the window move in longer steps, or make it shorter"
    least_us = math.ceil(window.slide_us * flow.per_tuple / limits.per_tuple)
    slide_us = next((each for each in ROUND_US if each >= least_us), window.size_us)
    return f"let the window move in longer steps, for example SLIDE {written(min(slide_us, window.size_us))}"


def made_per_second(plan: PhysicalPlan, tuples_per_second: Mapping[str, float]) -> float:
    """Return how many rows a plan makes in a second, without those that streams bring."""
    return approximate(summed(plan, _made_per_second, tuples_per_second))


def made_by(fragment: Fragment, tuples_per_second: Mapping[str, float], sizes: Sizes = NO_SIZES) -> float:
    """Return how many rows a fragment makes in a second, without those that streams bring."""
    made = sum(flow.made_per_second for _, flow in RowFlows(fragment, tuples_per_second, sizes))
    # Windows over shared panes are counted one by one already.
    return made if fragment.shares_panes else len(fragment.tally.groups) * made


@known_at_rates
def _made_per_second(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> int:
    return exact(made_by(fragment, tuples_per_second))


def check_supported(node: Node) -> None:
    """Raise an error if a plan has an operator that cannot be run yet, or needs completeness where it is not known.

    Raises
    ------
    PlanError
        An UnsupportedPlanError names the operator.
    """
    check_completeness(node)
    fragment = lower_alone(node)
    for each in fragment.nodes:
        spend()  # grouping sets have many operators, each with all aggregates
        if not isinstance(each.operation, Exchange | GroupedFilter | Sink):
            subscribed_operator(each.operation, fragment)
    for subscriber in fragment.subscribers:
        for condition in filter(None, subscriber.conditions):
            compile_scalar(condition)  # a grouped filter does so with the first tuple
        for step in subscriber.finish:
            subscribed_operator(step, fragment)
