"""SELECT and the set operations -> plan (papers/pipes_algebra.md sections 2.4 and 3)."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.nodes import Cast
from cluster.language.acquisition import LEAVE_OUT, OWN, with_lifetime
from cluster.language.catalog import CatalogError, DerivedStream
from cluster.language.coalescing import QUALITY, tuples_dropped_from
from cluster.language.conditions import Conditions
from cluster.language.context import Readings
from cluster.language.from_items import FromItem, Read, sample_item, tolerate, translate_item
from cluster.language.functions import AGGREGATES
from cluster.language.grouping import aggregates_in, function_name, group, with_parts_replaced
from cluster.language.grouping_keys import grouping_sets_of
from cluster.language.joins import join_items
from cluster.language.likely_mistakes import warn_of_lone_tuples, warn_of_rows_before, warn_of_short_windows
from cluster.language.over_functions import over_words
from cluster.language.scope import (
    MOST_COLUMNS,
    Scope,
    check_column_name,
    has_bare_alias,
    is_star,
    shown_by_star,
    stamps_read,
)
from cluster.language.select_ends import Key, SelectEnd, ended, order_keys, quality_shown, refuse_values, top_of_columns
from cluster.language.sequences import goes_by_order, sequenced
from cluster.language.stamp_conditions import with_interval_joins, with_temporal_windows
from cluster.language.stamp_joins import zip_items
from cluster.language.stream_item import StreamItem
from cluster.language.subqueries import Subqueries, with_values
from cluster.language.syntax import (
    QUERIES,
    ErrorBound,
    IntervalEnd,
    Over,
    RankCall,
    Slot,
    StampJoin,
    Within,
    ZipJoin,
    first_part,
    holds_query,
    spelled,
)
from cluster.language.typing_rules import TypeMismatchError, common_type
from cluster.language.validities import both_ends, intervals_read
from cluster.language.words import USING_SHAPE
from cluster.operators import Difference, Distinct, Intersection, Node, Union
from cluster.operators.columns import Column, Names, Output, Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar
from cluster.planning_budget import spend

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.scope import ScopeColumn
    from cluster.language.syntax import TopClause
    from protocols.wire.streams import FieldType


def combine(operation: exp.SetOperation, left: Node, right: Node, context: Context) -> Node:
    """Return the union, difference or intersection of two plans; columns match by position and are named by the left.

    Raises
    ------
    FjordSqlError
        If their columns do not match.
    """
    left, right = _aligned(operation, left, right, context)
    distinct = bool(operation.args.get("distinct"))
    match operation:
        case exp.Except():
            return Difference(Distinct(left), Distinct(right)) if distinct else Difference(left, right)
        case exp.Intersect():
            both: Node = Intersection(left, right)
        case _:
            both = Union(left, right)
    return Distinct(both) if distinct else both


def _aligned(operation: exp.SetOperation, left: Node, right: Node, context: Context) -> tuple[Node, Node]:
    ours, theirs = left.schema, right.schema
    if len(ours) != len(theirs):
        raise context.error(
            operation.expression, f"this query selects {len(theirs)} columns, but the first one {len(ours)}"
        )
    types: list[FieldType] = []
    for one, other in zip(ours, theirs, strict=True):
        try:
            found = common_type((one.type, other.type))
        except TypeMismatchError as mismatch:
            raise context.error(
                operation.expression, f"column {one.name!r} does not fit: {mismatch}", "convert one of them with CAST"
            ) from None
        assert found is not None  # noqa: S101 - columns have types
        types.append(found)
        if one.unit and other.unit and one.unit != other.unit:
            context.warn(f"column {one.name!r} mixes {one.unit} and {other.unit}")
    wanted = [
        Column(one.name, type_, one.unit or other.unit) for one, other, type_ in zip(ours, theirs, types, strict=True)
    ]
    return _shaped(left, wanted), _shaped(right, wanted)


def _shaped(node: Node, wanted: list[Column]) -> Node:
    return project(node, [_output(column, shape) for column, shape in zip(node.schema, wanted, strict=True)])


def _output(column: Column, shape: Column) -> Output:
    scalar = column_scalar(column)
    if column.type != shape.type:
        scalar = Scalar(Cast(scalar.expression, shape.type), shape.type)
    return Output(shape.name, scalar, shape.unit)


KNOWN_PARTS = {
    *("expressions", "distinct", "from_", "joins", "where", "group", "having", "qualify", "top", "with_"),
    *("sample", "keep", "lifetime"),
}
JOINS = ("INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER")
OWN_PARTS = ("with_", "lifetime", "top")
"""Clauses that an operand of a set operation may have."""


@dataclass(frozen=True, slots=True)
class Translator:
    """Translates queries within one context."""

    context: Context

    def query(self, query: exp.Expr) -> Node:
        """Return the plan of a query.

        Raises
        ------
        FjordSqlError
            If it cannot be resolved or typed, or is refused.
        """
        translator = self
        tops: list[TopClause] = []
        while isinstance(query, exp.Subquery | exp.Paren):
            tops += [top] if (top := query.args.get("top")) else []
            translator, query = translator.knowing(query), query.this
        node = translator.knowing(query).query_body(query)
        for top in reversed(tops):
            node = top_of_columns(node, top, self.context)
        return node

    def knowing(self, query: exp.Expr) -> Translator:
        """Return the translator that knows the names defined by the WITH of `query`, if it has one."""
        with_: exp.With | None = query.args.get("with_")
        return self if with_ is None else self._with_names(with_)

    def query_body(self, query: exp.Expr) -> Node:
        """Return the plan of a query whose WITH has been translated."""
        return self._lasting(self._body(query), query)

    def _lasting(self, node: Node, query: exp.Expr) -> Node:
        lifetime = query.args.get("lifetime")
        return with_lifetime(node, lifetime, self.context) if lifetime else node

    def _body(self, query: exp.Expr) -> Node:
        if isinstance(query, exp.SetOperation):
            return self._combined(query)
        if isinstance(query, exp.Select):
            return self._select(query)
        raise self.context.error(query, "a query was expected here", "SELECT ... FROM stream")

    def _combined(self, query: exp.SetOperation) -> Node:
        # Operands in a row are nested on the left of each other; this loop avoids recursion.
        operations = [query]
        while isinstance(query.this, exp.SetOperation) and not any(query.this.args.get(each) for each in OWN_PARTS):
            query = query.this
            operations.append(query)
        node = self.query(query.this)
        for operation in reversed(operations):
            extra = [name for name in ("by_name", "side", "kind", "on") if operation.args.get(name)]
            if extra:
                raise self.context.error(operation, f"{spelled(extra[0])} is not part of a set operation of FjordSQL")
            node = combine(operation, node, self.query(operation.expression), self.context)
        top = operations[0].args.get("top")
        return top_of_columns(node, top, self.context) if top else node

    def from_clause(self, select: exp.Select) -> tuple[Node, Scope]:
        """Return plan and names of FROM, with JOIN ... ON.

        Raises
        ------
        FjordSqlError
            If there is no FROM, or something in it is wrong.
        """
        # A subquery is translated twice: first to see whether it is correlated.
        key = (id(select), id(self.context.catalog))
        if key not in self.context.from_clauses:
            before = self.context.readings.count
            found = self._from_clause(select)
            readings = self.context.readings.count - before
            self.context.from_clauses[key] = (select, self.context.catalog, readings, found)
        node, scope = self.context.from_clauses[key][-1]
        return node, scope

    def _read_by_from(self, select: exp.Select) -> int:
        """Return how many streams a FROM that has been translated reads."""
        found: int = self.context.from_clauses[id(select), id(self.context.catalog)][-2]
        return found

    def _from_clause(self, select: exp.Select) -> tuple[Node, Scope]:
        first = select.args.get("from_")
        if first is None:
            raise self.context.error(select, "a query reads at least one stream", "SELECT ... FROM stream")
        if not isinstance(first.this, StreamItem):  # sqlglot makes a SELECT of VALUES
            hint = "SELECT ... FROM stream; x IN (1, 2) looks in a list of values"
            raise self.context.error(first, "a query was expected here", hint)
        joins: list[exp.Join] = select.args.get("joins") or []
        stamped = any(isinstance(call, exp.First | exp.Last) for part in _shown(select) for call in aggregates_in(part))
        named, names = stamps_read(select, self.context)
        stamped = stamped or named
        validities = intervals_read(select, self.context)
        syntax = [first.this, *(join.this for join in joins)]
        keep = tuples_dropped_from(select, syntax, self.context)
        read = Read(stamped, names, validities, keep)
        items = [translate_item(first.this, self, read), *(self._joined(join, read) for join in joins)]
        self._check_aliases(items, syntax)
        warn_of_short_windows(select, items, self.context)
        items = with_temporal_windows(items, syntax, select, self.context)
        for within in _own(select, Within):
            items = tolerate(items, joins, within, self.context)
        if sample := select.args.get("sample"):
            if not any(item.base for item in items):
                raise self.context.error(sample, "no stream of this FROM is fed by sensors")
            sampled = [sample_item(item, sample, self.context) for item in items]
            if all(map(operator.is_, sampled, items)):
                self.context.refuse_ignored(sample, OWN.format("of this FROM", "SAMPLE"), LEAVE_OUT)
            items = sampled
        joins = with_interval_joins(items, joins, select, self.context)
        items, joins = zip_items(items, syntax, joins, self.context)
        node, scope, conditions = join_items(items, joins, self.context, self.restrict)
        # A correlated subquery is translated part by part, from here.
        node = self._lasting(node, select)
        return self.restrict(node, scope, conditions), scope

    def restrict(self, node: Node, scope: Scope, conditions: list[exp.Expr]) -> Node:
        """Return the tuples of `node` for which all `conditions` are true."""
        for condition in conditions:
            node = Conditions(scope, self.context, Subqueries(self)).select(node, condition)
        return node

    def _with_names(self, with_: exp.With) -> Translator:
        if with_.args.get("recursive"):
            hint = "a query cannot read its own answer: join as many times as there are steps"
            raise self.context.error(with_, "WITH RECURSIVE is not part of FjordSQL", hint)
        translator = self
        for named in with_.expressions:
            columns = named.args["alias"].args.get("columns")
            if columns and not self.context.registered:
                reason = "a list of columns behind a name is not part of FjordSQL"
                raise self.context.error(columns[0], reason, "name the columns with AS in SELECT")
            # Expressions that no operator reads cost nothing; those that are read twice count twice.
            own = Translator(replace(translator.context, readings=Readings()))
            entry = DerivedStream(named.alias, own.query(named.this), readings=own.context.readings.count)
            try:
                catalog = translator.context.catalog.with_stream(entry)
            except CatalogError as error:
                raise self.context.error(named.args["alias"], error.message, "choose another name") from None
            translator = Translator(replace(translator.context, catalog=catalog))
        return translator

    def _joined(self, join: exp.Join, read: Read) -> FromItem:
        if isinstance(join, ZipJoin | StampJoin):
            return translate_item(join.this, self, read)
        words = [str(join.args[part]) for part in ("method", "side", "kind") if join.args.get(part)]
        if unknown := [word for word in words if word not in JOINS]:
            raise self.context.error(
                join.this,
                f"{' '.join(unknown)} JOIN is not part of FjordSQL",
                USING_SHAPE
                if "NATURAL" in unknown
                else "join with a comma and WHERE, or LEFT JOIN; [NOT] EXISTS tests whether there is a partner",
            )
        self._check_join(join)
        return translate_item(join.this, self, read)

    def _check_join(self, join: exp.Join) -> None:
        side, kind, on = (join.args.get(part) for part in ("side", "kind", "on"))
        using: list[exp.Expr] = join.args.get("using") or []
        if side and kind not in (None, "OUTER"):
            raise self.context.error(join.this, f"{side} {kind} JOIN is not part of FjordSQL", f"write {side} JOIN")
        if kind == "OUTER" and not side:
            raise self.context.error(join.this, "OUTER JOIN is not part of FjordSQL", "write LEFT, RIGHT or FULL JOIN")
        if kind == "CROSS" and (on or using):
            raise self.context.error(on or using[0], "CROSS JOIN takes no condition", "write JOIN ... ON a.x = b.x")
        if kind == "INNER" and not on and not using:
            raise self.context.error(
                join.this, "JOIN needs a condition", "write JOIN ... ON a.x = b.x; CROSS JOIN and the comma take none"
            )

    def _check_aliases(self, items: list[FromItem], syntax: list[exp.Expr]) -> None:
        seen: set[str] = set()
        for item, at in zip(items, syntax, strict=True):
            alias = (item.scope.alias or "").casefold()
            if alias and alias in seen:
                raise self.context.error(
                    at, f"FROM has two streams called {item.scope.alias!r}", "give one of them an alias"
                )
            seen.add(alias)

    def _select(self, select: exp.Select) -> Node:
        if extra := [name for name, value in select.args.items() if value and name not in KNOWN_PARTS]:
            at = first_part(select.args[extra[0]], select)
            raise self.context.error(at, f"{spelled(extra[0])} is not part of SELECT in FjordSQL")
        node, scope = self.from_clause(select)
        read = self.context.readings.count
        if where := select.args.get("where"):
            if calls := aggregates_in(where.this):
                reason = f"{function_name(calls[0])} cannot stand in WHERE"
                raise self.context.error(calls[0], reason, "conditions on aggregates belong into HAVING")
            node = self.restrict(node, scope, [where.this])
        items = self._expanded(select, scope)
        names = self._names(items, scope)
        bodies = [item.this if isinstance(item, exp.Alias) else item for item in items]
        if (quality := quality_shown(select, items, scope, self.context, grouped=_is_grouped(select))) is not None:
            names, bodies = [*names, Names(names).unique(QUALITY)], [*bodies, quality]
        having = select.args.get("having")
        grouping = grouping_sets_of(select, scope, bodies, names, self.context)
        conditions = [self._with_bodies(having.this, scope, bodies, names)] if having else []
        end = self._end(select, scope, bodies, names)
        shown = [*end.expressions, *conditions]
        calls = [call for each in shown for call in aggregates_in(each)]
        in_order = goes_by_order(end, self.context, grouped=grouping is not None or bool(calls))
        if having and grouping is None and not calls:
            raise self.context.error(having.this, "HAVING needs GROUP BY or an aggregate", "write WHERE")
        if grouping is not None or calls:
            keys, sets = (grouping.keys, grouping.sets) if grouping is not None else ((), None)
            # Each set is an aggregation of all tuples.
            read = self._read_by_from(select) + self.context.readings.count - read
            if sets is not None:
                self.context.add_readings((len(sets) - 1) * read, select.args["group"])
            warn_of_lone_tuples(select, node, calls, self.context)
            warn_of_rows_before(select, node, calls, self.context)
            node, scope, shown = self._with_aggregated_values(node, scope, shown)
            grouped = group(node, scope, self.context, keys=keys, expressions=shown, sets=sets)
            node, scope = grouped.node, grouped.scope
            count = len(end.expressions)
            end, conditions = end.over([*grouped.expressions[:count]]), [*grouped.expressions[count:]]
        node = self.restrict(node, scope, conditions)
        valued = with_values(node, scope, end.expressions, Subqueries(self))
        node, scope, end = valued.node, valued.scope, end.over(valued.expressions)
        if in_order:
            found = sequenced(node, scope, self.context, end.expressions)
            node, scope, end = found.node, found.scope, end.over([*found.expressions])
            if end.qualify is not None:
                node, end = self.restrict(node, scope, [end.qualify]), replace(end, qualify=None)
        return ended(end, node, scope, self.context, self.restrict)

    def _end(self, select: exp.Select, scope: Scope, bodies: list[exp.Expr], names: list[str]) -> SelectEnd:
        """Return what follows the groups of a SELECT; names that it defines are replaced by their expressions."""
        qualify, top = select.args.get("qualify"), select.args.get("top")
        if qualify is not None:
            qualify = self._with_bodies(qualify.this, scope, bodies, names)
        keys: list[Key] = []
        if top is not None and not select.args.get("distinct"):
            for key in order_keys(top.expressions, names, self.context):
                own = None if key.meant is None else self._with_bodies(key.meant, scope, bodies, names)
                keys.append(replace(key, meant=own))
        end = SelectEnd(select, tuple(names), tuple(bodies), qualify, tuple(keys))
        for each in end.expressions:
            refuse_values(each, self.context)
        return end

    def _with_aggregated_values(
        self, node: Node, scope: Scope, shown: list[exp.Expr]
    ) -> tuple[Node, Scope, list[exp.Expr]]:
        """Return a plan with the values of subqueries in aggregates as columns, its names, and what is shown."""
        if not any(holds_query(call) for each in shown for call in aggregates_in(each)):
            return node, scope, shown
        holders = [exp.Paren(this=each.copy()) for each in shown]
        calls = [call for holder in holders for call in aggregates_in(holder)]
        valued = with_values(node, scope, calls, Subqueries(self))
        for call, plain in zip(calls, valued.expressions, strict=True):
            call.replace(plain)
        return valued.node, valued.scope, [holder.this for holder in holders]

    def _with_bodies(self, condition: exp.Expr, scope: Scope, bodies: list[exp.Expr], names: list[str]) -> exp.Expr:
        """Return a condition on groups in which names defined by SELECT are replaced by their expressions."""
        given = {name.casefold(): body for body, name in zip(bodies, names, strict=True)}

        def replaced(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column) or part.table or scope.knows(part):
                return part
            body = given.get(part.name.casefold())
            return part if body is None else exp.Paren(this=body.copy())

        return with_parts_replaced(condition, replaced)

    def _expanded(self, select: exp.Select, scope: Scope) -> list[exp.Expr]:
        items: list[exp.Expr] = []
        starred = 0
        for item in select.expressions:
            if is_star(item):
                if select.args.get("group"):
                    raise self.context.error(item, "* cannot be selected from groups", "name keys and aggregates")
                columns = shown_by_star(item, scope, self.context)
                starred += len(columns)
                spend(len(columns))
                if starred > MOST_COLUMNS and not self.context.registered:
                    reason = f"* stands for more than {MOST_COLUMNS:,} columns in one SELECT, with those before it"
                    raise self.context.error(item, reason, "write * once, or name the columns you want")
                items.extend(_star(column, item) for column in columns)
            else:
                items.extend(both_ends(item))
        if not items:
            hint = "SELECT column, ... FROM stream, or SELECT * FROM stream"
            raise self.context.error(select.meta.get("word", select), "nothing is selected", hint)
        return items

    def _names(self, items: list[exp.Expr], scope: Scope) -> list[str]:
        names: list[str] = []
        taken = Names()
        for position, item in enumerate(items, start=1):
            if isinstance(item, exp.Alias):
                name = item.alias
                check_column_name(item.args["alias"], self.context)
                if has_bare_alias(item, self.context) and scope.is_other_column(item.this, name):
                    text, value = self.context.source_text(item), self.context.source_text(item.this)
                    self.context.warn(f"{text} is {value} under the name {name}: a comma may be missing")
                if name in taken:
                    raise self.context.error(item.args["alias"], f"two columns are called {name!r}")
                taken.add(name)
            else:
                name = taken.unique(self._default_name(item, position, scope))
            names.append(name)
        return names

    def _default_name(self, item: exp.Expr, position: int, scope: Scope) -> str:
        item = item.this if isinstance(item, Within) else item
        if isinstance(item, RankCall):
            return str(item.args["kind"]).lower()
        if isinstance(item, ErrorBound) and len(item.expressions) == 1:
            return f"error_bound_{self._default_name(item.expressions[0], position, scope)}"[:64]
        if isinstance(item, Slot) and (column := scope.of_plan(item.this)) is not None:
            return column.visible
        if isinstance(item, IntervalEnd):
            return f"valid_{item.word}"
        if isinstance(item, exp.Column):
            return scope.find(item, self.context).visible
        if isinstance(item, exp.Grouping):
            return "grouping"
        if isinstance(item, Over) and (words := over_words(item, scope, self.context)):
            return "_".join(words)[:64]
        item = item.this if isinstance(item, exp.Filter) else item
        function = AGGREGATES.get(type(item))
        if function is None:
            return f"column_{position}"
        argument = item.this
        distinct = isinstance(argument, exp.Distinct)
        argument = argument.expressions[0] if distinct and argument.expressions else argument
        argument = argument.this if isinstance(argument, Within) else argument
        words = [function.name, *(["distinct"] if distinct else [])]
        if isinstance(argument, exp.Column) and not isinstance(argument.this, exp.Star):
            words.append(scope.find(argument, self.context).visible)
        return "_".join(words)[:64]


def _star(column: ScopeColumn, at: exp.Expr) -> Slot:
    slot = Slot(this=column.internal)
    slot.parent = at.parent
    for key in ("start", "end"):
        if key in at.meta:
            slot.meta[key] = at.meta[key]
    return slot


def _shown(select: exp.Select) -> list[exp.Expr]:
    """Return the parts of SELECT in which aggregates can stand."""
    ends = [found.this for part in ("having", "qualify") if (found := select.args.get(part))]
    top = select.args.get("top")
    return [*select.expressions, *ends, *(top.expressions if top else ())]


def _is_grouped(select: exp.Select) -> bool:
    return select.args.get("group") is not None or any(aggregates_in(part) for part in _shown(select))


def _own(expression: exp.Expr, kind: type[Within]) -> list[Within]:
    """Return the parts of `expression` of that kind, except those in subqueries."""
    found: list[Within] = []
    for child in expression.iter_expressions():
        if isinstance(child, kind):
            found.append(child)
        elif not isinstance(child, QUERIES):
            found.extend(_own(child, kind))
    return found
