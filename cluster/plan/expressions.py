"""Reading and rebuilding the scalar expressions of plans."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.algebra import Output, Scalar, schema_of
from cluster.language.dialect import canonical, parse_scalar
from cluster.language.expressions import grouped
from cluster.language.plans import column_scalar
from cluster.language.syntax import conjuncts
from protocols.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.language.algebra import Node

LONGEST_SUBSTITUTION = 2000
"""Characters; expressions that would grow beyond this by substitution are left apart."""


@lru_cache(maxsize=4096)
def _tree(sql: str) -> exp.Expr:
    """Return the syntax tree; shared, so copy it before changing it."""
    return parse_scalar(sql)


@lru_cache(maxsize=4096)
def columns_of(scalar: Scalar) -> frozenset[str]:
    """Return the columns that `scalar` reads.

    >>> sorted(columns_of(Scalar('"a" > "b" + 1', FieldType.BOOLEAN)))
    ['a', 'b']
    """
    return frozenset(column.name for column in _tree(scalar.sql).find_all(exp.Column))


def column_uses(scalar: Scalar) -> Counter[str]:
    """Return how often `scalar` reads each column."""
    return Counter(column.name for column in _tree(scalar.sql).find_all(exp.Column))


def plain_column(scalar: Scalar) -> str | None:
    """Return the column that an expression is, nothing computed; None if it is none.

    >>> plain_column(Scalar('"a"', FieldType.INTEGER)), plain_column(Scalar('"a" + "b"', FieldType.INTEGER))
    ('a', None)
    """
    name = scalar.sql.strip('"')
    return name if columns_of(scalar) == {name} else None


def names_of(node: Node) -> frozenset[str]:
    """Return the names of the columns of `node`."""
    return frozenset(column.name for column in schema_of(node))


def conjuncts_of(scalar: Scalar | None) -> tuple[Scalar, ...]:
    """Return the conditions that AND connects in `scalar`; none for None.

    >>> [each.sql for each in conjuncts_of(Scalar('"a" AND ("b" OR "c")', FieldType.BOOLEAN))]
    ['"a"', '"b" OR "c"']
    """
    if scalar is None:
        return ()
    return tuple(Scalar(canonical(_bare(part)), FieldType.BOOLEAN) for part in conjuncts(_tree(scalar.sql)))


def disjuncts_of(scalar: Scalar) -> tuple[Scalar, ...]:
    """Return the conditions that OR connects in `scalar`."""

    def parts(tree: exp.Expr) -> list[exp.Expr]:
        tree = _bare(tree)
        return [*parts(tree.this), *parts(tree.expression)] if isinstance(tree, exp.Or) else [tree]

    return tuple(Scalar(canonical(part), FieldType.BOOLEAN) for part in parts(_tree(scalar.sql)))


def conjunction_of(scalars: Iterable[Scalar]) -> Scalar | None:
    """Return the condition that all of `scalars` hold; None if there are none. Repetitions count once."""
    unique = tuple(dict.fromkeys(scalars))
    if len(unique) <= 1:
        return unique[0] if unique else None
    built: exp.Expr | None = None
    for scalar in unique:
        tree = _tree(scalar.sql).copy()
        safe = exp.Paren(this=tree) if isinstance(tree, exp.Or) else tree
        built = safe if built is None else exp.And(this=built, expression=safe)
    assert built is not None  # noqa: S101 - there are at least two
    return Scalar(canonical(built), FieldType.BOOLEAN)


def substituted(scalar: Scalar, outputs: Mapping[str, Scalar]) -> Scalar | None:
    """Return `scalar` with every column replaced by its expression; None if that grows too long.

    >>> substituted(Scalar('"x" * 2', FieldType.INTEGER), {"x": Scalar('"a" + 1', FieldType.INTEGER)}).sql
    '("a" + 1) * 2'
    """

    def replaced(part: exp.Expr) -> exp.Expr:
        return grouped(_tree(outputs[part.name].sql).copy()) if isinstance(part, exp.Column) else part

    tree = _bare(_tree(scalar.sql).copy().transform(replaced, copy=False))
    sql = canonical(tree)
    longer = len(sql) > LONGEST_SUBSTITUTION and len(sql) > len(scalar.sql)
    return None if longer else Scalar(sql, scalar.type)


def by_name(outputs: Iterable[Output]) -> dict[str, Scalar]:
    """Return the expressions of `outputs` by name."""
    return {output.name: output.scalar for output in outputs}


def kept(node: Node, names: Iterable[str]) -> tuple[Output, ...]:
    """Return outputs that keep those columns of `node` that are among `names`; the first one if none is."""
    wanted = frozenset(names)
    schema = schema_of(node)
    columns = [column for column in schema if column.name in wanted] or list(schema[:1])
    return tuple(Output(column.name, column_scalar(column), column.unit) for column in columns)


def split_by_side(
    scalars: Iterable[Scalar], left: frozenset[str], right: frozenset[str]
) -> tuple[list[Scalar], list[Scalar], list[Scalar]]:
    """Return those that read only left columns (or none), only right ones, and both."""
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
    """Return whether `scalar` says that something of the left equals something of the right."""
    tree = _tree(scalar.sql)
    if not isinstance(tree, exp.EQ):
        return False
    one, other = (
        frozenset(column.name for column in side.find_all(exp.Column)) for side in (tree.this, tree.expression)
    )
    if not one or not other:
        return False
    return (one <= left and other <= right) or (one <= right and other <= left)


def without_alternatives(
    predicate: Scalar | None, left: frozenset[str], right: frozenset[str]
) -> tuple[Scalar | None, ...]:
    """Return conditions of which none holds exactly if `predicate` does not: (p OR q) AND c as p AND c, and q AND c.

    Only where p is an equality of both sides, which can be looked up instead of searched.
    """
    parts = conjuncts_of(predicate)
    for part in parts:
        options = disjuncts_of(part)
        if len(options) > 1 and any(joins_by_equality(option, left, right) for option in options):
            rest = [each for each in parts if each is not part]
            each_with_rest = (conjunction_of([*rest, option]) for option in options)
            return tuple(one for option in each_with_rest for one in without_alternatives(option, left, right))
    return (predicate,)


def tidy_equality(scalar: Scalar, right: frozenset[str]) -> Scalar:
    """Return an equality with what reads columns of the right only on its right; anything else as it is.

    >>> tidy_equality(Scalar('"b" = "a"', FieldType.BOOLEAN), frozenset({"b"})).sql
    '"a" = "b"'
    """
    tree = _tree(scalar.sql)
    if not isinstance(tree, exp.EQ):
        return scalar
    one, other = (frozenset(each.name for each in side.find_all(exp.Column)) for side in (tree.this, tree.expression))
    if not one or not one <= right or other <= right:
        return scalar
    return Scalar(canonical(exp.EQ(this=tree.expression.copy(), expression=tree.this.copy())), scalar.type)


def _bare(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree
