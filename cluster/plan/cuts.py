"""Where a plan may be cut in two: what needs no memory runs next to the scan, everything else behind the shuffle.

Stateless chains above a stream run upstream; if an aggregate follows, its first half runs there too.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.language.algebra import QUERY_GROUP, Aggregate, Filter, Lookup, Node, Project, Source, TimeWindow
from cluster.language.walks import nodes_of


def is_chain(node: Node, *, windowed: bool = False) -> bool:
    """Return whether a plan is a stateless chain above a stream, with at most one window."""
    while isinstance(node, Filter | Project | TimeWindow):
        if isinstance(node, TimeWindow):
            if windowed:
                return False
            windowed = True
        node = node.input
    return isinstance(node, Source)


def cuts_of(node: Node) -> tuple[tuple[Node, Aggregate | None], ...]:
    """Return what runs upstream, left to right: chains, with the aggregate above if there is one; equal ones once."""
    return tuple(dict.fromkeys(_cuts(node)))


def is_cut(node: Node) -> bool:
    """Return whether a part of a plan is what one cut leaves upstream: a chain, or an aggregate of one."""
    return is_chain(node) or (isinstance(node, Aggregate) and is_chain(node.input))


def _cuts(node: Node) -> Iterator[tuple[Node, Aggregate | None]]:
    for each in nodes_of(node, within=lambda part: not is_cut(part)):
        if isinstance(each, Aggregate) and is_chain(each.input):
            yield each.input, each
        elif is_chain(each):
            yield each, None


def partitioned_by(node: Node) -> Lookup | Aggregate | None:
    """Return by whose keys a plan may be spread: an aggregate, or a lookup in a large relation; None if it may not.

    There may be only stateless operators above it.
    """
    top = node
    while isinstance(top, Filter | Project | TimeWindow) and not is_chain(top):
        top = top.input
    if isinstance(top, Lookup) and is_chain(top.input):
        return top
    while isinstance(node, Filter | Project) and not is_chain(node):
        node = node.input
    return node if isinstance(node, Aggregate) and is_chain(node.input) else None


def partition_keys(node: Node) -> tuple[str, ...]:
    """Return the keys by which a plan may be spread; none if it may not."""
    found = partitioned_by(node)
    keys = () if found is None else found.by if isinstance(found, Lookup) else found.keys
    return tuple(key for key in keys if key != QUERY_GROUP.name)  # members with the same values share a bucket


def slide_of(node: Node) -> int:
    """Return the slide of the window in a chain; 1 if there is none."""
    while not isinstance(node, Source):
        if isinstance(node, TimeWindow):
            return node.slide_us
        assert isinstance(node, Filter | Project)  # noqa: S101 - what a chain is made of
        node = node.input
    return 1
