"""Selections sink, and what has no effect or no tuple goes (section 4.2 C2 to C4, W2; section 4.3).

**Parts that can have no tuple: conditions that are never true, such as those on the NULLs of an outer join.**

    where wind > 30                                   join
    `- union                            ->            |- stream traffic
       |- join                                        `- filter wind > 30
       |  |- stream traffic                              `- stream weather
       |  `- stream weather
       `- project wind = NULL
          `- keep if none ...

So an outer join whose rows without a partner are chosen by no condition above it is a join: less work, and sensors send
only what meets the conditions.
"""

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
    Held,
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
from cluster.operators.aggregate import ignores_copies
from cluster.operators.columns import Scalar
from cluster.operators.projections import named_as
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


def drop_empty_side(node: Node) -> Node | None:
    """A ∪ ∅ = A."""
    if not isinstance(node, Union):
        return None
    if node.right.is_empty:
        return node.left
    if not node.left.is_empty:
        return None
    return named_as(node.right, node.left.schema)


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
