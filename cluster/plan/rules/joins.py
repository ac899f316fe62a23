"""Conditions move to their join, and those about one side below it (section 4.2 C1, C4; section 4.3)."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.expressions.conditions import MIRRORED
from cluster.expressions.nodes import Binary, Column, Expression, bare
from cluster.expressions.walks import columns_read
from cluster.operators import (
    Aggregate,
    AntiJoin,
    Distinct,
    Filter,
    Join,
    Lookup,
    Node,
    Project,
    SemiJoin,
    StampJoin,
    Zip,
)
from cluster.operators.columns import AggregateCall, Scalar
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import (
    column_scalar,
    columns_of,
    conjunction_of,
    conjuncts_of,
    plain_column,
    substituted,
)
from cluster.plan.expressions import kept, split_by_side, without_alternatives
from protocols.wire.streams import FieldType


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


def filter_below_stamp_join(node: Node) -> Node | None:
    """σp(A)∧q(B)(A ⋈stamps B) = σp(A) ⋈stamps σq(B), where a tuple without it would not be answered otherwise.

    A condition on the left may always go there unless right tuples without a partner are kept, one on the right only if
    neither side keeps such tuples. The latest partner is found among all right tuples of a key: there only a condition
    on keys goes to the right. One on keys goes to both sides. Keys are not reals then: zeros of both signs are equal.
    """
    if not (isinstance(node, Filter) and isinstance(node.input, StampJoin) and node.input.kind != "full"):
        return None
    join = node.input
    below: tuple[list[Scalar], list[Scalar]] = ([], [])
    above: list[Scalar] = []
    for part in conjuncts_of(node.predicate):
        places = _places(join, part)
        if places is None:
            above.append(part)
        for side, each in zip(below, places or (), strict=False):
            side.extend(each)
    left, right = map(conjunction_of, below)
    if left is None and right is None:
        return None
    sunk = replace(
        join,
        left=join.left if left is None else Filter(join.left, left),
        right=join.right if right is None else Filter(join.right, right),
    )
    rest = conjunction_of(above)
    return sunk if rest is None else Filter(sunk, rest)


def _places(join: StampJoin, part: Scalar) -> tuple[list[Scalar], list[Scalar]] | None:
    """Return a condition as it applies to the left and to the right; None if it stays above."""
    read = columns_of(part)
    types = {column.name: column.type for column in join.schema}
    keys = [(one, other) for one, other in join.keys if types[one] is not FieldType.REAL]
    columns = {column.name: column_scalar(column) for column in join.schema}
    of_right = dict(reversed(keys))
    of_left = {other: one for one, other in reversed(keys)}
    if not read:
        return None
    if read <= join.left.names:
        also = (
            substituted(part, columns | {one: columns[of_right[one]] for one in read})
            if read <= set(of_right)
            else None
        )
        return [part], [] if also is None else [also]
    if join.kind != "inner" or not read <= join.right.names:
        return None
    if read <= set(of_left):
        also = substituted(part, columns | {other: columns[of_left[other]] for other in read})
        return None if also is None else ([also], [part])
    return None if join.latest else ([], [part])


def narrow_stamp_join(node: Node) -> Node | None:
    """Keep, of both sides of a join by stamps, only what its condition and the projection above read.

    On the right of one with the latest tuple all columns break ties: they stay (cluster/plan/rewrite.py).
    """
    if not (isinstance(node, Project) and isinstance(node.input, StampJoin)):
        return None
    join = node.input
    needed = frozenset().union(*join.keys, *(columns_of(output.scalar) for output in node.outputs))
    if join.predicate is not None:
        needed |= columns_of(join.predicate)
    left, right = kept(join.left, needed), kept(join.right, join.right.names if join.latest else needed)
    if len(left) == len(join.left.names) and len(right) == len(join.right.names):
        return None
    return replace(node, input=replace(join, left=project(join.left, left), right=project(join.right, right)))


def filter_below_zip(node: Node) -> Node | None:
    """σp(A ⋈zip B) = σp(A) ⋈zip σp(B) where p reads only keys: all tuples of a key are removed, or none.

    Any other condition would remove a tuple before it has found its partner, which then would find another one.
    Unmatched tuples of the right have no keys of the left, so p must read the left, or the join answer pairs only. Keys
    are not reals: zeros of both signs are equal, and an expression can distinguish them.
    """
    if not (isinstance(node, Filter) and isinstance(node.input, Zip) and node.input.kind != "full"):
        return None
    zipped = node.input
    types = {column.name: column.type for column in zipped.schema}
    keys = [(one, other) for one, other in zipped.keys if types[one] is not FieldType.REAL]
    readable = {one for one, _ in keys} | ({other for _, other in keys} if zipped.kind == "inner" else set())
    parts = conjuncts_of(node.predicate)
    below = conjunction_of(part for part in parts if columns_of(part) and columns_of(part) <= readable)
    if below is None:
        return None
    above = conjunction_of(part for part in parts if not (columns_of(part) and columns_of(part) <= readable))
    columns = {column.name: column_scalar(column) for column in zipped.schema}
    of_left = columns | {other: columns[one] for one, other in keys}
    of_right = columns | {one: columns[other] for one, other in keys}
    left, right = substituted(below, of_left), substituted(below, of_right)
    if left is None or right is None:
        return None
    sunk = replace(zipped, left=Filter(zipped.left, left), right=Filter(zipped.right, right))
    return sunk if above is None else Filter(sunk, above)


_EXTREMES = {"<": "max", "<=": "max", ">": "min", ">=": "min"}
"""By how a value of the left compares with those of the right: the one of them that decides."""


def existence_by_extreme(node: Node) -> Node | None:
    """A ⋉x<c∧k=l B = A ⋉x<c∧k=l γ(l; max(c))(B), and so for the anti-join: some c is above x where the greatest is.

    A NULL is not above x, and is no greatest value; where there are no rows, there is no greatest value either.
    """
    if not isinstance(node, SemiJoin | AntiJoin) or reads_relations_only(node.right):
        return None
    left = node.left.names
    keys: list[str] = []
    extremes: list[tuple[str, str]] = []
    for part in conjuncts_of(node.predicate):
        if columns_of(part) <= left:
            continue  # of an anti-join: which tuples need no partner
        comparison = _comparison(part.expression, left, node.right.names)
        if comparison is None:
            return None
        sign, compared = comparison
        if sign == "=":
            keys.append(compared)
        else:
            extremes.append((compared, _EXTREMES[sign]))
    if len(extremes) != 1 or extremes[0][0] in keys or _has_one_row_for_each(node.right, frozenset(keys)):
        return None
    ((name, function),) = extremes
    column = next(each for each in node.right.schema if each.name == name)
    call = AggregateCall(name, function, column_scalar(column), column.type, unit=column.unit)
    groups = Aggregate(node.right, tuple(dict.fromkeys(keys)), (call,))
    return type(node)(node.left, groups, node.predicate)


def _comparison(part: Expression, left: frozenset[str], right: frozenset[str]) -> tuple[str, str] | None:
    """Return how an expression of the left is compared with a column of the right; None if a part is something else."""
    if not (isinstance(part, Binary) and part.sign in MIRRORED):
        return None
    for sign, one, other in ((part.sign, part.left, part.right), (MIRRORED[part.sign], part.right, part.left)):
        column = bare(other)
        if isinstance(column, Column) and column.name in right and columns_read(one) <= left:
            return sign, column.name
    return None


def _has_one_row_for_each(node: Node, keys: frozenset[str]) -> bool:
    """Return whether a plan has at most one row at an instant for each combination of keys."""
    names = {name: name for name in keys}
    while isinstance(node, Filter | Project):
        if isinstance(node, Project):
            below = {output.name: plain_column(output.scalar) for output in node.outputs}
            names = {key: below[name] or "" for key, name in names.items()}
        node = node.input
    return isinstance(node, Aggregate) and set(node.keys) <= set(names.values())
