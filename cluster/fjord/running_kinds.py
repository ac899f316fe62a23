"""The running kind of each kind of operation: how an operation becomes an operator, and what that makes and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cluster.fjord.operators.aggregation import RunningMergeAggregate
from cluster.fjord.operators.changes import RunningChanges
from cluster.fjord.operators.count_window import RunningCountWindow
from cluster.fjord.operators.device_aggregates import RunningDeviceAggregates
from cluster.fjord.operators.distinct import RunningDistinct
from cluster.fjord.operators.extent import RunningExtent
from cluster.fjord.operators.filtering import RunningFilter
from cluster.fjord.operators.granularity import RunningGranularity
from cluster.fjord.operators.grid_window import RunningGridWindow
from cluster.fjord.operators.grouped_filter import RunningGroupedFilter
from cluster.fjord.operators.held_rows import RunningHeld
from cluster.fjord.operators.joining import RunningJoin
from cluster.fjord.operators.kept_extent import RunningKeptExtent
from cluster.fjord.operators.lookup import RunningLookup
from cluster.fjord.operators.multiplexing import RunningScan, RunningScanAggregates
from cluster.fjord.operators.multiplicities import RunningDifference, RunningIntersection
from cluster.fjord.operators.pane_aggregation import RunningPaneAggregate
from cluster.fjord.operators.panes import RunningPanes
from cluster.fjord.operators.partial_aggregation import RunningPartialAggregate
from cluster.fjord.operators.pattern_match import RunningPatternMatch
from cluster.fjord.operators.per_query_filter import RunningPerQueryFilter
from cluster.fjord.operators.pipeline_ends import RunningExchange, RunningSink
from cluster.fjord.operators.preaggregated_filter import RunningPreaggregatedFilter
from cluster.fjord.operators.projection import RunningColumns, RunningProject
from cluster.fjord.operators.ranking import RunningRanked
from cluster.fjord.operators.reordering import RunningReorder
from cluster.fjord.operators.sampling import RunningSample
from cluster.fjord.operators.semi_joining import RunningSemiJoin
from cluster.fjord.operators.sequence import RunningSequence
from cluster.fjord.operators.session_window import RunningSessionWindow
from cluster.fjord.operators.shared_count_window import RunningSharedCountWindow
from cluster.fjord.operators.shared_extents import RunningSharedExtents
from cluster.fjord.operators.splitting import RunningSplit
from cluster.fjord.operators.stamp_joining import RunningStampJoin
from cluster.fjord.operators.time_window import RunningTimeWindow
from cluster.fjord.operators.union import RunningUnion
from cluster.fjord.operators.until_next import RunningUntilNext
from cluster.fjord.operators.window_bounds import RunningWindowBounds
from cluster.fjord.operators.zipping import RunningZip
from cluster.fjord.running_kind import K, RunningKind
from cluster.physical import operations as kinds
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
