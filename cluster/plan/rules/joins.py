"""Conditions move to their join, and those about one side below it (section 4.2 C1, C4; section 4.3)."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import AntiJoin, Distinct, Filter, Join, Lookup, Node, Project, SemiJoin
from cluster.operators.columns import Scalar
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import columns_of, conjunction_of, conjuncts_of
from cluster.plan.expressions import kept, split_by_side, without_alternatives


def _filtered(node: Node, conditions: list[Scalar]) -> Node:
    predicate = conjunction_of(conditions)
    return node if predicate is None else Filter(node, predicate)


def filter_into_join(node: Node) -> Node | None:
    """σp(A ⋈θ B) = A ⋈θ∧p B. :func:`join_condition_to_sides` then moves conditions about one side below it."""
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return None
    both = [*conjuncts_of(node.input.predicate), *conjuncts_of(node.predicate)]
    return replace(node.input, predicate=conjunction_of(both))


def join_condition_to_sides(node: Node) -> Node | None:
    """A ⋈p(A)∧q(B)∧θ B = σp(A) ⋈θ σq(B)."""
    if not isinstance(node, Join):
        return None
    left, right, across = split_by_side(conjuncts_of(node.predicate), node.left.names, node.right.names)
    if not left and not right:
        return None
    return Join(_filtered(node.left, left), _filtered(node.right, right), conjunction_of(across))


def filter_below_existence(node: Node) -> Node | None:
    """σp(A ⋉ B) = σp(A) ⋉ B, and so for the anti-join: both keep tuples of A as they are."""
    if not (isinstance(node, Filter) and isinstance(node.input, SemiJoin | AntiJoin)):
        return None
    return replace(node.input, left=Filter(node.input.left, node.predicate))


def filter_below_lookup(node: Node) -> Node | None:
    """σp(L(A, R)) = L(σp(A), R): a condition on A alone moves below, so that other relations see it too."""
    if not (isinstance(node, Filter) and isinstance(node.input, Lookup)):
        return None
    lookup = node.input
    own, others = lookup.input.names, conjuncts_of(node.predicate)
    below = [each for each in others if columns_of(each) <= own]
    if not below:
        return None
    rest = [each for each in others if each not in below]
    return _filtered(replace(lookup, input=_filtered(lookup.input, below)), rest)


def semijoin_condition_to_sides(node: Node) -> Node | None:
    """A ⋉p(A)∧q(B)∧θ B = σp(A) ⋉θ σq(B)."""
    if not isinstance(node, SemiJoin):
        return None
    left, right, across = split_by_side(conjuncts_of(node.predicate), node.left.names, node.right.names)
    if not left and not right:
        return None
    return SemiJoin(_filtered(node.left, left), _filtered(node.right, right), conjunction_of(across))


def antijoin_condition_to_right(node: Node) -> Node | None:
    """A ▷q(B)∧θ B = A ▷θ σq(B). A condition on A alone must stay: it decides which tuples need no partner."""
    if not isinstance(node, AntiJoin):
        return None
    _, right, _ = split_by_side(conjuncts_of(node.predicate), node.left.names, node.right.names)
    if not right:
        return None
    rest = [each for each in conjuncts_of(node.predicate) if each not in right]
    return AntiJoin(node.left, _filtered(node.right, right), conjunction_of(rest))


def split_antijoin(node: Node) -> Node | None:
    """A ▷(p∨q)∧c B = (A ▷p∧c B) ▷q∧c B: no partner for either. Only where p is an equality of both sides.

    NOT IN means ``x = y OR x IS NULL OR y IS NULL``; alone, the equality can be looked up instead of searched.
    """
    if not isinstance(node, AntiJoin) or reads_relations_only(node.right):
        return None  # lookups split their own conditions: the best split depends on the whole condition
    options = without_alternatives(node.predicate, node.left.names, node.right.names)
    if len(options) == 1:
        return None
    result = node.left
    for option in options:
        result = AntiJoin(result, node.right, option)
    return result


def avoid_product(node: Node) -> Node | None:
    """C1: (A × B) ⋈θ C = A ⋈θ' (B ⋈θ" C), where A and B have no condition in common but B and C have."""
    if not (isinstance(node, Join) and isinstance(node.left, Join) and node.left.predicate is None):
        return None
    first, second = node.left.left, node.left.right
    if reads_relations_only(second) != reads_relations_only(node.right):
        return None  # a relation joins the streams that all its conditions read, not those that some of them read
    if reads_relations_only(second) and _joins_streams(first):
        return None  # the first of the streams meets B; those that the conditions of C read would then
    inner_names = second.names | node.right.names
    parts = conjuncts_of(node.predicate)
    inner = [each for each in parts if columns_of(each) <= inner_names and columns_of(each) & second.names]
    if not inner:
        return None
    outer = [each for each in parts if each not in inner]
    if not outer:
        return None  # the product with A stays, and is smaller below
    return Join(first, Join(second, node.right, conjunction_of(inner)), conjunction_of(outer))


def _joins_streams(node: Node) -> bool:
    """Return whether rows of a plan are pairs of a join of streams, whatever is looked up for them."""
    while isinstance(node, Filter | Project | SemiJoin | AntiJoin | Lookup) or (
        isinstance(node, Join) and reads_relations_only(node.right)
    ):
        node = node.inputs[0]
    return isinstance(node, Join)


def drop_distinct_in_existence(node: Node) -> Node | None:
    """A ⋉ δ(B) = A ⋉ B, and so for the anti-join: whether there is a partner does not depend on how many."""
    if not (isinstance(node, SemiJoin | AntiJoin) and isinstance(node.right, Distinct)):
        return None
    return replace(node, right=node.right.input)


def narrow_existence(node: Node) -> Node | None:
    """Keep, of the right side of a semi-join or anti-join, only the columns that its condition reads."""
    if not isinstance(node, SemiJoin | AntiJoin):
        return None
    needed = columns_of(node.predicate) if node.predicate is not None else frozenset()
    outputs = kept(node.right, needed)
    if len(outputs) == len(node.right.names):
        return None
    return replace(node, right=project(node.right, outputs))


def narrow_join(node: Node) -> Node | None:
    """Keep, of both sides of a join, only the columns that its condition and the projection above read."""
    if not (isinstance(node, Project) and isinstance(node.input, Join)):
        return None
    join = node.input
    needed = frozenset().union(*(columns_of(output.scalar) for output in node.outputs))
    if join.predicate is not None:
        needed |= columns_of(join.predicate)
    left, right = kept(join.left, needed), kept(join.right, needed)
    if len(left) == len(join.left.names) and len(right) == len(join.right.names):
        return None
    return replace(node, input=replace(join, left=project(join.left, left), right=project(join.right, right)))


def narrow_existence_left(node: Node) -> Node | None:
    """Keep, of the left side of a semi-join or anti-join, only columns that its condition and the projection read."""
    if not (isinstance(node, Project) and isinstance(node.input, SemiJoin | AntiJoin)):
        return None
    join = node.input
    needed = frozenset().union(*(columns_of(output.scalar) for output in node.outputs))
    if join.predicate is not None:
        needed |= columns_of(join.predicate)
    left = kept(join.left, needed)
    if len(left) == len(join.left.names):
        return None
    return replace(node, input=replace(join, left=project(join.left, left)))
