"""The operation of a node of the algebra."""

from __future__ import annotations

from msgspec import UNSET

from cluster.operators import (
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    KeptExtent,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    Ranked,
    SemiJoin,
    Sequence,
    SessionWindow,
    StampJoin,
    TimeWindow,
    Union,
    UntilNext,
    WindowBounds,
    Zip,
)
from cluster.operators.unbounded import named_operator
from cluster.physical import operations
from cluster.physical.errors import UnsupportedPlanError
from cluster.physical.operations import Operation


def operation_of(node: Node, lag_us: int | None = None) -> Operation:  # noqa: C901, PLR0911, PLR0912 - a case per kind
    """Return the operation of a node.

    Parameters
    ----------
    node
        The node.
    lag_us
        How far a window by count, a rank or an extent may lag behind its input; None for any distance.

    Raises
    ------
    UnsupportedPlanError
        If it cannot be run by itself; says why.
    """
    match node:
        case Filter():
            return _filter(node)
        case Project():
            return operations.Project(node.outputs)
        case TimeWindow():
            return _time_window(node)
        case WindowBounds():
            return operations.WindowBounds(node.grid, node.start, node.end)
        case SessionWindow():
            return operations.SessionWindow(node.schema, node.keys, node.session, lag_us)
        case UntilNext():
            return operations.UntilNext(node.input.schema, node.keys, node.longest_us, node.bounds, node.lasts, lag_us)
        case CountWindow() | PartitionedWindow():
            keys = node.keys if isinstance(node, PartitionedWindow) else ()
            return operations.CountWindow(node.schema, node.rows, node.slide_rows, keys, lag_us)
        case Union():
            return operations.Union(node.schema)
        case Distinct():
            return operations.Distinct(node.schema)
        case Difference():
            return operations.Difference(node.schema)
        case Intersection():
            return operations.Intersection(node.schema)
        case Join():
            return operations.Join(node.left.schema, node.right.schema, node.predicate)
        case Zip():
            return _zip(node)
        case PatternMatch():
            return operations.PatternMatch(node.input.schema, node.keys, node.pattern)
        case StampJoin():
            return _stamp_join(node)
        case Sequence():
            return operations.Sequence(node.input.schema, node.keys, node.ties, node.calls)
        case KeptExtent():
            return operations.KeptExtent(node.input.schema, node.kept, lag_us)
        case SemiJoin() | AntiJoin():
            left, right = node.left.schema, node.right.schema
            return operations.SemiJoin(left, right, node.predicate, isinstance(node, AntiJoin))
        case Ranked():
            limits = node.above, node.most, node.name, lag_us
            return operations.Ranked(node.input.schema, node.keys, node.order, node.function, *limits)
        case Extent():
            return operations.Extent(node.input.schema, node.keys, node.coalescing, lag_us)
        case Granularity():
            return operations.Granularity(node.granule_us)
        case Istream() | Dstream():
            return operations.Changes(node.schema, isinstance(node, Istream))
        case _:  # Source, Aggregate, Relation, Lookup, Held
            raise UnsupportedPlanError(f"{named_operator(node)} cannot be run here")


def _time_window(node: TimeWindow) -> Operation:
    if node.grid is UNSET:
        return operations.TimeWindow(node.size_us, node.slide_us)
    return operations.GridWindow(node.grid, node.slide_us)


def _filter(node: Filter) -> Operation:
    return operations.Filter(node.predicate) if node.choice is None else operations.PerQueryFilter(node.choice)


def _zip(node: Zip) -> Operation:
    left, right = node.left.schema, node.right.schema
    return operations.Zip(left, right, node.keys, node.low_us, node.high_us, node.kind, node.apart)


def _stamp_join(node: StampJoin) -> Operation:
    left, right = node.left.schema, node.right.schema
    return operations.StampJoin(
        left, right, node.keys, node.low_us, node.high_us, node.kind, node.predicate, node.latest
    )
