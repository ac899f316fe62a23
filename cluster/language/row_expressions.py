"""Expressions of MATCH_RECOGNIZE: what they ask of other rows becomes a column, and the rest is as everywhere.

B.speed < LAST(A.speed) / 2       in DEFINE B:    "speed" < "fjord_reach_0" / 2, fjord_reach_0 being the last of A
PREV(speed) > speed               in DEFINE A:    "fjord_lag_0" > "speed"
COUNT(B.speed) + 1                in MEASURES:    "fjord_reach_1" + 1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions.walks import columns_read
from cluster.language.errors import suggest
from cluster.language.expressions import Checker
from cluster.language.functions import AGGREGATES, UNBOUNDED_AGGREGATES
from cluster.language.grouping import aggregate_call, function_name, with_parts_replaced
from cluster.language.row_pattern_syntax import Navigation
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import Completeness, ErrorBound, conjuncts, own_columns, slot_for
from cluster.language.typing_rules import conjunction, scalar_of
from cluster.operators.columns import Column, Scalar
from cluster.operators.pattern_match import Lag, Reach
from cluster.operators.scalar_expressions import column_scalar
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
