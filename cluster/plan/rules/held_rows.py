"""Rows of relations that flow: what is done with them is done with their table, once for each version."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import Filter, Held, Node, Project


def filter_below_held(node: Node) -> Node | None:
    """σp(H(R)) = H(σp(R))."""
    if not (isinstance(node, Filter) and isinstance(node.input, Held)):
        return None
    return replace(node.input, table=Filter(node.input.table, node.predicate))


def project_below_held(node: Node) -> Node | None:
    """μf(H(R)) = H(μf(R))."""
    if not (isinstance(node, Project) and isinstance(node.input, Held)):
        return None
    return replace(node.input, table=Project(node.input.table, node.outputs))
