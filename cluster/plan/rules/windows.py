"""Windows without effect are removed, the others sink to their streams (section 4.2 W1, W4, G1, CQL; section 4.3)."""

from __future__ import annotations

from math import lcm

from msgspec import UNSET
from msgspec.structs import replace

from cluster.operators import CountWindow, Distinct, Filter, Granularity, Istream, Node, Project, TimeWindow, Union
from cluster.operators.window_shapes import END_OF_TIME_US, LONGEST_WINDOW_US


def drop_now_window(node: Node) -> Node | None:
    """W1: a window of one instant that slides with every instant is the stream itself."""
    if isinstance(node, TimeWindow) and node.size_us == 1 and node.slide_us == 1 and node.grid is UNSET:
        return node.input
    return None


def window_below_union(node: Node) -> Node | None:
    """W4: ω(A ∪ B) = ω(A) ∪ ω(B), so that the window over A can be shared with other queries."""
    if not (isinstance(node, TimeWindow) and isinstance(node.input, Union)):
        return None
    return Union(replace(node, input=node.input.left), replace(node, input=node.input.right))


def unbounded_count_window(node: Node) -> Node | None:
    """The last of arbitrarily many tuples are all of them: an unbounded count window is an unbounded time window."""
    if isinstance(node, CountWindow) and node.rows is None and node.slide_rows == 1:
        return TimeWindow(node.input, None)
    return None


def istream_of_unbounded_window(node: Node) -> Node | None:
    """CQL: tuples that begin to be valid in the whole past are the new tuples of the stream: Istream(ω_∞(S)) = S.

    Selections and projections in between commute with the window (W2, W3): Istream(σμ(ω_∞(S))) = σμ(S).
    """
    return _without_unbounded_window(node.input) if isinstance(node, Istream) else None


def _without_unbounded_window(node: Node) -> Node | None:
    match node:
        case TimeWindow(size_us=None, slide_us=1):
            return node.input
        case Filter() | Project():
            below = _without_unbounded_window(node.input)
            return None if below is None else replace(node, input=below)
        case _:
            return None


def merge_granularities(node: Node) -> Node | None:
    """Γ_g(Γ_h(S)) = Γ_lcm(g,h)(S), unless that has no multiple but 0 before the end of time."""
    if not (isinstance(node, Granularity) and isinstance(node.input, Granularity)):
        return None
    both_us = lcm(node.granule_us, node.input.granule_us)
    return None if both_us >= END_OF_TIME_US else Granularity(node.input.input, both_us)


def drop_finest_granularity(node: Node) -> Node | None:
    """Γ_1(S) = S: every instant is a multiple of one."""
    return node.input if isinstance(node, Granularity) and node.granule_us == 1 else None


def merge_windows_below_distinct(node: Node) -> Node | None:
    """δ(ω_v(ω_w(S))) = δ(ω_v+w−1(S)) for windows without slide. Without δ the bags differ, and it must not be done."""
    if not (isinstance(node, Distinct) and isinstance(node.input, TimeWindow)):
        return None
    outer, inner = node.input, node.input.input
    if not isinstance(inner, TimeWindow) or outer.slide_us != 1 or inner.slide_us != 1:
        return None
    if outer.grid is not UNSET or inner.grid is not UNSET:
        return None
    if outer.size_us is None or inner.size_us is None:
        return None
    return Distinct(TimeWindow(inner.input, min(outer.size_us + inner.size_us - 1, LONGEST_WINDOW_US)))
