"""Plans with unbounded state: stateful operators above unbounded windows (papers/pipes_algebra.md 2.1)."""

from __future__ import annotations

from cluster.operators import Node, Union
from cluster.shared_nodes import remembered


def named_operator(node: Node) -> str:
    """Return, in words, the topmost operator of a plan that its query names, apart from filters and projections."""
    top = node.below_filters
    return "UNION or an outer join" if isinstance(top, Union) else top.written_as


@remembered
def unbounded_operator(node: Node) -> str | None:
    """Return, in words, an operator of `node` that would have to keep every tuple, or None."""
    for each in node.inputs:
        if (found := unbounded_operator(each)) is not None:
            return found
    if node.keeps_tuples and any(each.stays_for_ever for each in node.inputs):
        return named_operator(node)
    return None
