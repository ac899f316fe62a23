"""How long the rows of a plan are valid, and where multiplicities matter: which windows need a Split."""

from __future__ import annotations

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
    inputs_of,
)
from cluster.language.functions import IGNORE_COPIES
from cluster.language.instants import is_instantaneous
from cluster.language.window_shapes import END_OF_TIME_US
from cluster.shared_nodes import remembered


@remembered
def longest_validity_us(node: Node) -> int | None:
    """Return a bound on how long a row of a plan is valid; None if there is none."""
    if is_instantaneous(node):
        return 1
    match node:
        case Relation() | Held():
            return None
        case TimeWindow():
            below = longest_validity_us(node.input)
            return None if below is None or node.size_us is None else _bounded(below + node.size_us + node.slide_us)
        case CountWindow() | PartitionedWindow():
            return None
        case SessionWindow():
            return node.session.longest_us
        case UntilNext():
            return node.longest_us
        case KeptExtent():
            return node.kept.longest_us
        case Granularity():
            below = longest_validity_us(node.input)
            return None if below is None else _bounded(below + node.granule_us)
        case Join() | Intersection():
            bounds = [bound for each in inputs_of(node) if (bound := longest_validity_us(each)) is not None]
            return min(bounds, default=None)
        case Union():
            left, right = longest_validity_us(node.left), longest_validity_us(node.right)
            return None if left is None or right is None else max(left, right)
        case _:
            return longest_validity_us(inputs_of(node)[0])


def _bounded(length_us: int) -> int | None:
    """Return a bound on how long a row is valid, None if it may be valid until the end of time."""
    return length_us if length_us < END_OF_TIME_US else None


def multiplicity_sensitive(node: Node, *, above: bool) -> tuple[bool, ...]:
    """Return, by input, whether a node's answer depends on how many copies of a tuple the input has.

    Parameters
    ----------
    node
        The node.
    above
        Whether the multiplicity of the node's own answers matters.
    """
    match node:
        case Source() | Relation():
            return ()
        case Distinct() | Held():
            return (False,)
        case Aggregate():
            return (not all(call.function in IGNORE_COPIES or call.distinct for call in node.calls),)
        case SemiJoin() | AntiJoin():
            return (above, False)
        case Filter() | Project() | Granularity() | TimeWindow() | WindowBounds() | Lookup():
            return (above,)
        case Union() | Join() | Intersection():
            return (above, above)
        case StampJoin() if not node.latest:
            return (above, above)
        case StampJoin():
            return (above, False)
        case (
            Difference()
            | Extent()
            | Zip()
            | PatternMatch()
            | Ranked()
            | Sequence()
            | CountWindow()
            | PartitionedWindow()
            | SessionWindow()
            | UntilNext()
            | KeptExtent()
            | Istream()
            | Dstream()
        ):
            return tuple(True for _ in inputs_of(node))
