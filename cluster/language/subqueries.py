"""Subqueries in conditions and as values, and those that refer to a query further out.

**Subqueries of conditions: the right side of a semi-join or anti-join.**

A subquery is *correlated* when a condition of its WHERE names a column of the query around it. Such conditions leave
the subquery and join the predicate; the rest of it is translated as a query of its own.

**Subqueries that refer past the query directly around them, to one further out.**

    SELECT * FROM a WHERE EXISTS (SELECT * FROM b WHERE b.x = a.x AND
                                  NOT EXISTS (SELECT * FROM c WHERE c.x = b.x AND c.y = a.y))

The query between is joined with what is referred to of the outermost one. Its conditions, subqueries among them, are
about these pairs then, one level out; and a tuple of the outermost query has the rows of the pairs with its own values.

**Subqueries as values: wherever an expression may stand, a subquery of one row and one column may, too.**

    SELECT speed - (SELECT AVG(speed) FROM traffic WINDOW(RANGE 1 HOUR)) FROM traffic

Its value becomes a column of the plan below the expression, by an outer join: at every instant there is at most one
row, and where there is none the value is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.acquisition import note_same_lifetimes
from cluster.language.expressions import COMPARISONS, Checker
from cluster.language.grouping import aggregates_in, group, with_parts_replaced
from cluster.language.scope import Scope, ScopeColumn, ScopeItem, is_star, shown_by_star
from cluster.language.syntax import (
    QUERIES,
    Slot,
    Validity,
    bounds_of,
    conjuncts,
    holds_query,
    own_columns,
    own_parts,
    slot_for,
)
from cluster.language.typing_rules import Typed, conjunction, scalar_of
from cluster.language.validities import both_ends
from cluster.operators import AntiJoin, Distinct, Join, Lookup, Node, Union
from cluster.operators.columns import Column, Names, Output
from cluster.operators.projections import project, reads_relations_only, renamed_apart
from cluster.operators.scalar_expressions import column_scalar, null_scalar, passed_on, plain_column
from cluster.scalars.scalar_function import Family

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
