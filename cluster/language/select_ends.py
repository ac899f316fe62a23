"""The end of a SELECT: ranks and QUALIFY, its columns, DISTINCT, ORDER BY and LIMIT, in the order of their meaning.

**Ranks that a condition above them bounds: ``WHERE place <= 3`` over ``ROW_NUMBER() OVER (...) AS place``.**

    filter place <= 3                                   filter place <= 3
    `- project segment, speed, place            ->      `- project segment, speed, place
       `- keep if any ...                                  `- keep if any ...
          `- places by segment, in order                      `- places by segment, in order, up to 3

The condition stays where it is, so the meaning stays, too: rows with higher places would be removed further up. With
the bound, few rows of a group have to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
from sqlglot import exp

from cluster.language.expressions import Checker
from cluster.language.grouping import with_parts_replaced
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import BEFORE_OVER, OrderKey, RankCall, Slot, TopClause, own_columns, own_parts, slot_for
from cluster.language.typing_rules import scalar_of
from cluster.language.words import DISTINCT_ON
from cluster.operators import Distinct, KeptExtent, Node, Project, Ranked
from cluster.operators.columns import Column, Names, Ordering, Output
from cluster.operators.greatest_values import Greatest
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, passed_on, plain_column
from cluster.operators.walks import above, nodes_of
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cluster.language.context import Context
    from cluster.operators.columns import Scalar

MOST_ROWS = 2**60
"""The largest number of rows."""
_PLACE = "a number in ORDER BY is the place of a column in SELECT, from 1"
_VALUE = "a value is no key to order by", "name a column, or write its place in SELECT"
_LONGEST_PLACE = 9
"""The most digits of the number of a column."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of ORDER BY: the place of a column of the output from 0, or what it means otherwise."""

    written: OrderKey
    place: int | None = None
    meant: exp.Expr | None = None


def order_keys(keys: Iterable[OrderKey], names: Sequence[str], context: Context) -> list[Key]:
    """Return the keys of ORDER BY at the end of a query whose columns have these names.

    Raises
    ------
    FjordSqlError
        If a key is a value, or the place of no column.
    """
    places = {name.casefold(): place for place, name in reversed(list(enumerate(names)))}
    found: list[Key] = []
    for key in keys:
        value = key.this.unnest() if isinstance(key.this, exp.Paren) else key.this
        if isinstance(value, exp.Literal) and not value.is_string and value.this.isdigit():
            found.append(Key(key, _numbered(value, len(names), context)))
        elif isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal) and not context.registered:
            hint = f"{_PLACE}; DESC behind it reverses the order"
            raise context.error(value, f"there is no column -{value.this.this}", hint)
        elif isinstance(value, exp.Column) and not value.table and value.name.casefold() in places:
            found.append(Key(key, places[value.name.casefold()]))
        else:
            refuse_value(key.this, context)
            found.append(Key(key, meant=key.this))
    return found


def _numbered(number: exp.Literal, columns: int, context: Context) -> int:
    place = int(number.this) if len(number.this) <= _LONGEST_PLACE else 0
    if not 1 <= place <= columns:
        many = "1 column" if columns == 1 else f"{columns} columns"
        raise context.error(number, f"there is no column {number.this}: SELECT has {many}", _PLACE)
    return place - 1


def top_of_columns(node: Node, top: TopClause, context: Context) -> Node:
    """Return the first rows of a plan, ordered by its columns.

    Raises
    ------
    FjordSqlError
        If a key or a number of the clause is wrong.
    """
    schema = node.schema
    columns = tuple(ScopeColumn(each.name, each.name, each.type, each.unit) for each in schema)
    keys = order_keys(top.expressions, [each.name for each in schema], context)
    checker = Checker(Scope((ScopeItem(None, columns),)), context)
    return top_rows(node, passed_on(schema), keys, checker, top)


def top_rows(node: Node, outputs: Sequence[Output], keys: Iterable[Key], checker: Checker, top: TopClause) -> Node:
    """Return the first rows of a projection.

    Parameters
    ----------
    node, outputs
        The plan that is projected, and the columns. Rows with equal keys are ordered by these, from left to right.
    keys
        What rows are ordered by.
    checker
        A checker that knows the names of the plan, for keys that are expressions.
    top
        The clause.

    Raises
    ------
    FjordSqlError
        If a key or a number of the clause is wrong.
    """
    context = checker.context
    computed = Computed(outputs)
    order: list[Ordering] = []
    for key in keys:
        name = outputs[key.place].name if key.place is not None else computed.name_of(checked_key(key.meant, checker))
        order.append(ordering(key.written, name))
    names = {each.column for each in order}
    everything = {each.name for each in outputs} <= names
    known = {plain_column(each.scalar) for each in computed.outputs if each.name in names}
    unique = node.unique_columns
    if not everything and (unique is None or not unique <= known):
        warn_of_ties(top.expressions, context)
    offset, limit = (_count(top, part, context) for part in ("offset", "limit"))
    if limit == 0:
        context.warn("LIMIT 0 keeps no row: this query has no answers")
    above = offset or 0
    most = None if limit is None else min(above + limit, MOST_ROWS)
    below = project(node, computed.outputs)
    found = Ranked(below, (), once((*order, *map(_ascending, outputs))), above=above, most=most)
    return project(found, passed_on(Project(node, tuple(outputs)).schema))


class Computed:
    """The outputs of a projection, and others that are added where an expression is not among them."""

    def __init__(self, outputs: Iterable[Output]) -> None:
        self.outputs = list(outputs)
        self._taken = Names(each.name for each in self.outputs)
        self._names: dict[Scalar, str] = {}
        for each in self.outputs:
            self._names.setdefault(each.scalar, each.name)

    def name_of(self, scalar: Scalar, wanted: str = "order_key", unit: str = "") -> str:
        """Return the column with the value of an expression."""
        if scalar not in self._names:
            self._names[scalar] = name = self.fresh(wanted)
            self.outputs.append(Output(name, scalar, unit))
        return self._names[scalar]

    def fresh(self, wanted: str) -> str:
        """Return a name that no column has."""
        return self._taken.unique(wanted)


def refuse_value(key: exp.Expr, context: Context) -> None:
    """Refuse what is the same for all rows as a key to group or order by.

    Raises
    ------
    FjordSqlError
        If it is a value.
    """
    if isinstance(key.unnest() if isinstance(key, exp.Paren) else key, exp.Literal | exp.Boolean | exp.Null):
        raise context.error(key, *_VALUE)


def checked_key(value: exp.Expr | None, checker: Checker) -> Scalar:
    """Return what rows are ordered or grouped by, as plans hold it.

    Raises
    ------
    FjordSqlError
        If it is NULL, or no expression over the columns there are.
    """
    assert value is not None  # noqa: S101 - a key without a place has an expression
    typed = checker.check(value)
    if typed.type is None:
        raise checker.context.error(value, *_VALUE)
    return scalar_of(typed, typed.type)


def ordering(written: OrderKey, column: str) -> Ordering:
    """Return how a key orders rows by its column."""
    return Ordering(column, bool(written.args.get("desc")), bool(written.args.get("nulls_first")))


def once(order: Iterable[Ordering]) -> tuple[Ordering, ...]:
    """Return an order without columns that an earlier key has settled."""
    found: dict[str, Ordering] = {}
    for each in order:
        found.setdefault(each.column, each)
    return tuple(found.values())


def warn_of_ties(keys: Sequence[OrderKey], context: Context) -> None:
    """Warn that several rows may be equal in all keys of an order."""
    written = ", ".join(context.source_text(key) for key in keys)
    context.warn(
        f"rows that are equal in ORDER BY {written} are ordered by the columns of SELECT, from left to right: add keys "
        "that no two rows have in common if another order is meant"
    )


def _ascending(output: Output) -> Ordering:
    return Ordering(output.name)


def _count(top: TopClause, part: str, context: Context) -> int | None:
    """Return the number of LIMIT or OFFSET."""
    number = top.args.get(part)
    if number is None:
        return None
    if not number.this.isdigit():
        reason = f"{part.upper()} takes a whole number of rows, and {number.this} is none"
        raise context.error(number, reason, "write 10, for example")
    return min(int(number.this), MOST_ROWS)


OF_ONE_STAMP = (
    "{} numbers the tuples of one instant, because this stream has no window, and they all have the same stamp: for "
    "the latest tuple of each key, write WINDOW(PARTITION BY k ROWS 1), for the first one WINDOW(RANGE UNBOUNDED)"
)


def ranks_in(expression: exp.Expr) -> list[RankCall]:
    """Return the ranks in an expression, not those of its subqueries."""
    return own_parts(expression, RankCall)


def refuse_values(expression: exp.Expr, context: Context) -> None:
    """Refuse ranks that are grouped or ordered by a value.

    Raises
    ------
    FjordSqlError
        If there is one.
    """
    for call in ranks_in(expression):
        for key in (*(call.args.get("partition") or ()), *(each.this for each in call.expressions)):
            refuse_value(key, context)


class RankedRows:
    """A plan with the ranks that the expressions of a SELECT have, each in a column.

    Parameters
    ----------
    node, scope, context
        What is ranked, and its names.
    outputs
        The columns of SELECT without ranks: rows of equal order are ordered by these, from left to right.
    expressions
        All expressions over the ranks.

    Raises
    ------
    FjordSqlError
        If an order or a group is wrong.
    """

    def __init__(
        self, node: Node, scope: Scope, context: Context, outputs: Sequence[Output], expressions: Sequence[exp.Expr]
    ) -> None:
        self._checker = Checker(scope, context)
        self._computed = Computed(outputs)
        self._moved: dict[str, str] = {}
        self._unique = node.unique_columns
        calls = list(dict.fromkeys(call for each in expressions for call in ranks_in(each)))
        read = self._passed_on(expressions, scope, context)
        keyed = [self._keyed(call) for call in calls]
        if node.is_instantaneous:
            self._warn_of_stamps(calls)
        ties = [each.name for each in outputs] + read
        ties += [name for groups, order in keyed for name in (*groups, *(each.column for each in order))]
        self.node = project(node, self._computed.outputs)
        self._ranks: dict[exp.Expr, str] = {}
        places: list[ScopeColumn] = []
        for call, (groups, order) in zip(calls, keyed, strict=True):
            function = call.args["kind"].lower()
            name = self._computed.fresh(function)
            if function == "row_number":
                self._check_ties(call, groups, order)
            whole = once((*order, *map(Ordering, ties))) if function == "row_number" else order
            self.node = Ranked(self.node, groups, whole, function, name=name)
            self._ranks[call] = name
            places.append(ScopeColumn("", name, FieldType.INTEGER, nullable=False))
        self.scope = self._moved_scope(scope, places)

    def over(self, expression: exp.Expr) -> exp.Expr:
        """Return an expression over the columns of the plan with the ranks."""

        def replaced(part: exp.Expr) -> exp.Expr:
            if isinstance(part, RankCall):
                return slot_for(self._ranks[part], part)
            if isinstance(part, Slot) and part.this in self._moved:
                return slot_for(self._moved[part.this], part)
            return part

        return with_parts_replaced(expression, replaced)

    def _passed_on(self, expressions: Iterable[exp.Expr], scope: Scope, context: Context) -> list[str]:
        """Pass on the columns that expressions over ranks read; return what they are called."""
        # What bounds the interval of a row has no name in the text.
        bounds = {column.internal: column for item in scope.items for column in item.bounds}
        by_name = bounds | {column.internal: column for column in scope.columns}
        beside = [_without_ranks(each) for each in expressions]
        internal = [
            *(part.this for each in beside for part in each.find_all(Slot)),
            *(scope.find(part, context).internal for each in beside for part in own_columns(each)),
        ]
        for item in scope.items:
            if item.validity and not {*item.validity}.isdisjoint(internal):
                internal += item.validity  # both, whichever is read first
        for name in dict.fromkeys(internal):
            column = by_name[name]
            scalar = column_scalar(Column(name, column.type))
            self._moved[name] = self._computed.name_of(scalar, name, column.unit)
        return list(self._moved.values())

    def _moved_scope(self, scope: Scope, places: Sequence[ScopeColumn]) -> Scope:
        """Return the names of what is passed on, and the ranks."""
        items = [
            replace(item, columns=tuple(column for column in item.columns if column.internal in self._moved))
            for item in scope.items
        ]
        known = replace(scope, items=tuple(items), starring=None).renamed(self._moved)
        return replace(known, items=(*known.items, ScopeItem(None, tuple(places))))

    def _keyed(self, call: RankCall) -> tuple[tuple[str, ...], tuple[Ordering, ...]]:
        """Return the columns of a rank's groups, and its order."""
        groups = [self._column(each, "group_key") for each in call.args.get("partition") or ()]
        order = [ordering(key, self._column(key.this, "order_key")) for key in call.expressions]
        return tuple(dict.fromkeys(groups)), once(order)

    def _column(self, value: exp.Expr, wanted: str) -> str:
        return self._computed.name_of(checked_key(value, self._checker), wanted)

    def _warn_of_stamps(self, calls: Iterable[RankCall]) -> None:
        """Warn of an order by the stamp where all rows of a snapshot have the same."""
        checker = self._checker
        for call in calls:
            key = call.expressions[0].this if call.expressions else None
            if isinstance(key, exp.Column) and checker.scope.find(key, checker.context).is_stamp:
                checker.context.warn(OF_ONE_STAMP.format(call.args["kind"]))

    def _check_ties(self, call: RankCall, groups: tuple[str, ...], order: tuple[Ordering, ...]) -> None:
        names = {*groups, *(each.column for each in order)}
        known = {plain_column(each.scalar) for each in self._computed.outputs if each.name in names}
        if self._unique is None or not self._unique <= known:
            warn_of_ties(call.expressions, self._checker.context)


def _without_ranks(expression: exp.Expr) -> exp.Expr:
    return with_parts_replaced(expression, lambda part: exp.Null() if isinstance(part, RankCall) else part)


@dataclass(frozen=True, slots=True)
class SelectEnd:
    """What is left of a SELECT once its rows are joined, filtered and grouped.

    Parameters
    ----------
    select
        The SELECT.
    names
        What its columns are called.
    bodies
        Their expressions.
    qualify
        The condition of QUALIFY, if there is one.
    keys
        What ORDER BY orders by.
    """

    select: exp.Select
    names: tuple[str, ...]
    bodies: tuple[exp.Expr, ...]
    qualify: exp.Expr | None = None
    keys: tuple[Key, ...] = ()

    @property
    def expressions(self) -> list[exp.Expr]:
        """All expressions over the rows."""
        own = [key.meant for key in self.keys if key.meant is not None]
        return [*self.bodies, *([self.qualify] if self.qualify is not None else []), *own]

    def over(self, expressions: list[exp.Expr]) -> SelectEnd:
        """Return the same end with other expressions in place of its own, in their order."""
        count = len(self.bodies)
        left = expressions[count:]
        qualify = left.pop(0) if self.qualify is not None else None
        keys = [replace(key, meant=None if key.meant is None else left.pop(0)) for key in self.keys]
        return replace(self, bodies=tuple(expressions[:count]), qualify=qualify, keys=tuple(keys))


def ended(
    end: SelectEnd, node: Node, scope: Scope, context: Context, restrict: Callable[[Node, Scope, list[exp.Expr]], Node]
) -> Node:
    """Return the plan of a SELECT.

    Parameters
    ----------
    end
        What is left of it.
    node, scope
        Its rows, and their names.
    context
        For errors and warnings.
    restrict
        Returns the rows that meet conditions.

    Raises
    ------
    FjordSqlError
        If an expression is wrong.
    """
    select = end.select
    distinct, top = select.args.get("distinct"), select.args.get("top")
    if distinct is not None and distinct.args.get("on"):
        raise context.error(distinct, *DISTINCT_ON)
    plain = {place: each for place, each in enumerate(end.bodies) if not ranks_in(each)}
    outputs = _outputs(plain, end, Checker(scope, context))
    ranked = [each for each in end.expressions if ranks_in(each)]
    if end.qualify is not None and not ranked:
        if end.qualify.find(*BEFORE_OVER):
            Checker(scope, context).check(end.qualify)  # that OVER is missing is a better reason
        reason = "QUALIFY is a condition on places such as ROW_NUMBER() OVER (ORDER BY speed), and this query has none"
        raise context.error(end.qualify, reason, "conditions on rows belong into WHERE, those on groups into HAVING")
    if ranked:
        over_ranks = [each for place, each in enumerate(end.expressions) if place not in plain]
        rows = RankedRows(node, scope, context, list(outputs.values()), over_ranks)
        node, scope = rows.node, rows.scope
        end = end.over([each if place in plain else rows.over(each) for place, each in enumerate(end.expressions)])
        if end.qualify is not None:
            node = restrict(node, scope, [end.qualify])
        passed = {place: _passed_on(output) for place, output in outputs.items()}
        others = {place: each for place, each in enumerate(end.bodies) if place not in plain}
        outputs = {**passed, **_outputs(others, end, Checker(scope, context))}
    columns = [outputs[place] for place in range(len(end.bodies))]
    if distinct is None and top is not None:
        return top_rows(node, columns, end.keys, Checker(scope, context), top)
    node = project(node, columns)
    if distinct is not None:
        node = Distinct(node)
    return node if top is None else top_of_columns(node, top, context)


def _passed_on(output: Output) -> Output:
    """Return the output that passes on the column of another one."""
    return Output(output.name, column_scalar(Column(output.name, output.scalar.type)), output.unit)


def _outputs(bodies: dict[int, exp.Expr], end: SelectEnd, checker: Checker) -> dict[int, Output]:
    found: dict[int, Output] = {}
    for place, body in bodies.items():
        typed = checker.check(body)
        if typed.type is None:
            raise checker.context.error(body, "NULL has no type here", "write CAST(NULL AS real)")
        found[place] = Output(end.names[place], scalar_of(typed, typed.type), typed.unit)
    return found


def with_rank_bounds(node: Node) -> Node:
    """Return a plan whose ranks have the bounds that conditions above them give; it means the same."""
    return _Bounding().bounded(node, {})


class _Bounding:
    """Remembers what has been found out about parts of a plan that several others share."""

    def __init__(self) -> None:
        self._done: dict[tuple[int, frozenset[tuple[str, int]]], tuple[Node, Node]] = {}

    def bounded(self, node: Node, bounds: Greatest) -> Node:
        """Return a plan of which only rows within bounds are asked for."""
        bounds = {name: bounds[name] for name in _names(node) if name in bounds} if bounds else bounds
        key = (id(node), frozenset(bounds.items()))
        if key not in self._done:
            below = node.greatest_below(bounds)
            inputs = tuple([self.bounded(each, known) for each, known in zip(node.inputs, below, strict=True)])
            self._done[key] = (node, _ranked(above(node, inputs), bounds))
        return self._done[key][-1]


def _ranked(node: Node, bounds: Greatest) -> Node:
    if not isinstance(node, Ranked) or node.name is None or node.name not in bounds:
        return node
    most = max(bounds[node.name], 0)
    return node if node.most is not None and node.most <= most else msgspec.structs.replace(node, most=most)


def _names(node: Node) -> list[str]:
    return [column.name for column in node.schema]


def unparenthesised(query: exp.Expr) -> exp.Expr:
    """Return the SELECT whose rows are those of a query."""
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query


def quality_shown(
    select: exp.Select, items: Sequence[exp.Expr], scope: Scope, context: Context, *, grouped: bool
) -> exp.Expr | None:
    """Return the quality of the rows of a query, the last column of what is shown; None if its author shows it.

    It is that of the worst of the rows that are joined, and in a group of the worst of all. Parts of a query have no
    such column, and neither has DISTINCT, which would make several rows of one. What a subquery is compared with is not
    shown.
    """
    found = [column for item in scope.items for column in item.columns if item.quality == column.internal]
    if not found:
        return None
    names = {column.visible.casefold() for column in found} | {column.internal for column in found}
    parts = (part for item in items for part in item.walk(prune=lambda part: isinstance(part, exp.Query)))
    if any(isinstance(part, exp.Column | Slot) and part.name.casefold() in names for part in parts):
        context.qualities.update(names)
        return None
    if select is not context.outermost or select.args.get("distinct"):
        return None
    context.qualities.update(names)
    first, *others = [slot_for(column.internal, select) for column in found]
    worst = exp.Least(this=first, expressions=others) if others else first
    return exp.Min(this=worst) if grouped else worst


def warn_of_hidden_quality(node: Node, context: Context) -> None:
    """Warn of a query that may drop tuples, and whose rows do not show it."""
    if not context.qualities and any(isinstance(each, KeptExtent) for each in nodes_of(node)):
        context.warn("the rows of this query do not show what KEEP has dropped: select quality where COALESCE stands")
