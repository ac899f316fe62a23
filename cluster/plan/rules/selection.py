"""Selections sink: the earlier a tuple is removed, the less work remains (section 4.2 C2, C4, W2; section 4.3)."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.expressions.conditions import repeats_itself
from cluster.operators import (
    Aggregate,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Node,
    PartitionedWindow,
    Project,
    Ranked,
    Sequence,
    SessionWindow,
    TimeWindow,
    Union,
    UntilNext,
)
from cluster.operators.columns import Scalar
from cluster.operators.scalar_expressions import by_name, columns_of, conjunction_of, conjuncts_of, substituted

_OfKeys = PartitionedWindow | SessionWindow | UntilNext


def merge_filters(node: Node) -> Node | None:
    """Two selections in a row are one: σp(σq(S)) = σq∧p(S)."""
    if not (isinstance(node, Filter) and isinstance(node.input, Filter)):
        return None
    both = conjunction_of([*conjuncts_of(node.input.predicate), *conjuncts_of(node.predicate)])
    return Filter(node.input.input, both) if both is not None else node.input.input


def drop_repeated_conditions(node: Node) -> Node | None:
    """A condition that occurs twice in a selection counts once: σp∧p(S) = σp(S)."""
    if not isinstance(node, Filter):
        return None
    if not repeats_itself(node.predicate.expression):
        return None
    once = conjunction_of(conjuncts_of(node.predicate))
    return Filter(node.input, once) if once is not None else None


def filter_below_project(node: Node) -> Node | None:
    """Select before computing: σp(μf(S)) = μf(σp∘f(S))."""
    if not (isinstance(node, Filter) and isinstance(node.input, Project)):
        return None
    predicate = substituted(node.predicate, by_name(node.input.outputs))
    return replace(node.input, input=Filter(node.input.input, predicate)) if predicate is not None else None


def filter_below_union(node: Node) -> Node | None:
    """C2: σp(A ∪ B) = σp(A) ∪ σp(B)."""
    if not (isinstance(node, Filter) and isinstance(node.input, Union)):
        return None
    return Union(Filter(node.input.left, node.predicate), Filter(node.input.right, node.predicate))


def filter_below_time_window(node: Node) -> Node | None:
    """W2: σp(ω(S)) = ω(σp(S)) for a time window, with any slide. Never for a count window."""
    if not (isinstance(node, Filter) and isinstance(node.input, TimeWindow)):
        return None
    return replace(node.input, input=Filter(node.input.input, node.predicate))


def filter_below_partitioned_window(node: Node) -> Node | None:
    """σp(ω_keys,N(S)) = ω_keys,N(σp(S)) where p reads only the keys: whole groups are removed. So with sessions."""
    if not (isinstance(node, Filter) and isinstance(node.input, _OfKeys)):
        return None
    return _split(node, node.input, frozenset(node.input.keys))


def filter_below_sequence(node: Node) -> Node | None:
    """Select before computing over tuples in order where p reads only the keys: whole sequences are removed."""
    if not (isinstance(node, Filter) and isinstance(node.input, Sequence)):
        return None
    return _split(node, node.input, frozenset(node.input.keys))


def filter_below_aggregate(node: Node) -> Node | None:
    """σp(γ_keys(S)) = γ_keys(σp(S)) where p reads only keys, and at least one: whole groups are removed."""
    if not (isinstance(node, Filter) and isinstance(node.input, Aggregate)):
        return None
    return _split(node, node.input, frozenset(node.input.keys))


def filter_below_extent(node: Node) -> Node | None:
    """Select before coalescing where p reads only the keys: whole runs are removed."""
    if not (isinstance(node, Filter) and isinstance(node.input, Extent)):
        return None
    return _split(node, node.input, frozenset(node.input.keys))


def filter_below_ranked(node: Node) -> Node | None:
    """σp(ρ_keys(S)) = ρ_keys(σp(S)) where p reads only the keys: whole groups are removed, and places stay."""
    if not (isinstance(node, Filter) and isinstance(node.input, Ranked)):
        return None
    return _split(node, node.input, frozenset(node.input.keys))


_Grouped = Aggregate | Extent | _OfKeys | Ranked | Sequence


def _split(node: Filter, grouped: _Grouped, keys: frozenset[str]) -> Node | None:
    parts = conjuncts_of(node.predicate)
    # A condition without columns would make the group of an aggregate without keys appear or vanish: it stays above.
    below = conjunction_of(part for part in parts if columns_of(part) and columns_of(part) <= keys)
    if below is None:
        return None
    above = conjunction_of(part for part in parts if not (columns_of(part) and columns_of(part) <= keys))
    sunk = replace(grouped, input=Filter(grouped.input, below))
    return sunk if above is None else Filter(sunk, above)


def filter_below_distinct(node: Node) -> Node | None:
    """σp(δ(S)) = δ(σp(S))."""
    if not (isinstance(node, Filter) and isinstance(node.input, Distinct)):
        return None
    return Distinct(Filter(node.input.input, node.predicate))


def filter_below_difference(node: Node) -> Node | None:
    """σp(A − B) = σp(A) − σp(B)."""
    if not (isinstance(node, Filter) and isinstance(node.input, Difference)):
        return None
    return Difference(*_both_sides(node.input, node.predicate))


def filter_below_intersection(node: Node) -> Node | None:
    """σp(A ∩ B) = σp(A) ∩ σp(B)."""
    if not (isinstance(node, Filter) and isinstance(node.input, Intersection)):
        return None
    return Intersection(*_both_sides(node.input, node.predicate))


def _both_sides(node: Difference | Intersection, predicate: Scalar) -> tuple[Node, Node]:
    return Filter(node.left, predicate), Filter(node.right, predicate)


def filter_below_granularity(node: Node) -> Node | None:
    """σp(Γ(S)) = Γ(σp(S)): granularity commutes with every snapshot-reducible operator."""
    if not (isinstance(node, Filter) and isinstance(node.input, Granularity)):
        return None
    return replace(node.input, input=Filter(node.input.input, node.predicate))


def filter_below_changes(node: Node) -> Node | None:
    """σp(Istream(S)) = Istream(σp(S)), and so for Dstream: both are differences of snapshots of S."""
    if not (isinstance(node, Filter) and isinstance(node.input, Istream | Dstream)):
        return None
    return replace(node.input, input=Filter(node.input.input, node.predicate))
