"""Acceptance of a query: whether it can be run at all, and how many rows it makes.

The rows made of one tuple, and in a second, are limited (see :mod:`cluster.fjord.upper_estimates`). The rows of one
tuple are known before any tuple has come; those of a second, only once streams have a rate.

So are the columns that aggregates keep of each group: merging one takes a processor some :data:`COLUMN_US` in each
micro-batch, however few rows come, and a micro-batch is as long for all queries. And so are the characters of long
texts that all queries make (see :mod:`cluster.fjord.long_texts`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from cluster.costs.selectivity import NO_SIZES, Sizes
from cluster.errors import PlanError
from cluster.fjord.aggregates import partial_columns
from cluster.fjord.long_texts import characters_of, characters_of_answers, characters_per_second
from cluster.fjord.row_flow import RowFlow
from cluster.fjord.running_kinds import operator_of_node, subscribed_operator
from cluster.fjord.scalars import compile_scalar
from cluster.fjord.upper_estimates import NO_RATES, RowFlows, approximate, exact, known_at_rates, rates_text
from cluster.language.quantities import written
from cluster.operators import Node
from cluster.operators.columns import AggregateCall
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow, PhysicalPlan, Subscriber
from cluster.physical.operations import Exchange, GroupedFilter, Lookup, MergeAggregate, PaneAggregate, Sink
from cluster.physical.successors import summed
from cluster.physical.text import describe
from cluster.plan.demand import check_completeness
from cluster.planning_budget import spend

ROUND_US = (
    *(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    *(60_000_000, 600_000_000, 3_600_000_000, 86_400_000_000, 604_800_000_000),
)
"""Usual lengths of slides."""
COLUMN_US = 250
"""What beginning and merging a column of an aggregate takes of a processor in a micro-batch of few rows."""
COLUMNS_OF_VALUES = 4
"""A column that keeps all values of its group, as a median does, takes about as long as so many others."""
CHARACTERS_OF_AN_ANSWER = 100
"""So many of the texts that a query makes take about as long to store and publish as one more row."""
USUAL_CHARACTERS = 1_000
"""So many in a row do not matter."""
WINDOWS_OF_A_COLUMN = 16
"""Merging the same columns for so many more windows takes about as long as the first."""


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
    option
        The option of the cluster with the limit.
    """

    def __init__(self, message: str, *, way_out: str, of_a_tuple: bool, option: str = "") -> None:
        option = option or ("--max-rows-per-tuple" if of_a_tuple else "--max-rows-per-second")
        super().__init__(message, hint=f"{way_out}, or start the cluster with a higher {option}")
        self.way_out = way_out
        self.of_a_tuple = of_a_tuple


class ColumnLimitError(PlanError):
    """A query with which aggregates would keep more columns than allowed."""


class TextLimitError(PlanError):
    """A query with which a plan would make too many characters of long texts."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Limits on the number of rows, of columns of aggregates, and of characters.

    Parameters
    ----------
    per_tuple
        Rows of one tuple, in any part of one query.
    per_second
        Rows of all queries together, without those that streams bring.
    columns
        Columns that aggregates of all queries together keep of each group, each as often as it is computed.
    answers_per_second
        Rows that one query answers, without as many as streams bring: each is stored and published. Long texts that it
        makes count, too: :data:`CHARACTERS_OF_AN_ANSWER`.
    characters_per_second
        Characters of long texts that all queries together make and answer.
    """

    per_tuple: int = 100_000
    per_second: int = 2_000_000
    columns: int = 2_000
    answers_per_second: int = 250_000
    characters_per_second: int = 25_000_000


def check_rows(
    before: PhysicalPlan,
    after: PhysicalPlan,
    query: str,
    tuples_per_second: Mapping[str, float],
    limits: RowLimits,
    *,
    sizes: Sizes = NO_SIZES,
    demanded: Mapping[str, float] = NO_RATES,
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
    demanded
        Tuples per second that streams will bring for the query, if it lets sensors sample faster.

    Raises
    ------
    RowLimitError
        With the number of rows, the reason, the limit, and a slide that would be accepted.
    """
    alone = after.alone(query)
    _check_tuple(alone, limits, sizes)
    soon = {**tuples_per_second, **demanded}
    made = made_per_second(after, tuples_per_second) + _made_besides(alone, tuples_per_second, soon, sizes)
    rates = rates_text(alone, tuples_per_second, demanded)
    without = 0.0 if made <= limits.per_second else made_per_second(before, tuples_per_second)
    if made <= max(limits.per_second, without):
        _check_answers(alone, limits, soon, sizes, rates)
        return
    raise RowLimitError(
        f"with this query the plan would make up to {made:,.0f} rows per second, {made - without:,.0f} of them for "
        f"this query alone{_most_in(alone, soon, sizes)} ({rates}); the limit is {limits.per_second:,}",
        way_out="let its windows move in longer steps, make them shorter, join on columns that must be equal, "
        "aggregate before a join, drop other queries",
        of_a_tuple=False,
    )


def check_columns(before: PhysicalPlan, after: PhysicalPlan, limit: int) -> None:
    """Refuse a query with which the aggregates of a plan would keep too many columns.

    Parameters
    ----------
    before, after
        The plan without the query, and with it.
    limit
        For all queries together.

    Raises
    ------
    ColumnLimitError
        With the number of columns, the part for this query, what they take, and the limit.
    """
    kept = aggregate_columns(after)
    if kept <= limit:
        return
    more = kept - aggregate_columns(before)
    if more <= 0:
        return
    raise ColumnLimitError(
        f"with this query the plan would compute {kept:,.0f} columns of aggregates, {more:,.0f} of them for this query "
        f"alone; each takes about {COLUMN_US / 1000:g} ms of a processor in every micro-batch; the limit is {limit:,}",
        hint="compute fewer aggregates, several columns from one (STDDEV(x) + 1, STDDEV(x) * 2), drop other queries, "
        "or start the cluster with a higher --max-aggregate-columns",
    )


def check_texts(
    before: PhysicalPlan,
    after: PhysicalPlan,
    query: str,
    tuples_per_second: Mapping[str, float],
    limit: int,
    *,
    demanded: Mapping[str, float] = NO_RATES,
) -> None:
    """Refuse a query with which a plan would make and answer too many characters of long texts.

    Parameters
    ----------
    before, after
        The plan without the query, and with it.
    query
        The query's identity.
    tuples_per_second
        By stream; streams that have brought no tuples are missing.
    limit
        Characters per second of all queries together.
    demanded
        Tuples per second that streams will bring for the query, if it lets sensors sample faster.

    Raises
    ------
    TextLimitError
        With the characters per second, the part for this query, and the limit.
    """
    made, soon = characters_per_second(after, tuples_per_second), {**tuples_per_second, **demanded}
    if demanded:
        alone = after.alone(query)
        made += characters_of(alone, soon) - characters_of(alone, tuples_per_second)
    if made <= limit:
        return
    more, alone = made - characters_per_second(before, tuples_per_second), after.alone(query)
    if more <= 0 or not characters_of(alone, soon):  # of several that are added together, others may make all
        return
    rates = rates_text(alone, tuples_per_second, demanded)
    raise TextLimitError(
        f"with this query the plan would make and answer up to {made:,.0f} characters of long texts per second, "
        f"{more:,.0f} of them for this query alone ({rates}); the limit is {limit:,}",
        hint="make fewer or shorter texts: LPAD, RPAD, REPLACE, || and STRING_AGG make long ones, also in conditions "
        "and keys; answer fewer rows, drop other queries, or start the cluster with a higher "
        "--max-characters-per-second",
    )


def share_of(subscriber: Subscriber, rows_per_second: float, limits: RowLimits) -> float:
    """Return what one of several queries that share operators takes of them, beside others: a number to compare.

    Its aggregates and the rows that it has answered, each as a part of its limit: how much an operator does for a
    single query is not measured.

    Parameters
    ----------
    subscriber
        The query.
    rows_per_second
        What it has answered since it began, on average.
    limits
        The limits.
    """
    return _own_columns(subscriber.calls) / limits.columns + rows_per_second / limits.per_second


def _own_columns(calls: tuple[AggregateCall, ...]) -> int:
    return sum(COLUMNS_OF_VALUES if isinstance(each.type, pl.List) else 1 for each in partial_columns(calls))


def aggregate_columns(plan: PhysicalPlan) -> float:
    """Return how many columns the aggregates of a plan keep of each group, each as often as it is computed."""
    return approximate(summed(plan, _exact_columns, {}))


def _exact_columns(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> int:
    return exact(_aggregate_columns(fragment, tuples_per_second))


@known_at_rates
def _aggregate_columns(fragment: Fragment, _: Mapping[str, float]) -> float:
    columns = 0.0
    for node in fragment.nodes:
        operation = node.operation
        if isinstance(operation, MergeAggregate | PaneAggregate):
            own = _own_columns(operation.calls)
            shared = isinstance(operation, PaneAggregate)
            windows = max(len(fragment.tally.windows), 1) if shared else 1
            columns += own * (1 + (windows - 1) / WINDOWS_OF_A_COLUMN)
    return columns


def _made_besides(
    alone: Fragment, tuples_per_second: Mapping[str, float], soon: Mapping[str, float], sizes: Sizes
) -> float:
    """Return how many more rows a query makes in a second than at the present rates, with one row of each relation."""
    if soon == tuples_per_second and not any(isinstance(node.operation, Lookup) for node in alone.nodes):
        return 0.0
    return made_by(alone, soon, sizes) - made_by(alone, tuples_per_second)


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


def _check_answers(
    alone: Fragment, limits: RowLimits, tuples_per_second: Mapping[str, float], sizes: Sizes, rates: str
) -> None:
    brought = sum(tuples_per_second.get(stream, 0.0) for stream in alone.streams)
    answers = RowFlows(alone, tuples_per_second, sizes).answers.per_second
    characters, most = characters_of_answers(alone), limits.answers_per_second * CHARACTERS_OF_AN_ANSWER
    if characters > USUAL_CHARACTERS and answers * characters > most:
        raise RowLimitError(
            f"the query would answer up to {answers:,.0f} rows per second with texts of {characters:,} characters each "
            f"({rates}); the limit is {most:,} characters per second",
            way_out="answer fewer or shorter texts: LPAD, RPAD, REPLACE, || and STRING_AGG make long ones, aggregate, "
            "or filter first",
            of_a_tuple=False,
            option="--max-answers-per-second",
        )
    if answers - brought > limits.answers_per_second:
        raise RowLimitError(
            f"the query would answer up to {answers:,.0f} rows per second ({rates}); the limit is "
            f"{limits.answers_per_second:,} more than streams bring",
            way_out="aggregate the pairs, filter first, or look tuples up by a column of which the relation has few "
            "rows each",
            of_a_tuple=False,
            option="--max-answers-per-second",
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
            operator_of_node(each, fragment)
    for subscriber in fragment.subscribers:
        for condition in filter(None, subscriber.conditions):
            compile_scalar(condition)  # a grouped filter does so with the first tuple
        for step in subscriber.finish:
            subscribed_operator(step, fragment)
