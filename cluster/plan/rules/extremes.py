"""Existence by a comparison needs only the greatest or the least value of the other side, not all."""

from __future__ import annotations

from cluster.expressions.conditions import MIRRORED
from cluster.expressions.nodes import Binary, Column, Expression, bare
from cluster.expressions.walks import columns_read
from cluster.operators import Aggregate, AntiJoin, Filter, Node, Project, SemiJoin
from cluster.operators.columns import AggregateCall
from cluster.operators.projections import reads_relations_only
from cluster.operators.scalar_expressions import column_scalar, columns_of, conjuncts_of, plain_column

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
