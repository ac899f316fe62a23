"""Subqueries as values: wherever an expression may stand, a subquery of one row and one column may, too.

    SELECT speed - (SELECT AVG(speed) FROM traffic WINDOW(RANGE 1 HOUR)) FROM traffic

Its value becomes a column of the plan below the expression, by an outer join: at every instant there is at most one
row, and where there is none the value is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.acquisition import note_same_lifetimes
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import QUERIES, slot_for
from cluster.language.typing_rules import conjunction, scalar_of
from cluster.operators import AntiJoin, Join, Lookup, Node, Union
from cluster.operators.columns import Column, Output
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import null_scalar, passed_on, plain_column
from cluster.operators.unique_names import Names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.language.context import Context
    from cluster.language.subqueries import Operand, Subqueries

TESTS = (exp.Exists, exp.All, exp.Any)
"""What asks something of the rows of a query, and is no value of its own."""
SEVERAL_ROWS = "this subquery can have several rows"
AGGREGATE_IT = "aggregate it without GROUP BY, let it end with LIMIT 1, or compare with ANY or ALL"


@dataclass(frozen=True, slots=True)
class Valued:
    """A plan with the values of subqueries as columns, its names, and expressions over it without these subqueries."""

    node: Node
    scope: Scope
    expressions: list[exp.Expr]


def values_in(expression: exp.Expr) -> Iterator[exp.Subquery]:
    """Yield the outermost subqueries of an expression that are values, in a fixed order."""
    if isinstance(expression, exp.Subquery):
        yield expression
    elif not isinstance(expression, (*QUERIES, *TESTS)):
        for slot, held in expression.args.items():
            for part in held if isinstance(held, list) else (held,):
                if isinstance(part, exp.Expr) and not (isinstance(expression, exp.In) and slot == "query"):
                    yield from values_in(part)


def test_of_rows_in(expression: exp.Expr) -> exp.Expr | None:
    """Return the first part of an expression that asks something of the rows of a query, by EXISTS, IN, ANY or ALL."""
    if isinstance(expression, TESTS) or (isinstance(expression, exp.In) and expression.args.get("query")):
        return expression
    if isinstance(expression, QUERIES):
        return None
    return next((found for part in expression.iter_expressions() if (found := test_of_rows_in(part)) is not None), None)


def with_values(node: Node, scope: Scope, expressions: Sequence[exp.Expr], subqueries: Subqueries) -> Valued:
    """Return a plan with a column for each subquery that is a value in some expressions; equal ones share theirs.

    Raises
    ------
    FjordSqlError
        If a subquery can have several rows, or not exactly one column.
    """
    found: list[exp.Expr] = []
    known: dict[exp.Expr, tuple[exp.Expr, str]] = {}
    operands: dict[str, Operand] = {}
    columns: list[ScopeColumn] = []
    context = subqueries.translator.context
    for expression in expressions:
        written = [*values_in(expression)]
        if not written:
            found.append(expression)
            continue
        holder = exp.Paren(this=expression.copy())
        for query, copied in zip(written, [*values_in(holder)], strict=True):
            if query not in known:
                operand = subqueries.operand(query, node, scope, value=True)
                # Names have no case, so texts that differ may be one subquery.
                name = next((name for name, each in operands.items() if each == operand), "")
                known[query] = query, name or Names(column.name for column in node.schema).unique("subquery")
                if not name:
                    column = _column(operand, known[query][1], query, context)
                    operands[column.name] = operand
                    node = _beside(node, operand, column)
                    columns.append(ScopeColumn("", column.name, column.type, column.unit))
            first, name = known[query]
            note_same_lifetimes(first, query, context)
            copied.replace(slot_for(name, query))
        found.append(holder.this)
    if columns:
        scope = replace(scope, items=(*scope.items, ScopeItem(None, tuple(columns))))
    return Valued(node, scope, found)


def _column(operand: Operand, name: str, query: exp.Expr, context: Context) -> Column:
    assert operand.value is not None  # noqa: S101 - called with value=True
    if not operand.single:
        raise context.error(query, SEVERAL_ROWS, "aggregate it without GROUP BY, or let it end with LIMIT 1")
    if operand.value.type is None:
        raise context.error(query, "NULL has no type here", "write CAST(NULL AS real)")
    return Column(name, operand.value.type, operand.value.unit)


def _beside(node: Node, operand: Operand, column: Column) -> Node:
    """Return a plan with a column more: the value of a subquery, NULL where that has no row."""
    assert operand.value is not None  # noqa: S101 - called with value=True
    kept = passed_on(node.schema)
    value = Output(column.name, scalar_of(operand.value, column.type), column.unit)
    predicate = conjunction([*operand.correlation]) if operand.correlation else None
    if reads_relations_only(operand.node):
        if plain_column(value.scalar) is not None:
            return project(Lookup(node, operand.node, predicate, "left"), (*kept, value))
        # Computed before it is looked up: of NULLs, COALESCE and NULLIF may make a value where there is no row.
        table = project(operand.node, (*passed_on(operand.node.schema), value))
        return project(Lookup(node, table, predicate, "left"), (*kept, *passed_on((column,))))
    pairs = project(Join(node, operand.node, predicate), (*kept, value))
    alone = AntiJoin(node, operand.node, predicate)
    return Union(pairs, project(alone, (*kept, Output(column.name, null_scalar(column), column.unit))))
