"""The functions that stand before OVER, and their arguments and frames -> calls over tuples in order.

Everything is made of a few functions: CHANGED is LAG compared with the value itself, and HYSTERESIS the last value
known of a condition that is true above, false below and NULL in between.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from dataclasses import replace as changed
from typing import TYPE_CHECKING

from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions.reading import DATA_TYPES
from cluster.expressions.walks import columns_read
from cluster.language.arguments import called, wrong_number
from cluster.language.foreign_names import INSTEAD
from cluster.language.functions import AGGREGATES
from cluster.language.grouping import function_name
from cluster.language.quantities import distance_us, duration_us, read_quantity, row_count
from cluster.language.scope import Scope
from cluster.language.sequence_parsing import ENDS_FIRST, further_back_first
from cluster.language.syntax import Changed, Hysteresis, Over, SequenceFrame, Slot, slot_for
from cluster.language.typing_rules import scalar_of
from cluster.language.window_clauses import exactly_zero
from cluster.language.words import FRAME_SHAPES, HYSTERESIS_SHAPE
from cluster.operators import Node
from cluster.operators.columns import Names, Output
from cluster.operators.scalar_expressions import plain_column
from cluster.operators.sequence import SequenceCall
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.expressions import Checker
    from cluster.language.syntax import Quantity
    from cluster.language.typing_rules import Typed
    from cluster.operators.sequence import SequenceFunction

NEIGHBOURS: dict[type[exp.Expr], SequenceFunction] = {exp.Lag: "lag", exp.Lead: "lead"}
ENDS: dict[type[exp.Expr], SequenceFunction] = {exp.FirstValue: "first", exp.LastValue: "last"}
RUNNING: dict[type[exp.Expr], SequenceFunction] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
KNOWN_FUNCTIONS = "LAG, LEAD, CHANGED, HYSTERESIS, FIRST_VALUE, LAST_VALUE, COUNT, SUM, AVG, MIN and MAX do"
_NUMBERED = "its number is COUNT(*) OVER (... ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"


def over_words(over: Over, scope: Scope, context: Context) -> list[str]:
    """Return the words of the name of a column: the function before OVER, and the column that it reads, if any."""
    call = _bare(over.this)
    first = call.expressions[0] if isinstance(call, Changed) and call.expressions else call.args.get("this")
    plain = isinstance(first, exp.Column) and not isinstance(first.this, exp.Star)
    name = _name(call)
    own = [scope.find(first, context).visible] if plain and isinstance(first, exp.Column) else []
    return [name, *own] if name else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The part of a :class:`SequenceCall` that says which tuples it is about."""

    rows: int | None = None
    range_us: int | None = None
    peers: bool = False
    until_rows: int = 0
    until_us: int = 0


class OverCalls:
    """The calls of the functions of one SELECT, each once, and the columns of their arguments.

    Parameters
    ----------
    node
        The tuples.
    checker
        For the arguments.
    """

    def __init__(self, node: Node, checker: Checker) -> None:
        self._checker = checker
        self._context = checker.context
        self._taken = Names(column.name for column in node.schema)
        self._computed: dict[Output, Output] = {}
        self._named: dict[SequenceCall, SequenceCall] = {}
        self.read: set[str] = set()

    @property
    def calls(self) -> tuple[SequenceCall, ...]:
        """All of them, under their names."""
        return tuple(self._named.values())

    @property
    def names(self) -> frozenset[str]:
        """The columns that they make."""
        return frozenset(call.name for call in self.calls)

    @property
    def arguments(self) -> tuple[Output, ...]:
        """The arguments that are more than columns."""
        return tuple(self._computed.values())

    def value_of(self, over: Over) -> exp.Expr:
        """Return the expression that gives the value of a function with OVER, over the columns of calls.

        Raises
        ------
        FjordSqlError
            If there is no such function, or something about it or behind OVER is wrong.
        """
        call = _bare(over.this)
        self._check_order(over)
        if isinstance(over.this, exp.RespectNulls) or (
            isinstance(over.this, exp.IgnoreNulls) and type(call) not in ENDS
        ):
            reason = "IGNORE NULLS stands with FIRST_VALUE and LAST_VALUE only"
            if isinstance(over.this, exp.RespectNulls):
                reason = "RESPECT NULLS is not part of FjordSQL: without IGNORE NULLS, NULL is a value like others"
            raise self._context.error(over, reason, "leave it out")
        if isinstance(over.this, exp.Filter) and type(call) not in RUNNING:
            reason = "FILTER stands with COUNT, SUM, AVG, MIN and MAX only"
            raise self._context.error(over, reason, "choose tuples in FROM (SELECT ... WHERE ...) AS x")
        match call:
            case exp.Lag() | exp.Lead():
                return self._slot(over, self._neighbour(over, call))
            case Changed():
                return self._changed(over, call)
            case Hysteresis():
                return self._hysteresis(over, call)
            case exp.FirstValue() | exp.LastValue():
                return self._slot(over, self._end(over, call))
            case _ if type(call) in RUNNING:
                return self._slot(over, self._running(over, call))
        raise self._foreign(over, call)

    def _foreign(self, over: Over, call: exp.Expr) -> Exception:
        name = called(call, call.sql_name() if isinstance(call, exp.Func) else call.name).upper()
        hint = _NUMBERED if name in ("ROW_NUMBER", "RANK", "DENSE_RANK") else INSTEAD.get(name, KNOWN_FUNCTIONS)
        return self._context.error(over, f"{name or 'this'} cannot stand before OVER", hint)

    def _check_order(self, over: Over) -> None:
        order = over.args.get("order")
        if order is None or order.this is None:
            return
        column: exp.Identifier = order.this
        if any((item.stamp or "").casefold() == column.name.casefold() for item in self._checker.scope.items):
            return
        hint = "write ORDER BY STAMP(), or leave it out"
        raise self._context.error(column, f"tuples come in the order of their stamps, not of {column.name!r}", hint)

    def _neighbour(self, over: Over, call: exp.Lag | exp.Lead) -> SequenceCall:
        function, name = NEIGHBOURS[type(call)], _name(call).upper()
        self._refuse_frame(over, name)
        offset, default = call.args.get("offset"), call.args.get("default")
        if function == "lead" and default is not None:
            hint = f"write COALESCE(LEAD(...) OVER (...), {self._context.source_text(default)})"
            raise self._context.error(default, "LEAD takes no value for where there is none", hint)
        typed = self._argument(over, call.this)
        fallback = None
        if default is not None:
            other = self._checker.check(default)
            kind = self._checker.common(over, [typed, other], action="choose with LAG")
            typed = _as(typed, kind)
            fallback = self._column(_as(other, kind))
        within = self._within(over)
        if function == "lead" and within is None:
            reason = "LEAD waits for a later tuple, and nothing says for how long"
            raise self._context.error(over, reason, "LEAD(x) OVER (PARTITION BY k) WITHIN 5 MINUTES")
        rows = 1 if offset is None else self._offset(offset, name)
        return self._call(function, typed, Frame(rows=rows), default=fallback, within_us=within)

    def _changed(self, over: Over, call: Changed) -> exp.Expr:
        self._refuse_frame(over, "CHANGED")
        within = self._within(over)
        if not call.expressions:
            raise self._context.error(over, "CHANGED takes one argument or more", "CHANGED(x) OVER (PARTITION BY k)")
        parts: list[exp.Expr] = []
        for value in call.expressions:
            before = self._call("lag", self._argument(over, value), Frame(rows=1), within_us=within)
            operand = exp.Paren(this=value.copy())
            parts.append(exp.NullSafeNEQ(this=operand, expression=slot_for(before.name, over)))
        found = parts[0]
        for part in parts[1:]:
            found = exp.Or(this=found, expression=part)
        return exp.Paren(this=found)

    def _hysteresis(self, over: Over, call: Hysteresis) -> exp.Expr:
        self._refuse_frame(over, "HYSTERESIS")
        self._refuse_within(over, "HYSTERESIS")
        above, below = call.args["above"], call.args.get("below") or call.args["above"]
        if float(below.this) > float(above.this):
            raise self._context.error(below, "BELOW is above ABOVE", f"it is written {HYSTERESIS_SHAPE}")
        self._checker.check_as(call.this, Family.NUMBER)
        value = exp.Paren(this=call.this.copy())
        state = exp.Case(
            ifs=[
                exp.If(this=exp.GTE(this=value, expression=_number(above)), true=exp.true()),
                exp.If(this=exp.LTE(this=value.copy(), expression=_number(below)), true=exp.false()),
            ]
        )
        last = self._call("last", self._checker.check(state), known=True)
        return exp.Coalesce(this=slot_for(last.name, over), expressions=[exp.false()])

    def _end(self, over: Over, call: exp.FirstValue | exp.LastValue) -> SequenceCall:
        self._refuse_within(over, _name(call).upper())
        frame = self._frame(over)
        typed = self._argument(over, call.this)
        known = isinstance(over.this, exp.IgnoreNulls)
        return self._call(ENDS[type(call)], typed, frame, known=known)

    def _running(self, over: Over, call: exp.Expr) -> SequenceCall:
        name = function_name(call)
        self._refuse_within(over, name)
        frame = self._frame(over)
        function, argument = RUNNING[type(call)], call.this
        condition = over.this.expression.this if isinstance(over.this, exp.Filter) else None
        if isinstance(argument, exp.Distinct):
            reason = f"{name}(DISTINCT ...) cannot stand before OVER"
            raise self._context.error(over, reason, f"aggregate a window, {name}(DISTINCT x) ... WINDOW(RANGE 1 HOUR)")
        everything = isinstance(call, exp.Count) and isinstance(argument, exp.Star)
        if everything and condition is not None:
            argument = exp.Literal.number("1")
        elif not isinstance(argument, exp.Expr):
            raise self._context.error(over, *wrong_number(name))
        elif everything:
            return self._call(function, None, frame)
        typed = self._checker.check_as(argument, AGGREGATES[type(call)].parameter)
        if typed.type is None:
            raise self._context.error(argument, "NULL is nothing to aggregate")
        if condition is not None:
            self._checker.check_as(condition, Family.BOOLEAN)
            chosen = exp.Case(ifs=[exp.If(this=condition.copy(), true=argument.copy())])
            typed = changed(self._checker.check(chosen), unit=typed.unit)
        return self._call(function, typed, frame)

    def _argument(self, over: Over, value: exp.Expr) -> Typed:
        typed = self._checker.check(value)
        if typed.type is None:
            raise self._context.error(over, "NULL has no type here", "write CAST(NULL AS real)")
        return typed

    def _offset(self, offset: exp.Expr, name: str) -> int:
        written = offset.this if isinstance(offset, exp.Literal) and not offset.is_string else ""
        if not str(written).isdecimal() or not 0 < int(written) <= 2**60:
            reason = f"how many tuples {name} goes {'back' if name == 'LAG' else 'ahead'} is a whole number from 1"
            raise self._context.error(offset, reason, f"{name}(x, 2)")
        return int(written)

    def _within(self, over: Over) -> int | None:
        within = over.args.get("within")
        if within is None:
            return None
        found = read_quantity(within, distance_us, self._context, meant="MINUTES")
        if found < 0:
            raise self._context.error(within, "how far apart the two tuples may be is not negative")
        return found

    def _refuse_within(self, over: Over, name: str) -> None:
        if within := over.args.get("within"):
            reason = f"WITHIN stands with LAG, LEAD and CHANGED, not with {name}"
            raise self._context.error(
                within, reason, "a frame by time is RANGE BETWEEN 5 MINUTES PRECEDING AND CURRENT ROW"
            )

    def _refuse_frame(self, over: Over, name: str) -> None:
        if frame := over.args.get("frame"):
            reason = f"{name} has no frame: it goes by the order of the tuples alone"
            raise self._context.error(frame, reason, f"leave {frame.args['kind']} ... away")

    def _frame(self, over: Over) -> Frame:
        frame: SequenceFrame | None = over.args.get("frame")
        if frame is None:
            if over.args.get("order") is None:
                reason = "without an order this is about all tuples that will ever come"
                hint = f"add ORDER BY STAMP() for all up to each, or a frame: {FRAME_SHAPES}"
                raise self._context.error(over, reason, hint)
            return Frame(peers=True)
        if frame.args["kind"] == "RANGE":
            return self._frame_by_time(frame)
        return self._frame_by_count(frame)

    def _frame_by_time(self, frame: SequenceFrame) -> Frame:
        size, end = frame.this, frame.args.get("until")
        range_us = None if size is None else read_quantity(size, duration_us, self._context, meant="MINUTES")
        until_us = 0
        if end is not None:
            positive = distance_us if exactly_zero(end) else duration_us
            until_us = read_quantity(end, positive, self._context, meant="MINUTES")
        self._check_bounds(frame, range_us, until_us)
        return Frame(range_us=range_us, until_us=until_us, peers=True)

    def _frame_by_count(self, frame: SequenceFrame) -> Frame:
        size, end = frame.this, frame.args.get("until")
        if size is not None and exactly_zero(size) and (end is None or exactly_zero(end)):
            hint = "leave the function and its OVER away, or go further back: ROWS 1 PRECEDING"
            raise self._context.error(size, "no row before it: this is about each tuple alone", hint)
        rows = None if size is None else self._rows(size)
        until = 0 if end is None else self._rows(end)
        self._check_bounds(frame, rows, until)
        return Frame(rows=rows, until_rows=until)

    def _rows(self, size: Quantity) -> int:
        alone = exactly_zero(size) and size.args.get("unit") is None
        return 0 if alone else read_quantity(size, row_count, self._context)

    def _check_bounds(self, frame: SequenceFrame, begin: int | None, end: int) -> None:
        if begin is not None and begin < end:
            raise self._context.error(frame.args["until"], ENDS_FIRST, further_back_first(frame.args["kind"]))

    def _column(self, typed: Typed) -> str:
        """Return the column with the values of an expression, which is computed below if it is more than a column."""
        assert typed.type is not None  # noqa: S101 - callers have checked it
        scalar = scalar_of(typed, typed.type)
        name = plain_column(scalar)
        if name is not None:
            self.read.add(name)
            return name
        self.read |= columns_read(scalar.expression)
        computed = Output("", scalar, typed.unit)
        if computed not in self._computed:
            readable = scalar.sql.replace('"', "")
            self._computed[computed] = replace(computed, name=self._taken.unique(readable))
        return self._computed[computed].name

    def _call(
        self,
        function: SequenceFunction,
        typed: Typed | None,
        frame: Frame | None = None,
        *,
        default: str | None = None,
        within_us: int | None = None,
        known: bool = False,
    ) -> SequenceCall:
        argument = None if typed is None else self._column(typed)
        kind = FieldType.INTEGER if function == "count" else FieldType.REAL if function == "avg" else None
        if kind is None:
            assert typed is not None and typed.type is not None  # noqa: S101, PT018 - only COUNT(*) has no argument
            kind = typed.type
        unit = "" if typed is None or function == "count" else typed.unit
        bounds = {} if frame is None else asdict(frame)
        plain = SequenceCall(
            "", function, argument, kind, unit, default=default, within_us=within_us, known=known, **bounds
        )
        if plain not in self._named:
            named = f"{function}({'*' if argument is None else argument}) over"
            self._named[plain] = replace(plain, name=self._taken.unique(named))
        return self._named[plain]

    def _slot(self, over: Over, call: SequenceCall) -> Slot:
        return slot_for(call.name, over)


def _as(typed: Typed, kind: FieldType | None) -> Typed:
    """Return an expression with values of another type: an integer as a real, or NULL as anything."""
    if kind is None or typed.type == kind:
        return typed
    target = exp.DataType(this=DATA_TYPES[kind], nested=False)
    return changed(typed, expression=exp.Cast(this=typed.expression, to=target), type=kind)


def _number(literal: exp.Expr) -> exp.Expr:
    """Return a number of a clause, whose sign is a part of it, as an expression."""
    written = str(literal.this)
    number = exp.Literal.number(written.removeprefix("-"))
    return exp.Neg(this=number) if written.startswith("-") else number


def _name(call: exp.Expr) -> str:
    """Return the name of a function, in lower case; empty if it is none."""
    if type(call) in AGGREGATES:
        return AGGREGATES[type(call)].name
    return call.sql_name().lower() if isinstance(call, exp.Func) and not isinstance(call, exp.Anonymous) else ""


def _bare(call: exp.Expr) -> exp.Expr:
    while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        call = call.this
    return call
