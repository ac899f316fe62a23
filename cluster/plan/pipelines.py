"""The stateless pipelines of a plan: these run next to the scan, all other operators behind the shuffle.

A pipeline begins at a stream. If an aggregate breaks it, the first half of the aggregate runs next to the scan, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from cluster.operators import (
    Aggregate,
    Extent,
    Filter,
    Lookup,
    Node,
    PatternMatch,
    Project,
    Ranked,
    Sequence,
    SessionWindow,
    Source,
    TimeWindow,
    UntilNext,
    WindowBounds,
)
from cluster.operators.columns import QUERY_GROUP
from cluster.operators.scalar_expressions import plain_column
from cluster.operators.walks import nodes_of


def is_pipeline(node: Node) -> bool:
    """Return whether a plan is a stateless pipeline above a stream, with at most one window."""
    windowed = False
    while isinstance(node, Filter | Project | TimeWindow):
        if isinstance(node, TimeWindow):
            if windowed:
                return False
            windowed = True
        node = node.input
    return isinstance(node, Source)


def pipelines_of(node: Node) -> tuple[tuple[Node, Aggregate | None], ...]:
    """Return the pipelines of a plan, left to right, each with the aggregate above it if any; equal ones once."""
    return tuple(dict.fromkeys(_pipelines(node)))


def runs_upstream(node: Node) -> bool:
    """Return whether a part of a plan runs next to the scan: a pipeline, or the first half of an aggregate over one."""
    return is_pipeline(node) or (isinstance(node, Aggregate) and is_pipeline(node.input))


def _pipelines(node: Node) -> Iterator[tuple[Node, Aggregate | None]]:
    for each in nodes_of(node, within=lambda part: not runs_upstream(part)):
        if isinstance(each, Aggregate) and is_pipeline(each.input):
            yield each.input, each
        elif is_pipeline(each):
            yield each, None


def partitioned_by(node: Node) -> Lookup | Aggregate | Ranked | Sequence | PatternMatch | None:
    """Return the node by whose keys a plan may be spread; None if there is none.

    It is an aggregate, a rank by groups, functions over tuples in order, a pattern, or a lookup in a large relation.

    All operators above it must be stateless.
    """
    top = node
    while isinstance(top, Filter | Project | TimeWindow) and not is_pipeline(top):
        top = top.input
    if isinstance(top, Lookup | Sequence | PatternMatch) and is_pipeline(top.input):
        return top
    while isinstance(node, Filter | Project | WindowBounds) and not is_pipeline(node):
        node = node.input
    return node if isinstance(node, Aggregate | Ranked) and is_pipeline(node.input) else None


def partition_keys(node: Node) -> tuple[str, ...]:
    """Return the keys by which a plan may be spread; none if it may not be."""
    found = partitioned_by(node)
    keys = _session_keys(node) if found is None else found.by if isinstance(found, Lookup) else found.keys
    return tuple(key for key in keys if key != QUERY_GROUP.name)  # query groups with the same values share a bucket


def _session_keys(node: Node) -> tuple[str, ...]:
    """Return the keys of sessions, VALID UNTIL NEXT or COALESCE over a pipeline; none if what is above mixes them."""
    grouped: set[str | None] | None = None
    while isinstance(node, Filter | Project | Aggregate):
        if isinstance(node, Aggregate):
            if grouped is not None:
                return ()
            grouped = set(node.keys)
        elif isinstance(node, Project) and grouped is not None:
            grouped = {plain_column(each.scalar) for each in node.outputs if each.name in grouped}
        node = node.input
    if not (isinstance(node, SessionWindow | UntilNext | Extent) and is_pipeline(node.input)):
        return ()
    return node.keys if grouped is None or grouped.issuperset(node.keys) else ()


def slide_of(node: Node) -> int:
    """Return the slide of the window in a pipeline; 1 if there is none, or if it does not slide at its multiples."""
    while not isinstance(node, Source):
        if isinstance(node, TimeWindow):
            return node.slide_us if node.grid is UNSET else 1
        assert isinstance(node, Filter | Project)  # noqa: S101 - what a pipeline is made of
        node = node.input
    return 1
