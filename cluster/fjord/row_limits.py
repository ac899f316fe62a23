"""Limits on the rows that a query makes: of one tuple, and in a second (see :mod:`cluster.fjord.made_rows`).

How much one tuple makes is known before anything has come; how much a second makes, only once streams have a rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.errors import PlanError
from cluster.fjord.made_rows import RowFlow, RowFlows, slid
from cluster.language.algebra import Node
from cluster.language.quantities import written
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.folding import fold
from cluster.plan.pane_folding import PaneFold
from cluster.plan.pane_query import PaneQuery, pane_query_of

ROUND_US = (
    *(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    *(60_000_000, 600_000_000, 3_600_000_000, 86_400_000_000, 604_800_000_000),
)
"""Slides that people write."""


class RowLimitError(PlanError):
    """A query that would make more rows than allowed."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """How many rows may be made.

    Parameters
    ----------
    per_tuple
        Of one tuple, by any part of one query.
    per_second
        By all queries together, beyond those that come.
    """

    per_tuple: int = 100_000
    per_second: int = 2_000_000


def check_rows(before: Plan, added: PlannedQuery, tuples_per_second: Mapping[str, float], limits: RowLimits) -> None:
    """Refuse a query that makes too many rows of a tuple, or with which a plan would make too many in a second.

    Parameters
    ----------
    before
        The plan without it.
    added
        The query.
    tuples_per_second
        By stream; a stream that is not there has brought nothing yet.
    limits
        How many rows may be made.

    Raises
    ------
    RowLimitError
        Says how many it would make and why, the limit, and which slide would do.
    """
    _check_tuple(added.node, limits)
    if pane_query_of(added.node) is None and not made_per_second(Plan(0, (added,)), tuples_per_second):
        return  # it neither makes rows nor changes the panes of others
    made = made_per_second(Plan(before.epoch + 1, (*before.queries, added), before.positions), tuples_per_second)
    if made <= limits.per_second:
        return
    without = made_per_second(before, tuples_per_second)
    if made <= without:
        return
    rates = ", ".join(
        f"{stream} brings {tuples_per_second.get(stream, 0.0):,.0f} tuples per second"
        for stream in sorted(Plan(0, (added,)).streams)
    )
    raise RowLimitError(
        f"with this query the plan would make up to {made:,.0f} rows per second, {made - without:,.0f} of them for "
        f"this query alone ({rates}); the limit is {limits.per_second:,}",
        hint="let its windows move in longer steps, make them shorter, join on columns that must be equal, drop other "
        "queries, or start the cluster with a higher --max-rows-per-second",
    )


def _check_tuple(node: Node, limits: RowLimits) -> None:
    for part, flow in RowFlows(node, {}):
        if flow.per_tuple > limits.per_tuple:
            raise RowLimitError(
                f"one tuple would make up to {flow.per_tuple:,.0f} rows, because of "
                f"{flow.because or 'how often the query reads it'}; the limit is "
                f"{limits.per_tuple:,}",
                hint=f"{_way_out(part, flow, limits)}, or start the cluster with a higher --max-rows-per-tuple",
            )


def _way_out(part: Node, flow: RowFlow, limits: RowLimits) -> str:
    windowed: PaneQuery | None = pane_query_of(part)
    if windowed is None:
        return "let the window move in longer steps, or make it shorter"
    least_us = math.ceil(windowed.slide_us * flow.per_tuple / limits.per_tuple)
    slide_us = next((each for each in ROUND_US if each >= least_us), windowed.size_us)
    return f"let the window move in longer steps, for example SLIDE {written(min(slide_us, windowed.size_us))}"


def made_per_second(plan: Plan, tuples_per_second: Mapping[str, float]) -> float:
    """Return how many rows a plan makes in a second, beyond those that come."""
    folded = fold(plan)
    made = 0.0
    for each in folded.folds:
        groups = len({member.group for member in each.members})
        made += groups * sum(flow.made_per_second for _, flow in RowFlows(each.shared.node, tuples_per_second))
    return made + sum(flow.made_per_second for panes in folded.panes for flow in _flows(panes, tuples_per_second))


def _flows(panes: PaneFold, tuples_per_second: Mapping[str, float]) -> Iterator[RowFlow]:
    stream = panes.members[0].pane_query.source
    tuples = RowFlow(1, 1, tuples_per_second.get(stream.stream, 0.0), 1)
    windows = {(each.group, each.pane_query.size_us, each.pane_query.slide_us) for each in panes.members}
    for _, size_us, slide_us in sorted(windows):
        yield slid(panes.aggregate, tuples, size_us, slide_us, panes.pane_us)
