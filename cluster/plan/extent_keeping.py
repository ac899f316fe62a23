"""Extents that are kept eagerly or lazily: two plans of a query with the same answers.

eagerly   each sample is compared with its neighbour as it comes; shared by queries that coalesce the same columns
lazily    whole samples are kept once for all queries over the same window, and coalesced whenever it changes
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from cluster.operators import Extent, Filter, Node, Project, Source, TimeWindow
from cluster.operators.extent import Keeping
from cluster.operators.walks import rebuilt
from cluster.plan.pipelines import is_pipeline
from cluster.shared_nodes import remembered


@remembered
def extent_of(plan: Node) -> Extent | None:
    """Return the extent of a plan whose samples it may share: with nothing but filters and projections above."""
    node = plan
    while isinstance(node, Filter | Project):
        node = node.input
    if not isinstance(node, Extent) or not is_pipeline(node.input):
        return None
    below, windowed = node.input, False
    while isinstance(below, Filter | Project | TimeWindow):
        windowed |= isinstance(below, TimeWindow)
        below = below.input
    return node if windowed and is_plain(below) else None


def is_plain(node: Node) -> bool:
    """Return whether a node is a stream without lookups, a past or a detector."""
    return isinstance(node, Source) and not node.lookups and node.history is None and node.detector is None


def extents_kept(plan: Node) -> Iterator[tuple[Node, str]]:
    """Yield a plan with its extent kept in the other way, and in words what is different."""
    extent = extent_of(plan)
    if extent is None:
        return
    eager = extent.coalescing.kept == "eager"
    words = "whole samples are kept, and coalesced as rows are due" if eager else "samples are coalesced as they come"
    yield with_keeping(plan, "lazy" if eager else "eager"), words


def with_keeping(plan: Node, kept: Keeping) -> Node:
    """Return a plan with all its extents kept in one way."""
    return rebuilt(
        plan,
        lambda each: (
            replace(each, coalescing=replace(each.coalescing, kept=kept)) if isinstance(each, Extent) else each
        ),
    )
