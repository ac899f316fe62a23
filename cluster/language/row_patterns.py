"""MATCH_RECOGNIZE: the matches of a pattern in the rows of each partition -> plan.

**Expressions of MATCH_RECOGNIZE: what they ask of other rows becomes a column, and the rest is as everywhere.**

B.speed < LAST(A.speed) / 2       in DEFINE B:    "speed" < "fjord_reach_0" / 2, fjord_reach_0 being the last of A
PREV(speed) > speed               in DEFINE A:    "fjord_lag_0" > "speed"
COUNT(B.speed) + 1                in MEASURES:    "fjord_reach_1" + 1
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions.walks import columns_read
from cluster.language.errors import suggest
from cluster.language.expressions import Checker
from cluster.language.functions import AGGREGATES, UNBOUNDED_AGGREGATES
from cluster.language.grouping import aggregate_call, function_name, with_parts_replaced
from cluster.language.quantities import duration_us, read_quantity
from cluster.language.scope import Scope, ScopeColumn, ScopeItem, check_column_name
from cluster.language.stream_item import reshaping
from cluster.language.syntax import (
    PATTERN_SHAPE,
    SKIP_SHAPES,
    WITHIN_SHAPE,
    Completeness,
    ErrorBound,
    Navigation,
    RowPatternClause,
    SkipClause,
    conjuncts,
    own_columns,
    slot_for,
)
from cluster.language.typing_rules import conjunction, scalar_of
from cluster.operators import Node, PatternMatch
from cluster.operators.columns import Column, Names, Output, Scalar
from cluster.operators.pattern_match import INSTANT, Definition, Lag, PatternElement, Reach, RowPattern, Skip, SkipKind
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import column_scalar, passed_on
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.language.context import Context
    from cluster.language.typing_rules import Typed

_NO_AGGREGATES: tuple[type[exp.Expr], ...] = (Completeness, ErrorBound, exp.Grouping, *UNBOUNDED_AGGREGATES)


@dataclass
class RowExpressions:
    """Checks the expressions of one clause, and collects what they ask of other rows.

    Parameters
    ----------
    scope
        The columns of a row.
    variables
        The variables of the pattern, by folded name.
    context
        For errors.
    """

    scope: Scope
    variables: Mapping[str, str]
    context: Context
    _lags: dict[tuple[Scalar, int], Lag] = field(default_factory=dict)
    _reaches: dict[Reach, Reach] = field(default_factory=dict)
    _added: list[ScopeColumn] = field(default_factory=list)

    @property
    def lags(self) -> tuple[Lag, ...]:
        """What was asked of rows before others."""
        return tuple(self._lags.values())

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What was asked about the rows of variables."""
        return tuple(self._reaches.values())

    @property
    def read(self) -> frozenset[str]:
        """The columns that are read of rows."""
        return frozenset(self._read)

    def __post_init__(self) -> None:
        """Begin with nothing read."""
        self._read: set[str] = set()

    def condition(self, written: exp.Expr, variable: str) -> tuple[Scalar | None, Scalar | None]:
        """Return what a variable's condition asks of the row itself, and of the rows before it.

        Raises
        ------
        FjordSqlError
            If it is no condition, or a name in it is unknown.
        """
        row: list[exp.Expr] = []
        reaching: list[exp.Expr] = []
        for part in conjuncts(written):
            typed = self._checked(self._over_columns(part, variable), Family.BOOLEAN)
            (reaching if self._reaches_out(typed) else row).append(typed.expression)
        return (conjunction(row) if row else None), (conjunction(reaching) if reaching else None)

    def measure(self, written: exp.Expr) -> Typed:
        """Return an expression about a match.

        Raises
        ------
        FjordSqlError
            As :meth:`condition`.
        """
        return self._checked(self._over_columns(written, None), Family.ANY)

    def _checked(self, expression: exp.Expr, family: Family) -> Typed:
        items = (*self.scope.items, ScopeItem(None, tuple(self._added)))
        typed = Checker(Scope(items), self.context).check_as(expression, family)
        own = {column.internal for column in self._added}
        self._read |= columns_read(scalar_of(typed, FieldType.BOOLEAN).expression) - own
        return typed

    def _reaches_out(self, typed: Typed) -> bool:
        names = {reach.name for reach in self._reaches.values()}
        return bool(columns_read(scalar_of(typed, FieldType.BOOLEAN).expression) & names)

    def _over_columns(self, written: exp.Expr, variable: str | None) -> exp.Expr:
        """Return an expression over columns of the row and those added; `variable` is the one that is defined."""

        def replaced(part: exp.Expr) -> exp.Expr:
            if isinstance(part, Navigation):
                return self._navigated(part, variable)
            if (
                isinstance(part, exp.Filter | ErrorBound | exp.Grouping)
                or type(part) in AGGREGATES
                or isinstance(part, UNBOUNDED_AGGREGATES)
            ):
                return self._aggregated(part)
            if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
                asked = self._variable_of(part)
                if variable is not None and asked in (None, variable):
                    return _bare(part)
                return self._reach(Reach("", "last", asked, self._row_scalar(_bare(part))), part)
            return part

        return with_parts_replaced(written, replaced)

    def _navigated(self, part: Navigation, variable: str | None) -> exp.Expr:
        kind, inner = part.args["kind"], part.this
        for call in inner.find_all(Navigation, *AGGREGATES):
            raise self.context.error(call, f"{kind} is about the columns of a row, and nothing else can stand in it")
        asked = self._asked(inner, part, kind)
        given = part.args.get("offset")
        offset = int(given.this) if given is not None else int(kind == "PREV")
        row = with_parts_replaced(inner, lambda each: _bare(each) if isinstance(each, exp.Column) else each)
        own = variable is not None and asked in (None, variable)
        if kind == "PREV" and offset:
            lag = self._lag(self._row_scalar(row), offset)
            if own:
                return slot_for(lag.name, part)
            return self._reach(Reach("", "last", asked, column_scalar(Column(lag.name, lag.scalar.type))), part)
        if own and kind != "FIRST" and not offset:
            return exp.Paren(this=row)
        scalar = self._row_scalar(row)
        return self._reach(Reach("", "first" if kind == "FIRST" else "last", asked, scalar, offset), part)

    def _aggregated(self, part: exp.Expr) -> exp.Expr:
        call = part.this if isinstance(part, exp.Filter) else part
        if isinstance(call, _NO_AGGREGATES):
            raise self.context.error(part, f"{function_name(call)} cannot stand in MATCH_RECOGNIZE")
        for inner in part.find_all(Navigation):
            reason = (
                f"{function_name(call)} is about the rows of a variable, and {inner.args['kind']} cannot stand in it"
            )
            raise self.context.error(inner, reason)
        counted = call.this if isinstance(call, exp.Count) else None
        everything = isinstance(counted, exp.Star) and not own_columns(part)
        asked = None if everything else self._asked(part, part, function_name(call))

        def bare(each: exp.Expr) -> exp.Expr:
            return _bare(each) if isinstance(each, exp.Column) else each

        found = aggregate_call(with_parts_replaced(part, bare), Checker(self.scope, self.context))
        for scalar in found.reads:
            self._read |= columns_read(scalar.expression)
        return self._reach(Reach("", "aggregate", asked, call=replace(found, name="")), part)

    def _asked(self, expression: exp.Expr, at: exp.Expr, what: str) -> str | None:
        """Return the one variable whose rows an argument reads; None for all rows."""
        columns = own_columns(expression)
        if not columns:
            reason = f"{what} is about the rows of a variable, and no column of one is named here"
            raise self.context.error(at, reason, f"{what}(A.x)")
        asked = {self._variable_of(column) for column in columns}
        if len(asked) > 1:
            raise self.context.error(at, f"{what} is about the rows of one variable, but several are named here")
        return asked.pop()

    def _variable_of(self, column: exp.Column) -> str | None:
        if not column.table:
            return None
        found = self.variables.get(column.table.casefold())
        if found is None:
            hint = suggest(column.table, self.variables.values(), what="it has")
            raise self.context.error(column.args["table"], f"PATTERN has no variable {column.table!r}", hint)
        return found

    def _row_scalar(self, row: exp.Expr) -> Scalar:
        typed = Checker(self.scope, self.context).check(row)
        if typed.type is None:
            raise self.context.error(row, "NULL has no type here", "write CAST(NULL AS real)")
        scalar = scalar_of(typed, typed.type)
        self._read |= columns_read(scalar.expression)
        self._unit = typed.unit
        return scalar

    def _lag(self, scalar: Scalar, rows: int) -> Lag:
        if (scalar, rows) not in self._lags:
            name = f"fjord_lag_{len(self._lags)}"
            self._lags[scalar, rows] = Lag(name, scalar, rows)
            self._added.append(ScopeColumn(name, name, scalar.type, self._unit))
        return self._lags[scalar, rows]

    def _reach(self, reach: Reach, part: exp.Expr) -> exp.Expr:
        if reach not in self._reaches:
            name = f"fjord_reach_{len(self._reaches)}"
            if reach.call is not None:
                type_, unit, nullable = reach.call.type, reach.call.unit, reach.call.function != "count"
                named = replace(reach, name=name, call=replace(reach.call, name=name))
            else:
                assert reach.scalar is not None  # noqa: S101 - what it is without an aggregate
                type_, unit, nullable = reach.scalar.type, self._unit, True
                named = replace(reach, name=name)
            self._reaches[reach] = named
            self._added.append(ScopeColumn(name, name, type_, unit, nullable))
        return slot_for(self._reaches[reach].name, part)


def _bare(column: exp.Column) -> exp.Expr:
    """Return a column, or the star, without the variable before it."""
    if isinstance(column.this, exp.Star):
        return column.this.copy()
    found = column.copy()
    found.set("table", None)
    found.meta.update(column.meta)
    return found


MOST_ROWS = 1_000
"""Most rows that a match has at least."""


def match_pattern(clause: RowPatternClause, node: Node, scope: ScopeItem, context: Context) -> Node:
    """Return the plan of a pattern over an item of FROM.

    Parameters
    ----------
    clause
        Its syntax.
    node, scope
        The plan of the item, and its names.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If the rows have no order, a name is unknown, an expression makes no sense, or the pattern is without bounds.
    """
    _check_rows(clause, node, context)
    _check_order(clause, scope, context)
    elements: tuple[PatternElement, ...] = clause.args["pattern"].meta["elements"]
    variables = {element.variable.casefold(): element.variable for element in elements}
    elements = tuple(_renamed(element, variables) for element in elements)
    within_us = _within(clause, elements, context)
    keys = _keys(clause, scope, context)
    expressions = RowExpressions(Scope((dataclasses.replace(scope, sampled_at=INSTANT),)), variables, context)
    definitions = _definitions(clause, variables, expressions, context)
    measures = _measures(clause, keys, expressions, context)
    read = {*keys, *expressions.read}
    columns = [column for column in node.schema if column.name in read]
    pattern = RowPattern(
        elements=elements,
        definitions=definitions,
        measures=measures,
        lags=expressions.lags,
        reaches=expressions.reaches,
        ties=tuple(column.name for column in columns),
        within_us=within_us,
        skip=_skip(clause.args.get("skip"), elements, variables, context),
    )
    return PatternMatch(project(node, passed_on(columns)), keys, pattern)


def _renamed(element: PatternElement, variables: Mapping[str, str]) -> PatternElement:
    """Return an element with the first spelling of its variable: names have no case."""
    name = variables[element.variable.casefold()]
    return PatternElement(name, element.least, element.most, element.reluctant)


def _check_rows(clause: RowPatternClause, node: Node, context: Context) -> None:
    if reads_relations_only(node):
        reason = "a pattern is found in the order of stamps, and the rows of a relation have none"
        raise context.error(clause.this, reason, "join the relation with a stream in a subquery of FROM")
    if window := reshaping(clause.this):
        reason = "a pattern is found in tuples as they come: what it reads has no window"
        raise context.error(window, reason, "put the window behind MATCH_RECOGNIZE(...), where it is about matches")
    if not node.is_instantaneous:
        reason = "a pattern is found in the order of stamps, but the rows of this last longer than an instant"
        raise context.error(clause.this, reason, "put ISTREAM(...) around it: each row is then stamped where it begins")


def _check_order(clause: RowPatternClause, scope: ScopeItem, context: Context) -> None:
    words = [name.name for name in clause.args["order"] if name.name.upper() != "ASC"]
    if words[0].upper() == "STAMP" and words[1:] == ["(", ")"]:
        return
    name, qualifier = words[-1], words[0] if len(words) > 1 else ""
    is_stamp = scope.stamp is not None and name.casefold() == scope.stamp.casefold()
    if not is_stamp or (qualifier and qualifier.casefold() != (scope.alias or "").casefold()):
        reason = "the rows of a pattern are in the order of their stamps, and this is not the stamp"
        raise context.error(clause.args["order"][0], reason, "ORDER BY STAMP()")


def _within(clause: RowPatternClause, elements: tuple[PatternElement, ...], context: Context) -> int | None:
    pattern, within = clause.args["pattern"], clause.args.get("within")
    least = sum(element.least for element in elements)
    if not least:
        reason = "this pattern would match no rows at all, everywhere"
        raise context.error(pattern, reason, f"let a variable take at least one row: {PATTERN_SHAPE}")
    if least > MOST_ROWS:
        raise context.error(pattern, f"a match of this pattern has at least {least:,} rows; {MOST_ROWS:,} are possible")
    if within is not None:
        return read_quantity(within, duration_us, context, meant="MINUTES")
    if any(element.most != element.least for element in elements):
        reason = "without WITHIN, whether this pattern goes on might stay unknown for ever, and all rows would be kept"
        raise context.error(pattern, reason, f"bound the time from first to last row: {WITHIN_SHAPE}")
    return None


def _keys(clause: RowPatternClause, scope: ScopeItem, context: Context) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for key in clause.args.get("partition") or ():
        if not isinstance(key, exp.Column) or isinstance(key.this, exp.Star):
            hint = "compute it in a subquery of FROM"
            raise context.error(key, "PARTITION BY takes columns as they are", hint)
        names[Scope((scope,)).find(key, context).internal] = None
    return tuple(names)


def _definitions(
    clause: RowPatternClause, variables: Mapping[str, str], expressions: RowExpressions, context: Context
) -> tuple[Definition, ...]:
    found: dict[str, Definition] = {}
    for each in clause.args.get("definitions") or ():
        variable = _variable(each.this, variables, context)
        if variable in found:
            raise context.error(each.this, f"{variable} has two definitions", "join the conditions by AND")
        row, reaching = expressions.condition(each.expression, variable)
        found[variable] = Definition(variable, row, reaching)
    return tuple(found.values())


def _variable(name: exp.Expr, variables: Mapping[str, str], context: Context) -> str:
    found = variables.get(name.name.casefold())
    if found is None:
        hint = suggest(name.name, variables.values(), what="it has")
        raise context.error(name, f"PATTERN has no variable {name.name!r}", hint)
    return found


def _measures(
    clause: RowPatternClause, keys: tuple[str, ...], expressions: RowExpressions, context: Context
) -> tuple[Output, ...]:
    taken = Names(keys)
    outputs = []
    for each in clause.args["measures"]:
        check_column_name(each.args["alias"], context)
        if each.alias in taken:
            reason = f"two columns are called {each.alias!r}"
            raise context.error(each.args["alias"], reason, "the columns of PARTITION BY are there without MEASURES")
        taken.add(each.alias)
        typed = expressions.measure(each.this)
        if typed.type is None:
            raise context.error(each.this, "NULL has no type here", "write CAST(NULL AS real)")
        outputs.append(Output(each.alias, scalar_of(typed, typed.type), typed.unit))
    return tuple(outputs)


_SKIPS: dict[str, SkipKind] = {
    "PAST LAST ROW": "past last row",
    "TO NEXT ROW": "to next row",
    "TO FIRST": "to first",
    "TO LAST": "to last",
    "TO": "to last",
}


def _skip(
    clause: SkipClause | None, elements: tuple[PatternElement, ...], variables: Mapping[str, str], context: Context
) -> Skip:
    if clause is None:
        return Skip()
    kind = _SKIPS[clause.args["kind"]]
    if clause.this is None:
        return Skip(kind)
    variable = _variable(clause.this, variables, context)
    mine = [place for place, element in enumerate(elements) if element.variable == variable and element.least]
    if not mine:
        reason = f"a match may be without a row of {variable}, and there would be nowhere to go on"
        raise context.error(clause.this, reason, SKIP_SHAPES)
    before = sum(element.least for element in elements[: mine[0]])
    if kind == "to first":
        before = sum(element.least for element in elements[: _first(elements, variable)])
    elif not before:
        before = sum(element.least for element in elements[: mine[-1] + 1]) - 1
    if not before:
        reason = f"the search would begin at the first row of the match again, and never end: it may be {variable}'s"
        raise context.error(clause.this, reason, "name a variable behind one that takes at least one row")
    return Skip(kind, variable)


def _first(elements: tuple[PatternElement, ...], variable: str) -> int:
    return next(place for place, element in enumerate(elements) if element.variable == variable)
