"""Plans with unbounded state: stateful operators above unbounded windows (papers/pipes_algebra.md 2.1)."""

from __future__ import annotations

from cluster.operators import (
    CountWindow,
    Filter,
    Granularity,
    Istream,
    Node,
    Project,
    Ranked,
    Source,
    TimeWindow,
    Union,
)
from cluster.shared_nodes import remembered


def named_operator(node: Node) -> str:
    """Return, in words, the topmost operator of a plan that its query names, apart from filters and projections."""
    top = node.below_filters
    return "UNION or an outer join" if isinstance(top, Union) else top.written_as


@remembered
def stays_for_ever(node: Node) -> bool:
    """Return whether tuples of `node` may stay valid for ever, however many others come after them."""
    match node:
        case TimeWindow():
            return node.size_us is None
        case CountWindow():
            return node.rows is None
        case Filter() | Project() | Granularity() | Union():
            return any(stays_for_ever(each) for each in node.inputs)
        case _:
            return False


@remembered
def unbounded_operator(node: Node) -> str | None:
    """Return, in words, an operator of `node` that would have to keep every tuple, or None.

    Istream directly over an unbounded window of a stream needs no state: it is the stream (section 4.2, rule CQL). The
    first rows of an order are few: those that stay behind them for ever are forgotten.
    """
    for each in node.inputs:
        if (found := unbounded_operator(each)) is not None:
            return found
    if isinstance(node, Filter | Project | Granularity | Union | Source):
        return None
    if isinstance(node, Ranked) and node.most is not None and node.function == "row_number":
        return None
    if isinstance(node, Istream) and _over_unbounded_stream(node.input):
        return None
    if any(stays_for_ever(each) for each in node.inputs):
        return named_operator(node)
    return None


def _over_unbounded_stream(node: Node) -> bool:
    window = node.below_filters
    return isinstance(window, TimeWindow | CountWindow) and stays_for_ever(window)
