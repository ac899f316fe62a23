"""From when on rows of relations can be without a partner: once all windows that they are held against are full.

    keep if none in 10 minutes of b           waits for both, 10 minutes
    `- keep if none in 5 minutes of a
       `- rows of sensors while they hold     so these begin 10 minutes after both streams

Before, a query has not seen what would be in these windows, and would report sensors as silent that are not. A row that
is chosen because it has partners, and goes through no such operator, does not wait.
"""

from __future__ import annotations

from msgspec.structs import replace

from cluster.language.algebra import (
    AntiJoin,
    Difference,
    Granularity,
    Held,
    KeptExtent,
    Node,
    PatternMatch,
    SemiJoin,
    Sequence,
    SessionWindow,
    Source,
    StampJoin,
    TimeWindow,
    UntilNext,
    Zip,
    inputs_of,
)
from cluster.language.walks import above, nodes_of, streams_of
from cluster.shared_nodes import remembered


@remembered
def full_after_us(node: Node) -> int:
    """Return how long after its streams begin a plan lacks nothing; what has no bound in time is not waited for."""
    below = max([full_after_us(each) for each in inputs_of(node)], default=0)
    match node:
        case Source():
            return 1
        case TimeWindow(size_us=int(size)):
            return below + size + node.slide_us
        case SessionWindow():
            return below + node.session.longest_us
        case KeptExtent():
            return below + (node.kept.longest_us or 0)
        case UntilNext(longest_us=int(longest)):
            return below + longest
        case Granularity():
            return below + node.granule_us
        case Zip() | StampJoin():
            return below + max(-(node.low_us or 0), node.high_us, 0)
        case PatternMatch():
            return below + (node.pattern.within_us or 0)
        case Sequence():
            return below + max([call.span_us for call in node.calls], default=0)
        case _:
            return below


def with_waits(node: Node) -> Node:
    """Return a plan whose rows of relations begin when all windows can be full that they are held against."""
    found = [each for each in nodes_of(node) if isinstance(each, AntiJoin | Difference) and _holds(each.left)]
    if not found:
        return node
    against = tuple(sorted(frozenset[str]().union(*(streams_of(each.right) for each in found))))
    made: dict[tuple[int, int], Node] = {}

    def waiting(current: Node, waits_us: int) -> Node:
        """Return a plan whose rows that come out of it wait so long; those that others are held against do not."""
        key = (id(current), waits_us)
        if key not in made:
            made[key] = anew(current, waits_us)
        return made[key]

    def anew(current: Node, waits_us: int) -> Node:
        if isinstance(current, Held):
            waits_us = max(waits_us, current.waits_us)
            below = waiting(current.input, 0)
            return replace(current, input=below, waits_us=waits_us, against=against if waits_us else ())
        if not isinstance(current, AntiJoin | SemiJoin | Difference):
            return above(current, tuple([waiting(each, waits_us) for each in inputs_of(current)]))
        right = waiting(current.right, 0)
        if not isinstance(current, SemiJoin):
            waits_us = max(waits_us, full_after_us(current.right))
        return above(current, (waiting(current.left, waits_us), right))

    return waiting(node, 0)


@remembered
def _holds(node: Node) -> bool:
    """Return whether rows of relations flow through a plan, and are not only what others are held against."""
    return isinstance(node, Held) or any(_holds(each) for each in _passed(node))


def _passed(node: Node) -> tuple[Node, ...]:
    return (node.left,) if isinstance(node, AntiJoin | SemiJoin | Difference) else inputs_of(node)
