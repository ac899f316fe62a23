"""Subqueries of conditions: the right side of a semi-join or anti-join.

A subquery is *correlated* when a condition of its WHERE names a column of the query around it. Such conditions leave
the subquery and join the predicate; the rest of it is translated as a query of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.expressions import Checker
from cluster.language.further_out import further_out, paired
from cluster.language.grouping import aggregates_in, group, with_parts_replaced
from cluster.language.scope import ScopeColumn, ScopeItem
from cluster.language.stars import is_star, shown_by_star
from cluster.language.syntax import Slot, conjuncts, holds_query, own_columns, slot_for
from cluster.language.typing_rules import Typed
from cluster.language.validities import both_ends
from cluster.operators import Node
from cluster.operators.projections import renamed_apart
from cluster.scalars.scalar_function import Family

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.language.context import Context
    from cluster.language.from_items import SelectTranslator
    from cluster.language.scope import Scope


@dataclass(frozen=True, slots=True)
class Operand:
    """The right side of a semi-join or anti-join.

    Parameters
    ----------
    node
        Its plan; no column has the name of one on the left.
    value
        The one column that the subquery selects, or None if only the existence of rows is tested.
    correlation
        Conditions over both sides.
    single
        True if at most one row matches any tuple on the left.
    """

    node: Node
    value: Typed | None
    correlation: tuple[exp.Expr, ...]
    single: bool


@dataclass(frozen=True, slots=True)
class Subqueries:
    """Translates the subqueries of conditions."""

    translator: SelectTranslator

    def operand(self, query: exp.Expr, left: Node, outer: Scope, *, value: bool) -> Operand:
        """Return `query` as the right side of a join with `left`.

        Raises
        ------
        FjordSqlError
            If `value` is true and it does not select exactly one column, or it is correlated in a way that cannot be
            decorrelated.
        """
        key = (id(query), id(left))
        known = self.translator.context.operands
        if key not in known:
            known[key] = (query, left, self._operand(query, left, outer, value=value))
        found: Operand = known[key][-1]
        return found

    def _operand(self, query: exp.Expr, left: Node, outer: Scope, *, value: bool) -> Operand:
        whole, translator = query, self.translator
        while isinstance(query, exp.Subquery | exp.Paren):
            translator, query = translator.knowing(query), query.this
        if isinstance(query, exp.Select) and query.args.get("from_"):
            translator = translator.knowing(query)
            node, scope = translator.from_clause(query)
            inside, across = self._split_where(query, replace(scope, outer=outer))
            references = further_out(query, scope, outer, translator)
            # Conditions with subqueries of their own cannot be the predicate of a join.
            held = [column for each in across if holds_query(each) for column in own_columns(each)]
            references += [each for each in held if scope.yields(each, outer) and not scope.knows(each)]
            if references:
                _refuse_top(whole, references[0], translator.context)
                inner = Subqueries(translator)
                return inner.paired(query, (left, outer), (node, scope), (inside, across), references, value=value)
            if across:
                _refuse_top(whole, across[0], translator.context)
                inner = Subqueries(translator)
                return inner.correlated(query, left, outer, (node, scope), (inside, across), value=value)
        context = self.translator.context
        node = self.translator.query(whole)
        columns = node.schema
        if value and len(columns) != 1:
            raise context.error(query, f"this subquery must select one column, but selects {len(columns)}")
        certain = columns[0].name in node.never_null
        single = node.single_row or _is_one_group(query)
        node, _ = renamed_apart(node, [column.name for column in left.schema])
        column = node.schema[0]
        reference = exp.column(column.name, quoted=True)
        found = Typed(reference, column.type, column.unit, nullable=not certain) if value else None
        return Operand(node, found, (), single)

    def _split_where(self, select: exp.Select, scope: Scope) -> tuple[list[exp.Expr], list[exp.Expr]]:
        where = select.args.get("where")
        inside: list[exp.Expr] = []
        across: list[exp.Expr] = []
        for condition in conjuncts(where.this) if where else ():
            own = [each for each in own_columns(condition) if not scope.knows(each)]
            correlated = any(scope.yields(each, scope.outer) for each in own)
            (across if correlated else inside).append(condition)
        return inside, across

    def correlated(
        self,
        select: exp.Select,
        left: Node,
        outer: Scope,
        source: tuple[Node, Scope],
        conditions: tuple[list[exp.Expr], list[exp.Expr]],
        *,
        value: bool,
    ) -> Operand:
        """Return a subquery that refers to the query around it; `conditions` are its own, then those that refer."""
        context = self.translator.context
        node, scope = source
        inside, across = conditions
        _refuse_groups(select, across[0], context)
        node = self.translator.restrict(node, scope, inside)
        items = self._items(select, node, replace(scope, outer=outer), value=value)
        aggregated = value and bool(aggregates_in(items[0]))
        if aggregated:
            node, scope, items, across = self._aggregated(node, scope, items, across)
        node, names = renamed_apart(node, [column.name for column in left.schema])
        items, across = ([_slots_renamed(each, names) for each in part] for part in (items, across))
        joint = Checker(replace(scope.renamed(names), outer=outer), context)
        correlation = tuple(joint.check_as(each, Family.BOOLEAN).expression for each in across)
        found = Checker(scope.renamed(names), context).check(items[0]) if value else None
        return Operand(node, found, correlation, aggregated)

    def paired(
        self,
        select: exp.Select,
        around: tuple[Node, Scope],
        source: tuple[Node, Scope],
        conditions: tuple[list[exp.Expr], list[exp.Expr]],
        references: list[exp.Column],
        *,
        value: bool,
    ) -> Operand:
        """Return a subquery whose own subqueries refer to the query around it, by `references`."""
        context = self.translator.context
        inside, across = conditions
        _refuse_groups(select, references[0], context)
        aggregated = value and any(map(aggregates_in, select.expressions))
        pairs = paired(source, around, references, across, context, once=aggregated)
        node = self.translator.restrict(pairs.node, pairs.scope, [*across, *inside])
        items, scope = self._items(select, node, pairs.scope, value=value), source[1]
        if aggregated:
            values = tuple(
                ScopeColumn("", each.name, each.type, each.unit)
                for each in node.schema
                if each.name in pairs.names.values()
            )
            scope = replace(scope, items=(*scope.items, ScopeItem(None, values)))
            keys = [slot_for(each.internal, select) for each in values]
            grouped = group(node, scope, context, keys=keys, expressions=items)
            node, scope, items = grouped.node, grouped.scope, [*grouped.expressions]
        node, names = renamed_apart(node, [column.name for column in around[0].schema])
        items = [_slots_renamed(each, names) for each in items]
        found = Checker(scope.renamed(names), context).check(items[0]) if value else None
        return Operand(node, found, pairs.equal, aggregated)

    def _items(self, select: exp.Select, node: Node, scope: Scope, *, value: bool) -> list[exp.Expr]:
        """Return what a subquery selects."""
        context = self.translator.context
        expanded = select.expressions if value else [end for each in select.expressions for end in both_ends(each)]
        items = [each.this if isinstance(each, exp.Alias) else each for each in expanded]
        if value and (len(items) != 1 or isinstance(items[0], exp.Star)):
            raise context.error(select, f"this subquery must select one column, but selects {len(items)}")
        if not value:
            if not items:
                raise context.error(select, "nothing is selected")
            self._check_items(items, node, scope)
        return items

    def _check_items(self, items: list[exp.Expr], node: Node, scope: Scope) -> None:
        """Refuse expressions that cannot be selected, although EXISTS needs only rows."""
        context = self.translator.context
        for item in items:
            if is_star(item):
                shown_by_star(item, scope, context)
                continue
            grouped = group(node, scope, context, keys=[], expressions=[item]) if aggregates_in(item) else None
            checked, known = (grouped.expressions[0], grouped.scope) if grouped else (item, scope)
            Checker(known, context).check(checked)

    def _aggregated(
        self, node: Node, scope: Scope, items: list[exp.Expr], across: list[exp.Expr]
    ) -> tuple[Node, Scope, list[exp.Expr], list[exp.Expr]]:
        """Return the aggregate for each value to which tuples on the left can refer, and the conditions for that."""
        context = self.translator.context
        keys: list[exp.Expr] = []
        outer: list[tuple[int, exp.Expr]] = []
        for condition in across:
            sides = [condition.this, condition.expression] if isinstance(condition, exp.EQ) else []
            inner = [side for side in sides if own_columns(side) and all(map(scope.knows, own_columns(side)))]
            if len(inner) != 1:
                raise context.error(
                    condition,
                    "an aggregated subquery can refer to the query around it only by equality",
                    "WHERE inner.column = outer.column",
                )
            outer.append((len(keys), sides[1] if inner[0] is sides[0] else sides[0]))
            keys.append(inner[0])
        grouped = group(node, scope, context, keys=keys, expressions=[*items, *keys])
        item, *slots = grouped.expressions
        wanted = [exp.EQ(this=slots[index], expression=other) for index, other in outer]
        return grouped.node, grouped.scope, [item], list(wanted)


def _slots_renamed(expression: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    """Return `expression` after columns of the plan were renamed (old to new)."""

    def renamed(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, Slot) or part.this not in names:
            return part
        slot = part.copy()
        slot.set("this", names[part.this])
        return slot

    return with_parts_replaced(expression, renamed)


def _refuse_groups(select: exp.Select, across: exp.Expr, context: Context) -> None:
    """Refuse GROUP BY, HAVING and QUALIFY where a subquery refers to the query around it."""
    if select.args.get("group") or select.args.get("having"):
        raise context.error(
            across,
            "a subquery that is grouped cannot refer to the query around it",
            "group a subquery in FROM by the column it should match, and join it",
        )
    if qualify := select.args.get("qualify"):
        reason = "a subquery with QUALIFY cannot refer to the query around it"
        raise context.error(qualify.this, reason, "put the query with QUALIFY into FROM of this subquery")


def _refuse_top(query: exp.Expr, across: exp.Expr, context: Context) -> None:
    """Refuse LIMIT and QUALIFY where a subquery refers to the query around it."""
    while True:
        if any(query.args.get(part) for part in ("top", "qualify")):
            raise context.error(
                across,
                "a subquery with LIMIT or QUALIFY cannot refer to the query around it",
                "rank the rows by the column it should match: ROW_NUMBER() OVER (PARTITION BY column ORDER BY ...)",
            )
        if not isinstance(query, exp.Subquery | exp.Paren):
            return
        query = query.this


def _is_one_group(query: exp.Expr) -> bool:
    """Return whether a query aggregates all rows; conditions on the result, however they are planned, add no row."""
    if not isinstance(query, exp.Select) or query.args.get("group"):
        return False
    having = query.args.get("having")
    return any(aggregates_in(each) for each in (*query.expressions, *([having] if having else [])))
