"""Duplicate elimination where there are no duplicates, or where they do not matter (section 4.2 C3; section 4.3)."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import (
    Aggregate,
    Difference,
    Distinct,
    Node,
    Project,
    TimeWindow,
    Union,
)
from cluster.operators.aggregate import ignores_copies


def drop_needless_distinct(node: Node) -> Node | None:
    """δ(S) = S where S has no duplicates, such as groups."""
    return node.input if isinstance(node, Distinct) and node.input.duplicate_free else None


def distinct_once_over_union(node: Node) -> Node | None:
    """δ(δ(A) ∪ B) = δ(A ∪ B). The outer δ must stay."""
    if not (isinstance(node, Distinct) and isinstance(node.input, Union)):
        return None
    union = node.input
    left = union.left.input if isinstance(union.left, Distinct) else union.left
    right = union.right.input if isinstance(union.right, Distinct) else union.right
    return Distinct(Union(left, right)) if (left, right) != (union.left, union.right) else None


def distinct_once_over_project(node: Node) -> Node | None:
    """δ(μf(δ(S))) = δ(μf(S)). The outer δ must stay."""
    if not (isinstance(node, Distinct) and isinstance(node.input, Project) and isinstance(node.input.input, Distinct)):
        return None
    return Distinct(replace(node.input, input=node.input.input.input))


def distinct_once_over_window(node: Node) -> Node | None:
    """δ(ω(δ(S))) = δ(ω(S)) for a time window. The outer δ must stay."""
    if not (
        isinstance(node, Distinct) and isinstance(node.input, TimeWindow) and isinstance(node.input.input, Distinct)
    ):
        return None
    return Distinct(replace(node.input, input=node.input.input.input))


def drop_distinct_below_extremes(node: Node) -> Node | None:
    """MIN, MAX, FIRST and the like, and aggregates of distinct values, ignore copies: α_MAX(δ(S)) = α_MAX(S)."""
    if not (isinstance(node, Aggregate) and isinstance(node.input, Distinct)):
        return None
    if not all(ignores_copies(call) for call in node.calls):
        return None
    return replace(node, input=node.input.input)


def subtract_once(node: Node) -> Node | None:
    """(A − B) − C = A − (B ∪ C): one difference less."""
    if not (isinstance(node, Difference) and isinstance(node.left, Difference)):
        return None
    return Difference(node.left.left, Union(node.left.right, node.right))
