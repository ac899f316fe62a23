"""Subqueries that refer past the query directly around them, to one further out.

    SELECT * FROM a WHERE EXISTS (SELECT * FROM b WHERE b.x = a.x AND
                                  NOT EXISTS (SELECT * FROM c WHERE c.x = b.x AND c.y = a.y))

The query between is joined with what is referred to of the outermost one. Its conditions, subqueries among them, are
about these pairs then, one level out; and a tuple of the outermost query has the rows of the pairs with its own values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.expressions import COMPARISONS
from cluster.language.scope import Scope, ScopeItem
from cluster.language.syntax import QUERIES, conjuncts, own_columns, own_parts
from cluster.language.validity_syntax import Validity, bounds_of
from cluster.operators import Distinct, Join, Node
from cluster.operators.columns import Output
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import column_scalar
from cluster.operators.unique_names import Names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.language.context import Context
    from cluster.language.from_items import SelectTranslator


@dataclass(frozen=True, slots=True)
class Paired:
    """A query between, joined with the tuples of the query around it.

    Parameters
    ----------
    node, scope
        The pairs, and their names: those of the outer query are found last.
    names
        By column of the outer query: that of the pairs.
    equal
        That a tuple of the outer query has the values of a pair.
    """

    node: Node
    scope: Scope
    names: Mapping[str, str]
    equal: tuple[exp.Expr, ...]


def further_out(select: exp.Select, scope: Scope, outer: Scope, translator: SelectTranslator) -> list[exp.Column]:
    """Return the names in subqueries of the WHERE of `select` that mean columns of the query around it.

    Parameters
    ----------
    select, scope
        The query between, and its names.
    outer
        The names of the query around it.
    translator
        That of `select`.
    """
    where = select.args.get("where")
    if where is None:
        return []
    free = [each for query in own_parts(where.this, *QUERIES) for each in _free(query, translator)]
    return [each for each in free if not scope.reaches(each) and outer.reaches(each)]


def _free(query: exp.Expr, translator: SelectTranslator) -> Iterator[exp.Column]:
    """Yield the names in the WHERE of a query, and in subqueries there, that its own FROM does not have."""
    while isinstance(query, exp.Subquery | exp.Paren):
        translator, query = translator.knowing(query), query.this
    if not isinstance(query, exp.Select) or not query.args.get("from_") or not query.args.get("where"):
        return
    translator = translator.knowing(query)
    condition = query.args["where"].this
    named = [
        *own_columns(condition),
        *(each for inner in own_parts(condition, *QUERIES) for each in _free(inner, translator)),
    ]
    if named:
        _, scope = translator.from_clause(query)
        yield from (each for each in named if not scope.reaches(each))


def paired(
    source: tuple[Node, Scope],
    around: tuple[Node, Scope],
    references: list[exp.Column],
    across: list[exp.Expr],
    context: Context,
    *,
    once: bool,
) -> Paired:
    """Return a query between, joined with the query around it.

    Parameters
    ----------
    source
        Plan and names of the FROM of the query between.
    around
        Those of the query around it.
    references
        What names columns of the query around, in the subqueries.
    across
        Conditions of the query between that do so themselves.
    once
        True if tuples of the query around with equal values may be paired only once: their pairs are aggregated.

    Raises
    ------
    FjordSqlError
        If one of the two reads relations only, whose rows belong to tuples.
    """
    (node, scope), (left, outer) = source, around
    for each, what in ((left, "that is referred to"), (node, "between")):
        if reads_relations_only(each):
            reason = f"a subquery can refer to a query further out only if the query {what} reads a stream"
            raise context.error(
                references[0], reason, "compare with the query between, and there with the one around it"
            )
    own = [column for each in across for column in own_columns(each) if not scope.knows(column)]
    needed = {name for each in (*references, *own) if outer.reaches(each) for name in _read_by(each, outer, context)}
    certain = {outer.find(each, context).internal for each in _compared(across) if each in own and outer.reaches(each)}
    columns = [column for column in left.schema if column.name in needed]
    taken = Names(column.name for side in (left, node) for column in side.schema)
    names = {column.name: taken.unique(column.name) for column in columns}
    values = project(left, [Output(names[each.name], column_scalar(each), each.unit) for each in columns])
    pairs = Join(node, Distinct(values) if once else values, None)
    equal = tuple(
        (exp.EQ if name in certain else exp.NullSafeEQ)(
            this=exp.column(name, quoted=True), expression=exp.column(other, quoted=True)
        )
        for name, other in names.items()
    )
    return Paired(pairs, replace(scope, outer=_narrowed(outer, names)), names, equal)


def _read_by(reference: exp.Column, scope: Scope, context: Context) -> Iterator[str]:
    """Yield the columns of a plan that a name reads: of an interval, its begin and its end."""
    for each in bounds_of(reference) if isinstance(reference, Validity) else (reference,):
        yield scope.find(each, context).internal


def _compared(conditions: list[exp.Expr]) -> Iterator[exp.Column]:
    """Yield the columns that are compared by conditions: where these hold, they are not NULL."""
    for condition in conditions:
        for part in conjuncts(condition):
            if isinstance(part, COMPARISONS):
                yield from (each for each in (part.this, part.expression) if isinstance(each, exp.Column))


def _narrowed(scope: Scope, names: Mapping[str, str]) -> Scope:
    """Return a scope with the columns that have new names, under these."""
    items = tuple(
        ScopeItem(
            item.alias,
            tuple(replace(each, internal=names[each.internal]) for each in item.columns if each.internal in names),
            item.stamp,
            names.get(item.sampled_at) if item.sampled_at else None,
            item.shared,
            (names[both[0]], names[both[1]]) if (both := item.validity) and names.keys() >= {*both} else None,
        )
        for item in scope.items
    )
    return Scope(items, None if scope.outer is None else _narrowed(scope.outer, names), grouped=scope.grouped)
