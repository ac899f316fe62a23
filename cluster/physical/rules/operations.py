"""The operation of a node of the algebra."""

from __future__ import annotations

from msgspec import UNSET

from cluster.language.algebra import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Granularity,
    Held,
    Intersection,
    Istream,
    Join,
    KeptExtent,
    Lookup,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    Ranked,
    Relation,
    SemiJoin,
    Sequence,
    SessionWindow,
    Source,
    StampJoin,
    TimeWindow,
    Union,
    UntilNext,
    WindowBounds,
    Zip,
    schema_of,
)
from cluster.language.bounds import named_operator
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
            return operations.SessionWindow(schema_of(node), node.keys, node.session, lag_us)
        case UntilNext():
            return operations.UntilNext(
                schema_of(node.input), node.keys, node.longest_us, node.bounds, node.lasts, lag_us
            )
        case CountWindow() | PartitionedWindow():
            keys = node.keys if isinstance(node, PartitionedWindow) else ()
            return operations.CountWindow(schema_of(node), node.rows, node.slide_rows, keys, lag_us)
        case Union():
            return operations.Union(schema_of(node))
        case Distinct():
            return operations.Distinct(schema_of(node))
        case Difference():
            return operations.Difference(schema_of(node))
        case Intersection():
            return operations.Intersection(schema_of(node))
        case Join():
            return operations.Join(schema_of(node.left), schema_of(node.right), node.predicate)
        case Zip():
            return _zip(node)
        case PatternMatch():
            return operations.PatternMatch(schema_of(node.input), node.keys, node.pattern)
        case StampJoin():
            return _stamp_join(node)
        case Sequence():
            return operations.Sequence(schema_of(node.input), node.keys, node.ties, node.calls)
        case KeptExtent():
            return operations.KeptExtent(schema_of(node.input), node.kept, lag_us)
        case SemiJoin() | AntiJoin():
            left, right = schema_of(node.left), schema_of(node.right)
            return operations.SemiJoin(left, right, node.predicate, isinstance(node, AntiJoin))
        case Ranked():
            limits = node.above, node.most, node.name, lag_us
            return operations.Ranked(schema_of(node.input), node.keys, node.order, node.function, *limits)
        case Extent():
            return operations.Extent(schema_of(node.input), node.keys, node.coalescing, lag_us)
        case Granularity():
            return operations.Granularity(node.granule_us)
        case Istream() | Dstream():
            return operations.Changes(schema_of(node), isinstance(node, Istream))
        case Source() | Aggregate() | Relation() | Lookup() | Held():
            raise UnsupportedPlanError(f"{named_operator(node)} cannot be run here")


def _time_window(node: TimeWindow) -> Operation:
    if node.grid is UNSET:
        return operations.TimeWindow(node.size_us, node.slide_us)
    return operations.GridWindow(node.grid, node.slide_us)


def _filter(node: Filter) -> Operation:
    return operations.Filter(node.predicate) if node.choice is None else operations.PerQueryFilter(node.choice)


def _zip(node: Zip) -> Operation:
    left, right = schema_of(node.left), schema_of(node.right)
    return operations.Zip(left, right, node.keys, node.low_us, node.high_us, node.kind, node.apart)


def _stamp_join(node: StampJoin) -> Operation:
    left, right = schema_of(node.left), schema_of(node.right)
    return operations.StampJoin(
        left, right, node.keys, node.low_us, node.high_us, node.kind, node.predicate, node.latest
    )
