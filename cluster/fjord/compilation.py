"""From logical plan to operators: what runs upstream of each edge, and what runs downstream of them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from cluster.fjord.awaited import awaited_windows
from cluster.fjord.edges import (
    Edge,
    UnsupportedPlanError,
    edges_of,
    empty_rows,
)
from cluster.fjord.graph import Fjord, Placed
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.changes import Changes
from cluster.fjord.operators.count_window import MOST_LAG_US
from cluster.fjord.operators.count_window import CountWindow as CountWindowOperator
from cluster.fjord.operators.distinct import Distinct as DistinctOperator
from cluster.fjord.operators.filtering import Filter as FilterOperator
from cluster.fjord.operators.granularity import Granularity as GranularityOperator
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.operators.joining import Join as JoinOperator
from cluster.fjord.operators.lookup import Lookup as LookupOperator
from cluster.fjord.operators.lookup import Tables
from cluster.fjord.operators.member_filter import MemberFilter
from cluster.fjord.operators.multiplicities import difference, intersection
from cluster.fjord.operators.pane_aggregation import Audience, PaneAggregate
from cluster.fjord.operators.panes import Panes
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.projection import Project as ProjectOperator
from cluster.fjord.operators.reordering import Reorder
from cluster.fjord.operators.sampling import Sample
from cluster.fjord.operators.semi_joining import SemiJoin as SemiJoinOperator
from cluster.fjord.operators.splitting import Split
from cluster.fjord.operators.time_window import TimeWindow as TimeWindowOperator
from cluster.fjord.operators.union import Union as UnionOperator
from cluster.fjord.operators.without_told import WithoutTold
from cluster.fjord.operators.zipping import Zip as ZipOperator
from cluster.fjord.queues import PushQueue, Queue
from cluster.fjord.validity import copies_that_matter, longest_validity_us
from cluster.language.algebra import (
    MEMBER,
    SINCE,
    Aggregate,
    AntiJoin,
    Column,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    Project,
    Relation,
    SemiJoin,
    Source,
    TimeWindow,
    Union,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.bounds import named_operator
from cluster.language.instants import has_chronons
from cluster.plan.completeness import check_completeness
from cluster.plan.cuts import is_chain, slide_of
from cluster.plan.demand import streams_of
from cluster.plan.epoch import PlannedQuery
from cluster.plan.folding import Choices
from cluster.plan.pane_folding import PaneFold
from cluster.planning_budget import spend
from protocols.batches import EXCEPT_COLUMN
from protocols.streams import FieldType

EXCEPTED = Column(EXCEPT_COLUMN, FieldType.TEXT)
"""Which aggregates of sensors a sample is part of."""
LONGEST_SPLIT_US = 100_000
"""Rows that last longer are not cut into one per microsecond: 0.1 s is a hundred thousand rows already."""


def check_supported(node: Node) -> None:
    """Raise if a plan has an operator that cannot be run yet, or asks for what cannot be told.

    Raises
    ------
    PlanError
        An UnsupportedPlanError names the operator.
    """
    check_completeness(node)
    query = PlannedQuery("check", 0, node)
    for edge in edges_of(query):
        list(upstream_operators(edge))
    add_downstream(Fjord(), query, None)


def upstream_operators(
    edge: Edge, grouped: GroupedFilter | None = None, without_told: WithoutTold | None = None
) -> Iterator[Operator]:
    """Yield the operators of an edge's upstream part, from the stream to the cut.

    Parameters
    ----------
    edge
        Where the plan is cut.
    grouped
        The filter that gives a fold's members their tuples; None for a query of its own.
    without_told
        What takes from them the samples that sensors have aggregated; None where they aggregate nothing.
    """
    nodes: list[Node] = []
    node = edge.chain
    while not isinstance(node, Source):
        nodes.append(node)
        assert isinstance(node, Filter | Project | TimeWindow)  # noqa: S101 - what a chain is made of
        node = node.input
    # The period of a detector is that of the samples it looks at; events come when they come.
    yield Sample(node.sample_period_us if node.detector is None else None)
    # The scan is shared: other queries may have made it read more columns than this one knows.
    read = tuple(column for column in node.columns if column not in (MEMBER, SINCE))
    excepted = () if without_told is None or node.detector is not None else (EXCEPTED,)
    yield ProjectOperator.columns_of((*read, *excepted))
    if grouped is not None:
        yield grouped
    if without_told is not None:
        yield without_told
    for above in reversed(nodes):
        yield build_operator(above)
    if edge.pane_us is not None:
        yield Panes(edge.pane_us)
    if edge.aggregate is not None:
        yield PartialAggregate(edge.aggregate.keys, edge.aggregate.calls)


def add_downstream(
    fjord: Fjord,
    query: PlannedQuery,
    arrivals: Mapping[str, Queue] | None,
    tables: Tables | None = None,
    choices: Choices = (),
    *,
    lag_us: int = MOST_LAG_US,
) -> Placed:
    """Add a query's downstream operators to a Fjord.

    Parameters
    ----------
    fjord
        Where to.
    query
        The query.
    arrivals
        By edge: the queue on which what comes from upstream arrives; None to try only.
    tables
        Where lookups find what they look up.
    choices
        By filter of a fold's plan: its members' own conditions.
    lag_us
        How far windows by count may stay behind their inputs where other operators wait for them.

    Returns
    -------
    Placed
        The operator whose output is the query's answer.
    """
    return _Downstream(fjord, query, arrivals, tables, choices, lag_us=lag_us).add(query.node)


def add_pane_aggregate(fjord: Fjord, fold: PaneFold, arrival: Queue) -> Placed:
    """Add what is downstream of windowed aggregates that share panes; return the operator that answers all of them."""
    keys = schema_of(Project(fold.chain, fold.keys))
    audiences = [
        Audience(member.group, member.pane_query.size_us, member.pane_query.slide_us, member.number)
        for member in fold.members
    ]
    operator = PaneAggregate(keys, fold.calls, audiences)
    return fjord.add(f"{fold.name}/0 PaneAggregate", operator, [arrival], owner=fold.name)


def build_operator(node: Node, lag_us: int | None = None) -> Operator:  # noqa: C901 - one case per kind of node
    """Return the operator of a node, between operators for its inputs and its consumer.

    Parameters
    ----------
    node
        The node.
    lag_us
        How far a window by count may stay behind its input; None for any distance.

    Raises
    ------
    UnsupportedPlanError
        If it cannot be run; says why.
    """
    match node:
        case Filter():
            return FilterOperator(node.predicate)
        case Project():
            return ProjectOperator(node.outputs)
        case TimeWindow():
            return TimeWindowOperator(node.size_us, node.slide_us)
        case CountWindow():
            return CountWindowOperator(empty_rows(schema_of(node)), node.rows, node.slide_rows, lag_us=lag_us)
        case PartitionedWindow():
            columns = empty_rows(schema_of(node))
            return CountWindowOperator(columns, node.rows, node.slide_rows, node.keys, lag_us=lag_us)
        case Union():
            return UnionOperator(empty_rows(schema_of(node)))
        case Distinct():
            return DistinctOperator(empty_rows(schema_of(node)))
        case Difference():
            return difference(empty_rows(schema_of(node)))
        case Intersection():
            return intersection(empty_rows(schema_of(node)))
        case Join():
            return JoinOperator(*_sides(node), node.predicate)
        case Zip():
            return ZipOperator(*_sides(node), keys=node.keys, bounds_us=(node.low_us, node.high_us), kind=node.kind,
                               apart=node.apart)  # fmt: skip
        case SemiJoin() | AntiJoin():
            return SemiJoinOperator(*_sides(node), node.predicate, anti=isinstance(node, AntiJoin))
        case Granularity():
            return GranularityOperator(node.granule_us)
        case Istream() | Dstream():
            return Changes(empty_rows(schema_of(node)), insertions=isinstance(node, Istream))
        case Source() | Aggregate() | Relation() | Lookup():
            raise UnsupportedPlanError(f"{named_operator(node)} cannot be run here")


class _Downstream:
    """Adds operators from the leaves up; numbers them, so that their state is found again after a restart."""

    def __init__(
        self,
        fjord: Fjord,
        query: PlannedQuery,
        arrivals: Mapping[str, Queue] | None,
        tables: Tables | None,
        choices: Choices,
        *,
        lag_us: int,
    ) -> None:
        self._fjord = fjord
        self._choices = choices
        self._tables = tables
        self._query = query
        self._arrivals = arrivals
        self._lag_us = lag_us
        self._awaited = awaited_windows(query.node)
        self._edges = {(edge.chain, edge.aggregate): edge for edge in edges_of(query)}
        self._added: dict[tuple[Node, bool], Placed] = {}
        self._number = 0

    def add(self, node: Node, *, copies_matter: bool = True) -> Placed:
        """Add a node's operators, or find those of an equal node: equal parts of a plan run once.

        Parameters
        ----------
        node
            What to add.
        copies_matter
            False if what is above asks only whether there is a tuple, not how many copies of it there are.
        """
        # What begins on a queue of its own does not depend on what is above.
        key = (node, copies_matter or isinstance(node, Aggregate) or is_chain(node))
        if key not in self._added:
            self._added[key] = self._add(node, copies_matter=copies_matter)
        return self._added[key]

    def _add(self, node: Node, *, copies_matter: bool) -> Placed:
        spend()
        if is_chain(node):
            return self._place(Reorder(schema_of(node)), self._arrival(node, None))
        if isinstance(node, Aggregate):
            return self._add_aggregate(node)
        inputs = [
            self.add(child, copies_matter=matter)
            for child, matter in zip(inputs_of(node), copies_that_matter(node, above=copies_matter), strict=True)
        ]
        if isinstance(node, TimeWindow | CountWindow | PartitionedWindow) and not has_chronons(node.input):
            exact = copies_matter or not isinstance(node, TimeWindow)
            inputs = [self._split(node.input, inputs[0])] if exact else inputs
        if isinstance(node, Filter) and node.choice is not None:
            return self._place(MemberFilter(self._choices[node.choice]), *inputs)
        if isinstance(node, Lookup):
            return self._place(LookupOperator(node, streams_of(node), self._tables), *inputs)
        return self._place(build_operator(node, self._lag_us if node in self._awaited else None), *inputs)

    def _split(self, node: Node, below: Placed) -> Placed:
        """Cut rows that last into one per instant, as a window above counts them (papers/pipes_algebra.md 5.12)."""
        lasting_us = longest_validity_us(node)
        if lasting_us is None or lasting_us > LONGEST_SPLIT_US:
            raise UnsupportedPlanError(
                f"a window over a subquery with {named_operator(node)} would count a row once for every microsecond "
                "for which it is valid",
                hint="put the window on the stream itself, or ISTREAM(...) around the subquery to count a row once, "
                "or ask for DISTINCT, MIN or MAX only, for which copies do not count",
            )
        return self._place(Split(empty_rows(schema_of(node))), below)

    def _add_aggregate(self, node: Aggregate) -> Placed:
        keys = schema_of(node)[: len(node.keys)]
        if is_chain(node.input):
            queue = self._arrival(node.input, node)
            return self._place(MergeAggregate(keys, node.calls, slide_us=slide_of(node.input)), queue)
        (matter,) = copies_that_matter(node, above=True)
        below = self.add(node.input, copies_matter=matter)
        partial = self._place(PartialAggregate(node.keys, node.calls), below)
        return self._place(MergeAggregate(keys, node.calls), partial)

    def _arrival(self, chain: Node, aggregate: Aggregate | None) -> Queue:
        edge = self._edges[chain, aggregate]
        return PushQueue() if self._arrivals is None else self._arrivals[edge.name]

    def _place(self, operator: Operator, *sources: Queue | Placed) -> Placed:
        name = f"{self._query.identity}/{self._number} {type(operator).__name__}"
        self._number += 1
        return self._fjord.add(name, operator, sources, owner=self._query.identity)


def _sides(node: Join | Zip | SemiJoin | AntiJoin) -> tuple[pl.DataFrame, pl.DataFrame]:
    return empty_rows(schema_of(node.left)), empty_rows(schema_of(node.right))
