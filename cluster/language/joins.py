"""The items of FROM combined: products of streams, and lookups of streams in relations (LEFT JOIN too)."""

from __future__ import annotations

from collections.abc import Sequence
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
from cluster.language.shared_columns import SharedColumns
from cluster.language.syntax import conjuncts, holds_query


def join_items(
    items: list[FromItem], joins: Sequence[exp.Join], context: Context
) -> tuple[Node, Scope, list[exp.Expr]]:
    """Return the product of `items`, and the conditions under which its tuples are joined.

    Columns whose name is taken get a number.

    Parameters
    ----------
    items
        The items of FROM, in order.
    joins
        The connection of each item but the first with those before it.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If a LEFT JOIN is not one of a stream with a relation, its condition makes no sense, or USING names a column
        that one of its sides does not have.
    """
    outer = {position: join for position, join in enumerate(joins, start=1) if join.args.get("side")}
    shared = SharedColumns(items, joins, context)
    for position, join in outer.items():
        _check_outer(join, items[position], context)
    # Streams first: the tuples that are joined with a relation do not depend on the relation's place in FROM.
    first, *others = sorted(range(len(items)), key=lambda position: items[position].static)
    node, scopes = items[first].node, {first: [*shared.scopes[first]]}
    for position in others:
        right, names = renamed_apart(items[position].node, [column.name for column in schema_of(node)])
        scopes[position] = [scope.renamed(names) for scope in shared.scopes[position]]
        if position not in outer:
            node = Join(node, right, None)
        else:
            join = outer[position]
            known = Scope(tuple(scope for each in range(position + 1) for scope in scopes[each]))
            conditions = shared.equalities(position, scopes) or conjuncts(join.args["on"])
            node = Lookup(node, right, _condition(conditions, known, context), "left")
            scopes[position] = [with_nulls(scope) for scope in scopes[position]]
    inner = [position for position in range(1, len(items)) if position not in outer]
    on = [join.args["on"] for position, join in enumerate(joins, start=1) if position in inner and join.args.get("on")]
    on += [equality for position in inner for equality in shared.equalities(position, scopes)]
    in_order = tuple(scope for position in range(len(items)) for scope in scopes[position])
    return node, Scope(in_order, starring=shared.starring(scopes)), on


def _check_outer(join: exp.Join, item: FromItem, context: Context) -> None:
    if not item.static:
        raise context.error(
            join.this,
            "LEFT JOIN needs a relation on its right: with a stream there, a partner may still come at any time",
            "join with a comma and WHERE; use NOT EXISTS to ask whether there is no partner",
        )
    if not join.args.get("on") and not join.args.get("using"):
        raise context.error(join.this, "LEFT JOIN needs a condition", "write LEFT JOIN relation ON a.x = b.x")
    if join.args.get("on") and holds_query(join.args["on"]):
        raise context.error(
            join.args["on"], "a subquery cannot stand in the condition of LEFT JOIN", "put it into FROM"
        )


def _condition(conditions: Sequence[exp.Expr], scope: Scope, context: Context) -> Scalar:
    checker = Checker(scope, context)
    return conjunction([checker.check_as(each, Family.BOOLEAN).expression for each in conditions])


def with_nulls(item: ScopeItem) -> ScopeItem:
    """Return an item whose columns may all be NULL because it has no partner."""
    return replace(item, columns=tuple(replace(column, nullable=True) for column in item.columns))
