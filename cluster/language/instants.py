"""Plans whose tuples are valid at their own instant only."""

from __future__ import annotations

from cluster.language.algebra import (
    Aggregate,
    AntiJoin,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Intersection,
    Istream,
    Join,
    Lookup,
    Node,
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
    Zip,
)
from cluster.shared_nodes import remembered


@remembered
def is_instantaneous(node: Node) -> bool:
    """Return whether every tuple of a plan is valid at one instant only (papers/pipes_algebra.md table 5.15)."""
    match node:
        case Source() | Istream() | Dstream() | Zip() | PatternMatch() | StampJoin() | Sequence():
            return True
        case Filter() | Project() | Distinct() | Aggregate() | Extent() | Lookup() | Ranked():
            return is_instantaneous(node.input)
        case SemiJoin() | AntiJoin() | Difference():
            return is_instantaneous(node.left)
        case Union():
            return is_instantaneous(node.left) and is_instantaneous(node.right)
        case Join() | Intersection():
            return is_instantaneous(node.left) or is_instantaneous(node.right)
        case TimeWindow():
            return node.size_us == 1 and node.slide_us == 1 and is_instantaneous(node.input)
        case SessionWindow():
            return not node.session.early
        case UntilNext():
            return not node.lasts
        case _:
            return False
