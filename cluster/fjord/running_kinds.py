"""The running kind of each kind of operation; nodes of the physical plan become operators. It makes no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import polars as pl

from cluster.fjord.batch import empty_rows
from cluster.fjord.dataflow import Dataflow, Queue, RunningOperator
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import RunningMergeAggregate
from cluster.fjord.operators.changes import RunningChanges
from cluster.fjord.operators.count_window import RunningCountWindow, RunningSharedCountWindow
from cluster.fjord.operators.device_aggregates import RunningDeviceAggregates
from cluster.fjord.operators.extent import RunningExtent
from cluster.fjord.operators.filtering import (
    RunningFilter,
    RunningGroupedFilter,
    RunningPerQueryFilter,
    RunningPreaggregatedFilter,
)
from cluster.fjord.operators.held_rows import RunningHeld
from cluster.fjord.operators.join import RunningJoin, RunningSemiJoin
from cluster.fjord.operators.kept_extent import RunningKeptExtent
from cluster.fjord.operators.lookup import RunningLookup
from cluster.fjord.operators.multiplexing import RunningExchange, RunningScan, RunningScanAggregates, RunningSink
from cluster.fjord.operators.pane_aggregation import RunningPaneAggregate, RunningPanes
from cluster.fjord.operators.partial_aggregation import PartialAggregate, RunningPartialAggregate
from cluster.fjord.operators.pattern_match import RunningPatternMatch
from cluster.fjord.operators.projection import RunningColumns, RunningProject
from cluster.fjord.operators.ranking import RunningRanked
from cluster.fjord.operators.reordering import RunningReorder
from cluster.fjord.operators.sampling import RunningSample
from cluster.fjord.operators.sequence import RunningSequence
from cluster.fjord.operators.session_window import RunningSessionWindow
from cluster.fjord.operators.set_operations import RunningDifference, RunningDistinct, RunningIntersection, RunningUnion
from cluster.fjord.operators.shared_extents import RunningSharedExtents
from cluster.fjord.operators.splitting import RunningSplit
from cluster.fjord.operators.stamp_joining import RunningStampJoin
from cluster.fjord.operators.time_window import (
    RunningGranularity,
    RunningGridWindow,
    RunningTimeWindow,
    RunningWindowBounds,
)
from cluster.fjord.operators.until_next import RunningUntilNext
from cluster.fjord.operators.zipping import RunningZip
from cluster.fjord.running_kind import K, RunningKind, RuntimeContext
from cluster.operators.columns import AggregateCall, Schema
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Operation


def _running(kind: type[K], running: RunningKind[K]) -> tuple[type[Operation], RunningKind[Any]]:
    """Return an entry; the type check names one whose halves do not belong together."""
    return kind, running


ENTRIES = (
    _running(kinds.Scan, RunningScan()),
    _running(kinds.ScanAggregates, RunningScanAggregates()),
    _running(kinds.Sample, RunningSample()),
    _running(kinds.Columns, RunningColumns()),
    _running(kinds.GroupedFilter, RunningGroupedFilter()),
    _running(kinds.PreaggregatedFilter, RunningPreaggregatedFilter()),
    _running(kinds.Filter, RunningFilter()),
    _running(kinds.PerQueryFilter, RunningPerQueryFilter()),
    _running(kinds.Project, RunningProject()),
    _running(kinds.TimeWindow, RunningTimeWindow()),
    _running(kinds.CountWindow, RunningCountWindow()),
    _running(kinds.SharedCountWindow, RunningSharedCountWindow()),
    _running(kinds.GridWindow, RunningGridWindow()),
    _running(kinds.WindowBounds, RunningWindowBounds()),
    _running(kinds.SessionWindow, RunningSessionWindow()),
    _running(kinds.UntilNext, RunningUntilNext()),
    _running(kinds.Extent, RunningExtent()),
    _running(kinds.SharedExtents, RunningSharedExtents()),
    _running(kinds.Panes, RunningPanes()),
    _running(kinds.PartialAggregate, RunningPartialAggregate()),
    _running(kinds.DeviceAggregates, RunningDeviceAggregates()),
    _running(kinds.Exchange, RunningExchange()),
    _running(kinds.Reorder, RunningReorder()),
    _running(kinds.Split, RunningSplit()),
    _running(kinds.MergeAggregate, RunningMergeAggregate()),
    _running(kinds.PaneAggregate, RunningPaneAggregate()),
    _running(kinds.Union, RunningUnion()),
    _running(kinds.Distinct, RunningDistinct()),
    _running(kinds.Difference, RunningDifference()),
    _running(kinds.Intersection, RunningIntersection()),
    _running(kinds.Join, RunningJoin()),
    _running(kinds.SemiJoin, RunningSemiJoin()),
    _running(kinds.Zip, RunningZip()),
    _running(kinds.PatternMatch, RunningPatternMatch()),
    _running(kinds.StampJoin, RunningStampJoin()),
    _running(kinds.Ranked, RunningRanked()),
    _running(kinds.Sequence, RunningSequence()),
    _running(kinds.KeptExtent, RunningKeptExtent()),
    _running(kinds.Granularity, RunningGranularity()),
    _running(kinds.Changes, RunningChanges()),
    _running(kinds.Sink, RunningSink()),
    _running(kinds.Lookup, RunningLookup()),
    _running(kinds.Held, RunningHeld()),
)
"""One for each kind."""
RUNNING_KINDS: Mapping[type[Operation], RunningKind[Any]] = MappingProxyType(dict(ENTRIES))


def running_kind(operation: Operation) -> RunningKind[Any]:
    """Return the running kind of an operation.

    Raises
    ------
    TypeError
        If there is none; names the kind of operation.
    """
    found = RUNNING_KINDS.get(type(operation))
    if found is None:
        raise TypeError(
            f"{type(operation).__name__} has no running kind: write one beside its operator, in "
            "cluster/fjord/operators, and enter it in cluster/fjord/running_kinds.py"
        )
    return found


def operator_of(operation: Operation, tables: Tables | None = None) -> Operator:
    """Return the operator of a node that does not depend on subscribers.

    Parameters
    ----------
    operation
        The operation of the node.
    tables
        The tables of lookups; None for operators that are only tried.

    Raises
    ------
    TypeError
        If it depends on them.
    """
    return running_kind(operation).instantiate(operation, RuntimeContext(tables=tables))


def subscribed_operator(operation: Operation, fragment: Fragment, tables: Tables | None = None) -> Operator:
    """Return the operator of a node of a fragment.

    Parameters
    ----------
    operation
        The operation of the node.
    fragment
        The fragment, whose subscribers are parameters of some operators.
    tables
        As for :func:`operator_of`.
    """
    return running_kind(operation).instantiate(operation, RuntimeContext(fragment, tables))


def operator_of_node(node: OperatorNode, fragment: Fragment, tables: Tables | None = None) -> Operator:
    """Return the operator of a node of a fragment, which passes on the origins of pieces where these are needed.

    Which nodes do is decided by :mod:`cluster.physical.rules.pieces`.

    Parameters
    ----------
    node
        The node.
    fragment, tables
        As for :func:`subscribed_operator`.
    """
    kind, context = running_kind(node.operation), RuntimeContext(fragment, tables)
    match node.origins:
        case "none":
            return kind.instantiate(node.operation, context)
        case "kept":
            return kind.with_origins(node.operation, context)
        case "dropped":
            return kind.dropping_origins(node.operation, context)


def add_behind(
    dataflow: Dataflow, fragment: Fragment, arrivals: Mapping[str, Queue], tables: Tables | None = None
) -> RunningOperator:
    """Add to a dataflow the operators behind the exchanges of a fragment; return the operator with its answers.

    Parameters
    ----------
    dataflow
        The dataflow.
    fragment
        The fragment.
    arrivals
        By exchange: the queue for the rows that cross it.
    tables
        The tables of lookups.
    """
    placed: dict[str, RunningOperator] = {}
    for node in fragment.behind:
        inputs = [arrivals[each] if each in arrivals else placed[each] for each in node.inputs]
        placed[node.id] = dataflow.add(
            node.id, operator_of_node(node, fragment, tables), inputs, owner=fragment.identity
        )
    return placed[fragment.sink.inputs[0]]


def empty_crossing(fragment: Fragment, exchange: OperatorNode) -> pl.DataFrame:
    """Return an empty table with the columns that cross an exchange of a fragment."""
    assert isinstance(exchange.operation, kinds.Exchange)  # noqa: S101 - what an exchange is
    below = fragment.by_id[exchange.inputs[0]].operation
    if isinstance(below, kinds.PartialAggregate):
        return _no_partial_rows(exchange.operation.columns, below.keys, below.calls)
    return empty_rows(exchange.operation.columns)


@lru_cache(maxsize=64)
def _no_partial_rows(columns: Schema, keys: tuple[str, ...], calls: tuple[AggregateCall, ...]) -> pl.DataFrame:
    """Made once for all buckets of a process."""
    return PartialAggregate(keys, calls).empty(empty_rows(columns))
