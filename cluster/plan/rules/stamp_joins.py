"""Joins by stamps: a condition sinks to the side it reads; unused columns are removed."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import Filter, Node, Project, StampJoin
from cluster.operators.columns import Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, columns_of, conjunction_of, conjuncts_of, substituted
from cluster.plan.expressions import kept
from protocols.wire.streams import FieldType


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

    On the right of one with the latest tuple all columns break ties: they stay (cluster/plan/partner_columns.py).
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
