"""Stateless pipelines next to a scan: from the stream to an exchange or to the answers.

scan -> lookups -> sample -> columns -> grouped filter -> filters, projections, windows -> first half of an aggregate
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.operators import Aggregate, Filter, Node, Project, Source, TimeWindow
from cluster.operators.columns import COVERED_BY, QUERY_GROUP, STAMP, VISIBLE_FROM, Schema
from cluster.operators.walks import named_operator
from cluster.physical.errors import UnsupportedPlanError
from cluster.physical.nodes import OperatorNode
from cluster.physical.operations import (
    Columns,
    GroupedFilter,
    Lookup,
    Operation,
    Panes,
    PartialAggregate,
    PreaggregatedFilter,
    Sample,
    Scan,
)
from cluster.physical.rules.operations import operation_of
from cluster.plan.push_down import event_fingerprint

_MADE = (STAMP, QUERY_GROUP, VISIBLE_FROM)
"""Columns of a source that are computed when it is read, not stored."""


def pipeline(
    name: str, stateless: Node, aggregate: Aggregate | None, *, panes: Panes | None = None, preaggregated: bool = False
) -> tuple[OperatorNode, ...]:
    """Return the nodes of a pipeline, the scan first.

    Parameters
    ----------
    name
        Of the pipeline, and of the exchange above it: unique in an engine, and never used again.
    stateless
        Its logical plan. If its source has the query group as a column, a grouped filter is placed above the scan.
    aggregate
        The aggregate above, whose first half belongs to the pipeline; or None.
    panes
        In which the aggregate begins; None if it has none.
    preaggregated
        True if devices may have aggregated samples already.
    """
    found: list[OperatorNode] = []
    for operation in _operations(stateless, aggregate, panes, preaggregated=preaggregated):
        below = (found[-1].id,) if found else ()
        found.append(OperatorNode(f"{name}/{len(found)} {operation.kind_name()}", operation, below))
    return tuple(found)


def _operations(
    stateless: Node, aggregate: Aggregate | None, panes: Panes | None, *, preaggregated: bool
) -> Iterator[Operation]:
    above: list[Node] = []
    node = stateless
    while not isinstance(node, Source):
        if not isinstance(node, Filter | Project | TimeWindow):
            raise UnsupportedPlanError(f"{named_operator(node)} cannot be run where the stream is read")
        above.append(node)
        node = node.input
    covered = (COVERED_BY,) if preaggregated and node.detector is None else ()
    events = None if node.detector is None else event_fingerprint(node)
    yield Scan(node.stream, (*stored_columns(node), *covered), events, node.detector, node.history)
    for lookup in node.lookups:
        yield Lookup(lookup, (node.stream,))
    # The period of a detector is that of its samples; events have none.
    yield Sample(node.sample_period_us if node.detector is None else None)
    # The scan is shared: it may read more columns than these for others.
    yield Columns((*(column for column in node.columns if column not in (QUERY_GROUP, VISIBLE_FROM)), *covered))
    if QUERY_GROUP in node.columns:
        readable = tuple(column for column in node.columns if column not in _MADE)
        yield GroupedFilter(node.occurrence, readable, VISIBLE_FROM in node.columns)
    if preaggregated:
        yield PreaggregatedFilter()
    for each in reversed(above):
        yield operation_of(each)
    if panes is not None:
        yield panes
    if aggregate is not None:
        yield PartialAggregate(aggregate.keys, aggregate.calls)


def stored_columns(source: Source) -> Schema:
    """Return the columns that the stream's table holds."""
    return tuple(column for column in source.sampled if column not in _MADE)
