"""From nodes of the physical plan to operators: the class for each kind. It makes no decisions."""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import empty_rows
from cluster.fjord.lookup_tables import Tables
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.asof_joining import AsofJoin
from cluster.fjord.operators.changes import Changes
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.device_aggregates import AggregateRecipient, DeviceAggregates
from cluster.fjord.operators.distinct import Distinct
from cluster.fjord.operators.extent import Extent
from cluster.fjord.operators.filtering import Filter
from cluster.fjord.operators.granularity import Granularity
from cluster.fjord.operators.grid_window import GridWindow
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.operators.held_rows import Held
from cluster.fjord.operators.joining import Join
from cluster.fjord.operators.kept_extent import KeptExtent
from cluster.fjord.operators.lookup import Lookup
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.operators.multiplicities import difference, intersection
from cluster.fjord.operators.pane_aggregation import PaneAggregate, WindowSubscriber
from cluster.fjord.operators.panes import Panes
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.pattern_match import PatternMatch
from cluster.fjord.operators.per_query_filter import PerQueryFilter
from cluster.fjord.operators.preaggregated_filter import PreaggregatedFilter
from cluster.fjord.operators.projection import Project
from cluster.fjord.operators.ranking import Ranked
from cluster.fjord.operators.reordering import Reorder
from cluster.fjord.operators.sampling import Sample
from cluster.fjord.operators.semi_joining import SemiJoin
from cluster.fjord.operators.sequence import Sequence
from cluster.fjord.operators.session_window import SessionWindow
from cluster.fjord.operators.shared_count_window import SharedCountWindow
from cluster.fjord.operators.shared_extents import CountedExtents, SharedExtents
from cluster.fjord.operators.splitting import Split
from cluster.fjord.operators.stamp_joining import StampJoin
from cluster.fjord.operators.time_window import TimeWindow
from cluster.fjord.operators.union import Union
from cluster.fjord.operators.until_next import UntilNext
from cluster.fjord.operators.window_bounds import WindowBounds
from cluster.fjord.operators.zipping import Zip
from cluster.operators.columns import AggregateCall, Schema
from cluster.operators.mark_columns import SUPERSEDED_UNTIL
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Operation
from cluster.physical.rules.shared_extents import extents_of


def operator_of(operation: Operation, tables: Tables | None = None) -> Operator:  # noqa: C901, PLR0911, PLR0912 - a case per kind
    """Return the operator of a node that does not depend on subscribers.

    Parameters
    ----------
    operation
        The operation of the node.
    tables
        The tables of lookups; None for operators that are only tried.
    """
    match operation:
        case kinds.Scan() | kinds.ScanAggregates():
            return Multiplex()
        case kinds.Sample():
            return Sample(operation.period_us)
        case kinds.Columns():
            return Project.columns_of(operation.columns)
        case kinds.Filter():
            return Filter(operation.predicate)
        case kinds.Project():
            return Project(operation.outputs)
        case kinds.TimeWindow():
            return TimeWindow(operation.size_us, operation.slide_us)
        case kinds.CountWindow():
            rows = empty_rows(operation.columns)
            return CountWindow(rows, operation.rows, operation.slide_rows, operation.keys, lag_us=operation.lag_us)
        case kinds.GridWindow():
            return GridWindow(operation.grid, operation.slide_us)
        case kinds.WindowBounds():
            return WindowBounds(operation.grid, operation.start, operation.end)
        case kinds.SessionWindow():
            rows = empty_rows(operation.columns)
            return SessionWindow(rows, operation.keys, operation.session, lag_us=operation.lag_us)
        case kinds.UntilNext():
            rows, held = empty_rows(operation.columns), (operation.bounds, operation.lasts)
            return UntilNext(rows, operation.keys, operation.longest_us, *held, lag_us=operation.lag_us)
        case kinds.Extent():
            rows = empty_rows(operation.columns)
            return Extent(rows, operation.keys, operation.coalescing, lag_us=operation.lag_us)
        case kinds.Panes():
            return Panes(operation.width_us)
        case kinds.PartialAggregate():
            return PartialAggregate(operation.keys, operation.calls)
        case kinds.Reorder():
            return Reorder(operation.columns)
        case kinds.Split():
            return Split(empty_rows(operation.columns))
        case kinds.MergeAggregate():
            return MergeAggregate(operation.keys, operation.calls, slide_us=operation.slide_us)
        case kinds.Union():
            return Union(empty_rows(operation.columns))
        case kinds.Distinct():
            return Distinct(empty_rows(operation.columns))
        case kinds.Difference():
            return difference(empty_rows(operation.columns))
        case kinds.Intersection():
            return intersection(empty_rows(operation.columns))
        case kinds.Join():
            return Join(empty_rows(operation.left), empty_rows(operation.right), operation.predicate)
        case kinds.SemiJoin():
            sides = empty_rows(operation.left), empty_rows(operation.right)
            return SemiJoin(*sides, operation.predicate, anti=operation.anti)
        case kinds.Zip():
            sides, bounds_us = (
                (empty_rows(operation.left), empty_rows(operation.right)),
                (operation.low_us, operation.high_us),
            )
            return Zip(*sides, keys=operation.keys, bounds_us=bounds_us, kind=operation.kind, apart=operation.apart)
        case kinds.PatternMatch():
            return PatternMatch(empty_rows(operation.columns), operation.keys, operation.pattern)
        case kinds.StampJoin():
            return _stamp_join(operation)
        case kinds.Sequence():
            columns = empty_rows(operation.columns)
            return Sequence(columns, operation.keys, operation.ties, operation.calls)
        case kinds.KeptExtent():
            return KeptExtent(empty_rows(operation.columns), operation.kept, lag_us=operation.lag_us)
        case kinds.Lookup():
            return Lookup(operation.table, frozenset(operation.streams), tables)
        case kinds.Ranked():
            return Ranked(
                empty_rows(operation.columns),
                keys=operation.keys,
                order=operation.order,
                function=operation.function,
                above=operation.above,
                most=operation.most,
                name=operation.name,
                lag_us=operation.lag_us,
            )
        case kinds.Granularity():
            return Granularity(operation.granule_us)
        case kinds.Changes():
            return Changes(empty_rows(operation.columns), insertions=operation.insertions)
        case _:
            raise TypeError(f"{operation.kind_name()} is instantiated with its fragment")


def _stamp_join(operation: kinds.StampJoin) -> Operator:
    sides = empty_rows(operation.left), empty_rows(operation.right)
    keys, low_us, high_us, kind = operation.keys, operation.low_us, operation.high_us, operation.kind
    if operation.latest:
        return AsofJoin(*sides, keys=keys, low_us=low_us, high_us=high_us, kind=kind)
    if low_us is None:
        raise PlanError("an interval join needs both bounds")
    return StampJoin(*sides, keys=keys, predicate=operation.predicate, bounds_us=(low_us, high_us), kind=kind)


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
    match operation:
        case kinds.GroupedFilter():
            newest = fragment.newest if operation.visible_from else None
            return GroupedFilter(fragment.conditions[operation.place], operation.columns, newest)
        case kinds.PerQueryFilter():
            return PerQueryFilter({each.group: each.choices[operation.place] for each in fragment.subscribers})
        case kinds.PreaggregatedFilter():
            given = {each.group: each.devices for each in fragment.subscribers if each.devices is not None}
            only = frozenset(group for group, devices in given.items() if devices.only)
            return PreaggregatedFilter({group: devices.fingerprint for group, devices in given.items()}, only)
        case kinds.DeviceAggregates():
            return _device_aggregates(operation, fragment)
        case kinds.Held():
            return held_operator(operation, fragment, tables)
        case kinds.SharedCountWindow():
            rows, epochs = empty_rows(operation.columns), _epochs(fragment)
            return SharedCountWindow(rows, operation.rows, operation.keys, epochs, lag_us=operation.lag_us)
        case kinds.SharedExtents():
            return _shared_extents(operation, fragment)
        case kinds.PaneAggregate():
            return PaneAggregate(operation.keys, operation.calls, _subscribers(fragment))
        case _:
            return operator_of(operation, tables)


def held_operator(operation: kinds.Held, fragment: Fragment, tables: Tables | None, *, origins: bool = False) -> Held:
    """Return the operator of rows of relations that hold, with their origins or without."""
    return Held(
        operation.table.table,
        frozenset(operation.streams),
        tables,
        begins_us=operation.begins_us,
        waits_us=operation.waits_us,
        against=frozenset(operation.against),
        groups=tuple(sorted(fragment.groups)) if operation.marked else None,
        origins=origins,
    )


def _shared_extents(operation: kinds.SharedExtents, fragment: Fragment) -> Operator:
    rows, extents = empty_rows(operation.columns), extents_of(fragment.subscribers)
    kind = CountedExtents if SUPERSEDED_UNTIL in operation.columns else SharedExtents
    return kind(rows, operation.keys, extents, _epochs(fragment), eager=operation.eager)


def _epochs(fragment: Fragment) -> dict[int, list[int]]:
    """Return, by query group, the epochs with which its queries began."""
    found: dict[int, list[int]] = {}
    for each in fragment.subscribers:
        found.setdefault(each.group, []).append(each.visible_from)
    return found


def _subscribers(fragment: Fragment) -> list[WindowSubscriber]:
    return [
        WindowSubscriber(each.group, each.window.size_us, each.window.slide_us, each.visible_from)
        for each in fragment.subscribers
        if each.window is not None
    ]


def _device_aggregates(operation: kinds.DeviceAggregates, fragment: Fragment) -> DeviceAggregates:
    reported = [(each, each.missing if operation.missing else each.devices) for each in fragment.subscribers]
    recipients = [
        AggregateRecipient(
            each.group, found.fingerprint, found.fixed, each.visible_from, found.own_pane_us, found.measures
        )
        for each, found in reported
        if found is not None
    ]
    return DeviceAggregates(
        recipients, operation.columns, keys=operation.keys, calls=operation.calls, pane_us=operation.pane_us
    )  # fmt: skip


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
