"""From logical plan to operators: where a plan is cut, and what runs on either side of the cut.

Stateless chains above a stream run upstream, next to the scan; if an aggregate follows, its first half runs there too.
Everything else runs downstream. The cut is an *edge*: a queue that happens to cross Spark's shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import INTERVAL
from cluster.fjord.graph import Fjord, Placed
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.filtering import Filter as FilterOperator
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.projection import Project as ProjectOperator
from cluster.fjord.operators.reordering import Reorder
from cluster.fjord.operators.sampling import Sample
from cluster.fjord.operators.time_window import TimeWindow as TimeWindowOperator
from cluster.fjord.queues import PushQueue, Queue
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.algebra import Aggregate, Filter, Node, Project, Schema, Source, TimeWindow, schema_of
from cluster.plan.epoch import PlannedQuery


class UnsupportedPlanError(PlanError):
    """A plan with an operator that cannot be run yet."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a query's plan is cut.

    Parameters
    ----------
    name
        Unique among all edges of a Fjord, for ever.
    owner
        Identity of the query.
    chain
        The stateless part above the stream, which runs upstream.
    aggregate
        The aggregate directly above it, whose first half runs upstream too; or None.
    partition_by
        Columns by whose values rows go to buckets; empty sends all to the query's own bucket.
    """

    name: str
    owner: str
    chain: Node
    aggregate: Aggregate | None
    partition_by: tuple[str, ...]

    @property
    def source(self) -> Source:
        """The stream below the chain, with the columns it reads."""
        node = self.chain
        while not isinstance(node, Source):
            if not isinstance(node, Filter | Project | TimeWindow):
                raise UnsupportedPlanError(f"{type(node).__name__} is no stateless operator")
            node = node.input
        return node

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self.source.stream

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it reads of the stream."""
        return tuple(column.name for column in self.source.columns)

    def empty_rows(self) -> pl.DataFrame:
        """Return no rows, with the columns that cross the edge."""
        rows = empty_rows(schema_of(self.chain))
        if self.aggregate is None:
            return rows
        return PartialAggregate(self.aggregate.keys, self.aggregate.calls).empty(rows)


def empty_rows(schema: Schema) -> pl.DataFrame:
    """Return no rows, with these columns and the interval."""
    return pl.DataFrame(schema={**INTERVAL, **{column.name: POLARS_TYPES[column.type] for column in schema}})


def check_supported(node: Node) -> None:
    """Raise if a plan has an operator that cannot be run yet.

    Raises
    ------
    UnsupportedPlanError
        Names the operator.
    """
    query = PlannedQuery("check", 0, node)
    for edge in edges_of(query):
        list(upstream_operators(edge))
    add_downstream(Fjord(), query, None)


@lru_cache(maxsize=16_384)
def edges_of(query: PlannedQuery) -> tuple[Edge, ...]:
    """Return where a query's plan is cut, left to right."""
    keyed = _partition_keys(query.node)
    return tuple(
        Edge(f"{query.identity}/{number}", query.identity, chain, aggregate, keyed)
        for number, (chain, aggregate) in enumerate(_cuts(query.node))
    )


def upstream_operators(edge: Edge) -> Iterator[Operator]:
    """Yield the operators of an edge's upstream part, from the stream to the cut."""
    nodes: list[Node] = []
    node = edge.chain
    while not isinstance(node, Source):
        nodes.append(node)
        assert isinstance(node, Filter | Project | TimeWindow)  # noqa: S101 - what a chain is made of
        node = node.input
    yield Sample(node.sample_period_us)
    # The scan is shared: other queries may have made it read more columns than this one knows.
    yield ProjectOperator.columns_of(node.columns)
    for above in reversed(nodes):
        yield build_operator(above)
    if edge.aggregate is not None:
        yield PartialAggregate(edge.aggregate.keys, edge.aggregate.calls)


def add_downstream(fjord: Fjord, query: PlannedQuery, arrivals: Mapping[str, Queue] | None) -> Placed:
    """Add a query's downstream operators to a Fjord.

    Parameters
    ----------
    fjord
        Where to.
    query
        The query.
    arrivals
        By edge: the queue on which what comes from upstream arrives; None to try only.

    Returns
    -------
    Placed
        The operator whose output is the query's answer.
    """
    return _Downstream(fjord, query, arrivals).add(query.node)


def build_operator(node: Node) -> Operator:
    """Return the operator of a node that needs nothing but its own parameters.

    Raises
    ------
    UnsupportedPlanError
        If it cannot be run yet.
    """
    match node:
        case Filter():
            return FilterOperator(node.predicate)
        case Project():
            return ProjectOperator(node.outputs)
        case TimeWindow():
            return TimeWindowOperator(node.size_us, node.slide_us)
        case _:
            raise _unsupported(node)


class _Downstream:
    """Adds operators from the leaves up; numbers them, so that their state is found again after a restart."""

    def __init__(self, fjord: Fjord, query: PlannedQuery, arrivals: Mapping[str, Queue] | None) -> None:
        self._fjord = fjord
        self._query = query
        self._arrivals = arrivals
        self._edges = list(edges_of(query))
        self._number = 0

    def add(self, node: Node) -> Placed:
        if _is_chain(node):
            edge, queue = self._next_edge()
            return self._place(Reorder(schema_of(edge.chain)), queue)
        if isinstance(node, Aggregate) and _is_chain(node.input):
            edge, queue = self._next_edge()
            keys = tuple(column for column in schema_of(node) if column.name in node.keys)
            return self._place(MergeAggregate(keys, node.calls, slide_us=_slide_of(edge.chain)), queue)
        if isinstance(node, Filter | Project):
            return self._place(build_operator(node), self.add(node.input))
        raise _unsupported(node)

    def _next_edge(self) -> tuple[Edge, Queue | None]:
        edge = self._edges.pop(0)
        return edge, None if self._arrivals is None else self._arrivals[edge.name]

    def _place(self, operator: Operator, source: Queue | Placed | None) -> Placed:
        name = f"{self._query.identity}/{self._number} {type(operator).__name__}"
        self._number += 1
        return self._fjord.add(name, operator, [source or PushQueue()], owner=self._query.identity)


def _unsupported(node: Node) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        f"{type(node).__name__} cannot be run yet",
        hint="this version runs filters, projections and aggregates over time windows of one stream",
    )


def _is_chain(node: Node, *, windowed: bool = False) -> bool:
    """Return whether a plan is a stateless chain above a stream, with at most one window."""
    match node:
        case Source():
            return True
        case Filter() | Project():
            return _is_chain(node.input, windowed=windowed)
        case TimeWindow():
            return not windowed and _is_chain(node.input, windowed=True)
        case _:
            return False


def _cuts(node: Node) -> Iterator[tuple[Node, Aggregate | None]]:
    if _is_chain(node):
        yield node, None
    elif isinstance(node, Aggregate) and _is_chain(node.input):
        yield node.input, node
    elif isinstance(node, Filter | Project):
        yield from _cuts(node.input)
    else:
        raise _unsupported(node)


def _partition_keys(node: Node) -> tuple[str, ...]:
    """Return the keys of a keyed aggregate with only stateless operators above it: a plan may be spread by them."""
    while isinstance(node, Filter | Project) and not _is_chain(node):
        node = node.input
    return node.keys if isinstance(node, Aggregate) and _is_chain(node.input) else ()


def _slide_of(node: Node) -> int:
    while not isinstance(node, Source):
        if isinstance(node, TimeWindow):
            return node.slide_us
        assert isinstance(node, Filter | Project)  # noqa: S101 - what a chain is made of
        node = node.input
    return 1
