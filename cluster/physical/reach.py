"""How far a plan reaches: how long a tuple may matter to its answers, and how long after their beginning these flow.

Both are bounds, in application time; a plan that has none says why (papers/pipes_migration.md section 3.1: the end
stamps of all that a plan holds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import UNSET

from cluster.errors import PlanError
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
    inputs_of,
)
from cluster.language.kept_tuples import KeptTuples
from cluster.language.sequence_calls import SequenceCall
from cluster.physical.validity import longest_validity_us
from cluster.physical.whole_rows import interval_shape
from cluster.shared_nodes import remembered


class UnboundedPlanError(PlanError):
    """A plan without a bound on how long a tuple matters to it, or on how long its answers may wait."""


class Bounds(NamedTuple):
    """What :func:`reach_us` and :func:`delay_us` return; None where there is no bound."""

    reach_us: int | None
    delay_us: int | None


def bounds_of(node: Node) -> Bounds:
    """Return the bounds of a plan."""
    return Bounds(_if_bounded(reach_us, node), _if_bounded(delay_us, node))


def _if_bounded(bound_us: Callable[[Node], int], node: Node) -> int | None:
    try:
        return bound_us(node)
    except UnboundedPlanError:
        return None


@remembered
def reach_us(node: Node) -> int:
    """Return how long after its stamp a tuple may matter to the answers of a plan, in microseconds.

    Raises
    ------
    UnboundedPlanError
        If there is no bound; says why.
    """
    match node:
        case Source():
            return 1
        case TimeWindow():
            if node.size_us is None:
                raise UnboundedPlanError("a window without a size keeps its tuples for ever")
            return reach_us(node.input) + node.size_us + node.slide_us
        case UntilNext(longest_us=int(longest)):
            return reach_us(node.input) + longest
        case Granularity():
            return reach_us(node.input) + node.granule_us
        case StampJoin():
            if node.low_us is None:
                raise UnboundedPlanError("a join by stamps without a lower bound keeps its tuples for ever")
            return _reach_of_inputs(node) + abs(node.low_us) + abs(node.high_us) + 1
        case Istream() | Dstream():
            return reach_us(node.input) + 1
        case Sequence():
            return reach_us(node.input) + _frame_us(node.calls)
        case Lookup() if interval_shape(node.input) is None:
            # What is looked up depends on when a row begins, and that on tuples that have ended by then.
            return reach_us(node.input) + _length_us(node.input)
        case (
            Filter()
            | Project()
            | Lookup()
            | WindowBounds()
            | Distinct()
            | Aggregate()
            | Extent()
            | Ranked()
            | Union()
            | Join()
            | SemiJoin()
            | AntiJoin()
            | Difference()
            | Intersection()
        ):
            return _reach_of_inputs(node)
        case _:
            raise UnboundedPlanError(_NO_REACH.get(type(node), f"{type(node).__name__} has no known bound"))


def _reach_of_inputs(node: Node) -> int:
    return max(map(reach_us, inputs_of(node)))


def _frame_us(calls: Iterable[SequenceCall]) -> int:
    found = 1
    for call in calls:
        bound = call.within_us if call.function in ("lag", "lead") else call.range_us
        if bound is None:
            raise UnboundedPlanError(f"{call.function.upper()} over tuples without a bound of time (WITHIN, RANGE)")
        found = max(found, bound + 1)
    return found


_NO_REACH: dict[type, str] = {
    CountWindow: "a window by count keeps its tuples until others come, and their ends have no stamp",
    PartitionedWindow: "a window by count keeps its tuples until others come, and their ends have no stamp",
    UntilNext: "VALID UNTIL NEXT without MAX keeps tuples until others come",
    SessionWindow: "where a session begins depends on all tuples before it",
    Zip: "which tuples a zipper join pairs depends on all tuples before them",
    PatternMatch: "where a match begins depends on the matches before it",
    KeptExtent: "which tuples KEEP has kept depends on all tuples before them",
    Held: "rows of relations begin to flow with the query",
}


@remembered
def published_us(node: Node) -> int:
    """Return how long after the last stamp read a row may end that has been published with its end, in microseconds.

    Raises
    ------
    UnboundedPlanError
        If there is no bound; says why.
    """
    match node:
        case Source():
            return 1
        case TimeWindow(size_us=int(size)):
            return published_us(node.input) + size + node.slide_us
        case UntilNext(longest_us=int(longest)):
            return published_us(node.input) + longest
        case Granularity():
            return published_us(node.input) + node.granule_us
        case StampJoin():
            return max(map(published_us, inputs_of(node))) + abs(node.low_us or 0) + abs(node.high_us) + 1
        case Istream() | Dstream() | Sequence():
            return published_us(node.input) + 1
        case KeptExtent(kept=KeptTuples(longest_us=int(longest))):
            return published_us(node.input) + longest
        case (
            TimeWindow()
            | UntilNext()
            | SessionWindow()
            | CountWindow()
            | PartitionedWindow()
            | KeptExtent()
            | Zip()
            | Held()
        ):
            raise UnboundedPlanError("rows are valid until a tuple comes, or for ever")
        case _:
            return max(map(published_us, inputs_of(node)))


@remembered
def delay_us(node: Node) -> int:
    """Return how far a plan's answers may be behind its streams, in microseconds.

    Once all streams have come to an instant t, all rows of the plan have flowed that begin before t less this.

    Raises
    ------
    UnboundedPlanError
        If there is no bound; says why.
    """
    match node:
        case Source():
            return 0
        case Aggregate():
            slide_us = _slide_below(node.input)
            return delay_us(node.input) + (_length_us(node) if slide_us is None else slide_us)
        case SemiJoin() | AntiJoin() | Difference() | Intersection() | Extent() | Ranked() | Istream() | Dstream():
            return _delay_of_inputs(node) + _length_us(node)
        case UntilNext(longest_us=int(longest)):
            return delay_us(node.input) + longest
        case Granularity():
            return delay_us(node.input) + node.granule_us
        case StampJoin():
            return _delay_of_inputs(node) + abs(node.high_us) + abs(node.low_us or 0) + 1
        case Sequence():
            return delay_us(node.input) + _frame_us(call for call in node.calls if call.function == "lead")
        case Filter() | Project() | Lookup() | WindowBounds() | Distinct() | TimeWindow() | Union() | Join():
            return _delay_of_inputs(node)
        case _:
            raise UnboundedPlanError(_NO_REACH.get(type(node), f"{type(node).__name__} has no known bound"))


def _delay_of_inputs(node: Node) -> int:
    return max(map(delay_us, inputs_of(node)))


def _length_us(node: Node) -> int:
    found = longest_validity_us(node)
    if found is None:
        raise UnboundedPlanError("its rows may be valid for ever")
    return found


def _slide_below(node: Node) -> int | None:
    """Return the slide of the window below some filters and projections, if it has one on its multiples."""
    while isinstance(node, Filter | Project | Lookup):
        node = node.input
    if isinstance(node, TimeWindow) and node.grid is UNSET and node.slide_us > 1:
        return node.slide_us
    return None
