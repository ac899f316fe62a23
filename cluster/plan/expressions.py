"""Reading and rebuilding the scalar expressions of plans."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.algebra import Output, Scalar, schema_of
from cluster.language.dialect import canonical, parse_scalar, remember_tree
from cluster.language.expressions import grouped
from cluster.language.plans import column_scalar
from cluster.language.shared_nodes import remembered
from cluster.language.syntax import disjuncts
from cluster.plan.canonical_text import columns_in, conditions_in, is_alternative
from protocols.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.language.algebra import Node

LONGEST_SUBSTITUTION = 2000
"""Characters; expressions that would grow beyond this by substitution are left apart."""
MOST_ALTERNATIVES = 16
"""Conditions that one is taken apart into; several ORs in one multiply."""
QUOTES = 2
"""Characters of a column's name besides the name."""
CACHED = 16_384
"""Expressions about which what has been found out is kept."""


@lru_cache(maxsize=CACHED)
def columns_of(scalar: Scalar) -> frozenset[str]:
    """Return the columns that `scalar` reads.

    >>> sorted(columns_of(Scalar('"a" > "b" + 1', FieldType.BOOLEAN)))
    ['a', 'b']
    """
    return frozenset(columns_in(scalar.sql))


@lru_cache(maxsize=CACHED)
def column_uses(scalar: Scalar) -> Mapping[str, int]:
    """Return how often `scalar` reads each column."""
    return Counter(columns_in(scalar.sql))


def plain_column(scalar: Scalar) -> str | None:
    """Return the column that an expression is, nothing computed; None if it is none.

    >>> plain_column(Scalar('"a"', FieldType.INTEGER)), plain_column(Scalar('"a" + "b"', FieldType.INTEGER))
    ('a', None)
    """
    quoted = scalar.sql
    name = quoted[1:-1].replace('""', '"')
    return name if quoted.startswith('"') and columns_of(scalar) == {name} else None


@remembered
def names_of(node: Node) -> frozenset[str]:
    """Return the names of the columns of `node`."""
    return frozenset(column.name for column in schema_of(node))


@lru_cache(maxsize=CACHED)
def conjuncts_of(scalar: Scalar | None) -> tuple[Scalar, ...]:
    """Return the conditions that AND connects in `scalar`; none for None.

    >>> [each.sql for each in conjuncts_of(Scalar('"a" AND ("b" OR "c")', FieldType.BOOLEAN))]
    ['"a"', '"b" OR "c"']
    """
    if scalar is None:
        return ()
    return tuple(Scalar(part, FieldType.BOOLEAN) for part in conditions_in(scalar.sql))


@lru_cache(maxsize=CACHED)
def disjuncts_of(scalar: Scalar) -> tuple[Scalar, ...]:
    """Return the conditions that OR connects in `scalar`."""
    return tuple(Scalar(canonical(part), FieldType.BOOLEAN) for part in disjuncts(parse_scalar(scalar.sql)))


def conjunction_of(scalars: Iterable[Scalar]) -> Scalar | None:
    """Return the condition that all of `scalars` hold; None if there are none. Repetitions count once."""
    unique = tuple(dict.fromkeys(scalars))
    if len(unique) <= 1:
        return unique[0] if unique else None
    safe = (f"({scalar.sql})" if is_alternative(scalar.sql) else scalar.sql for scalar in unique)
    return Scalar(" AND ".join(safe), FieldType.BOOLEAN)


def substituted(scalar: Scalar, outputs: Mapping[str, Scalar]) -> Scalar | None:
    """Return `scalar` with every column replaced by its expression; None if that grows too long.

    >>> substituted(Scalar('"x" * 2', FieldType.INTEGER), {"x": Scalar('"a" + 1', FieldType.INTEGER)}).sql
    '("a" + 1) * 2'
    """
    uses = column_uses(scalar)
    grown = len(scalar.sql) + sum(times * (len(outputs[name].sql) - len(name) - QUOTES) for name, times in uses.items())
    if grown > LONGEST_SUBSTITUTION and grown > len(scalar.sql):
        return None

    def replaced(part: exp.Expr) -> exp.Expr:
        return grouped(parse_scalar(outputs[part.name].sql).copy()) if isinstance(part, exp.Column) else part

    tree = _bare(parse_scalar(scalar.sql).copy().transform(replaced, copy=False))
    sql = canonical(tree)
    if len(sql) > LONGEST_SUBSTITUTION and len(sql) > len(scalar.sql):
        return None
    remember_tree(sql, tree)
    return Scalar(sql, scalar.type)


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
    tree = parse_scalar(scalar.sql)
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
        if 1 < len(options) <= MOST_ALTERNATIVES and any(joins_by_equality(option, left, right) for option in options):
            rest = [each for each in parts if each is not part]
            each_with_rest = (conjunction_of([*rest, option]) for option in options)
            found = tuple(one for option in each_with_rest for one in without_alternatives(option, left, right))
            return found if len(found) <= MOST_ALTERNATIVES else (predicate,)
    return (predicate,)


def tidy_equality(scalar: Scalar, right: frozenset[str]) -> Scalar:
    """Return an equality with what reads columns of the right only on its right; anything else as it is.

    >>> tidy_equality(Scalar('"b" = "a"', FieldType.BOOLEAN), frozenset({"b"})).sql
    '"a" = "b"'
    """
    tree = parse_scalar(scalar.sql)
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
