"""Reading and rebuilding the scalar expressions of plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.expressions import conditions
from cluster.expressions.nodes import Binary
from cluster.expressions.walks import columns_read
from cluster.operators.columns import Output, Scalar
from cluster.operators.scalar_expressions import columns_of, conjunction_of, conjuncts_of, disjuncts_of, passed_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.operators import Node


MOST_ALTERNATIVES = 16
"""Most alternatives into which a condition is split; the alternatives of several ORs multiply."""


def kept(node: Node, names: Iterable[str]) -> tuple[Output, ...]:
    """Return outputs that keep the columns of `node` in `names`; its first column if there are none."""
    wanted = frozenset(names)
    schema = node.schema
    columns = [column for column in schema if column.name in wanted] or list(schema[:1])
    return passed_on(columns)


def split_by_side(
    scalars: Iterable[Scalar], left: frozenset[str], right: frozenset[str]
) -> tuple[list[Scalar], list[Scalar], list[Scalar]]:
    """Return the conditions that read only left columns (or none), those that read only right ones, and the others."""
    on_left: list[Scalar] = []
    on_right: list[Scalar] = []
    across: list[Scalar] = []
    for scalar in scalars:
        columns = columns_of(scalar)
        if columns <= left:
            on_left.append(scalar)
        elif columns <= right:
            on_right.append(scalar)
        else:
            across.append(scalar)
    return on_left, on_right, across


def joins_by_equality(scalar: Scalar, left: frozenset[str], right: frozenset[str]) -> bool:
    """Return whether `scalar` requires that an expression of the left equals one of the right."""
    sides = conditions.equal_sides(scalar.expression)
    if sides is None:
        return False
    one, other = map(columns_read, sides)
    if not one or not other:
        return False
    return (one <= left and other <= right) or (one <= right and other <= left)


def without_alternatives(
    predicate: Scalar | None, left: frozenset[str], right: frozenset[str]
) -> tuple[Scalar | None, ...]:
    """Return conditions that together are equivalent to `predicate`: (p OR q) AND c is split into p AND c, and q AND c.

    Only where p is an equality of both sides, which can be looked up instead of searched for.
    """
    parts = conjuncts_of(predicate)
    for part in parts:
        options = disjuncts_of(part)
        if 1 < len(options) <= MOST_ALTERNATIVES and any(joins_by_equality(option, left, right) for option in options):
            rest = [each for each in parts if each is not part]
            each_with_rest = (conjunction_of([*rest, option]) for option in options)
            found = tuple(one for option in each_with_rest for one in without_alternatives(option, left, right))
            return found if len(found) <= MOST_ALTERNATIVES else (predicate,)
    return (predicate,)


def tidy_equality(scalar: Scalar, right: frozenset[str]) -> Scalar:
    """Return an equality with columns of the right only on its right; any other condition unchanged."""
    sides = conditions.equal_sides(scalar.expression)
    if sides is None:
        return scalar
    one, other = map(columns_read, sides)
    if not one or not one <= right or other <= right:
        return scalar
    return Scalar(Binary("=", sides[1], sides[0]), scalar.type)
