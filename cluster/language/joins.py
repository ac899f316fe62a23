"""The items of FROM combined: products of streams, and lookups of streams in relations (LEFT JOIN too)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from cluster.language.algebra import Join, Lookup, Node, schema_of
from cluster.language.columns import Scalar
from cluster.language.conditions import conjunction
from cluster.language.context import Context
from cluster.language.expressions import Checker
from cluster.language.from_items import FromItem
from cluster.language.functions import Family
from cluster.language.plans import renamed_apart
from cluster.language.scope import Scope, ScopeItem
from cluster.language.syntax import conjuncts, holds_query


def join_items(items: list[FromItem], outer: Mapping[int, exp.Join], context: Context) -> tuple[Node, Scope]:
    """Return the product of `items`; columns whose name is taken get a number.

    Parameters
    ----------
    items
        The items of FROM, in order.
    outer
        By position in `items`: the LEFT JOIN with which a relation stands there.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If a LEFT JOIN is not one of a stream with a relation, or its condition makes no sense.
    """
    for position, join in outer.items():
        _check_outer(join, items[position], context)
    # Streams first: the tuples that are joined with a relation do not depend on the relation's place in FROM.
    first, *others = sorted(range(len(items)), key=lambda position: items[position].static)
    node, scopes = items[first].node, {first: [*items[first].scopes]}
    for position in others:
        item = items[position]
        right, names = renamed_apart(item.node, [column.name for column in schema_of(node)])
        scopes[position] = [scope.renamed(names) for scope in item.scopes]
        if position not in outer:
            node = Join(node, right, None)
        else:
            join = outer[position]
            known = Scope(tuple(scope for each in range(position + 1) for scope in scopes[each]))
            node = Lookup(node, right, _condition(join, known, context), "left")
            scopes[position] = [with_nulls(scope) for scope in scopes[position]]
    return node, Scope(tuple(scope for position in range(len(items)) for scope in scopes[position]))


def _check_outer(join: exp.Join, item: FromItem, context: Context) -> None:
    if not item.static:
        raise context.error(
            join.this,
            "LEFT JOIN needs a relation on its right: with a stream there, a partner may still come at any time",
            "join with a comma and WHERE; use NOT EXISTS to ask whether there is no partner",
        )
    if not join.args.get("on"):
        raise context.error(join.this, "LEFT JOIN needs a condition", "write LEFT JOIN relation ON a.x = b.x")


def _condition(join: exp.Join, scope: Scope, context: Context) -> Scalar:
    on: exp.Expr = join.args["on"]
    if holds_query(on):
        raise context.error(on, "a subquery cannot stand in the condition of LEFT JOIN", "put it into FROM")
    checker = Checker(scope, context)
    return conjunction([checker.check_as(each, Family.BOOLEAN).expression for each in conjuncts(on)])


def with_nulls(item: ScopeItem) -> ScopeItem:
    """Return an item whose columns may all be NULL because it has no partner."""
    return replace(item, columns=tuple(replace(column, nullable=True) for column in item.columns))
