"""From when on rows of relations can be without a partner: once all windows that they are held against are full.

    keep if none in 10 minutes of b           waits for both, 10 minutes
    `- keep if none in 5 minutes of a
       `- rows of sensors while they hold     so these begin 10 minutes after both streams

Before, a query has not seen what would be in these windows, and would report sensors as silent that are not. A row that
is chosen because it has partners, and goes through no such operator, does not wait.
"""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import (
    AntiJoin,
    Difference,
    Held,
    Node,
    SemiJoin,
)
from cluster.operators.walks import above, nodes_of
from cluster.shared_nodes import remembered


def with_waits(node: Node) -> Node:
    """Return a plan whose rows of relations begin when all windows can be full that they are held against."""
    found = [each for each in nodes_of(node) if isinstance(each, AntiJoin | Difference) and _holds(each.left)]
    if not found:
        return node
    against = tuple(sorted(frozenset[str]().union(*(each.right.streams for each in found))))
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
            return above(current, tuple([waiting(each, waits_us) for each in current.inputs]))
        right = waiting(current.right, 0)
        if not isinstance(current, SemiJoin):
            waits_us = max(waits_us, current.right.full_after_us)
        return above(current, (waiting(current.left, waits_us), right))

    return waiting(node, 0)


@remembered
def _holds(node: Node) -> bool:
    """Return whether rows of relations flow through a plan, and are not only what others are held against."""
    return isinstance(node, Held) or any(_holds(each) for each in _passed(node))


def _passed(node: Node) -> tuple[Node, ...]:
    return (node.left,) if isinstance(node, AntiJoin | SemiJoin | Difference) else node.inputs
