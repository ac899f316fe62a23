"""Typing FLOOR(x TO HOUR) and CEIL(x TO HOUR), which become calls that plans have anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions import timestamps
from cluster.expressions.called_functions import TimeCall
from cluster.expressions.timestamps import DAY_US, LENGTHS_US, UNITS
from cluster.language.calls import check_function
from cluster.language.errors import suggest
from cluster.language.time_functions import instant
from cluster.language.time_literals import interval_of
from cluster.language.typing_rules import Typed
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.operand_checks import OperandChecker

_LONGEST_US = {"MONTH": 31 * DAY_US, "QUARTER": 92 * DAY_US, "YEAR": 366 * DAY_US}
"""From the beginning of one of these units, so much later is within the next one."""
_SUNDAYS = "weeks begin on Sunday in Flink, and on Monday here: write DATE_TRUNC('week', x)"


def check_rounding(checker: OperandChecker, call: exp.Floor | exp.Ceil) -> Typed:
    """Return FLOOR or CEIL, of a number or of a timestamp to a unit, resolved and typed.

    Raises
    ------
    FjordSqlError
        If it is none, or there is no such unit.
    """
    if call.args.get("to") is None:
        return check_function(checker, call)
    name, unit = ("FLOOR" if isinstance(call, exp.Floor) else "CEIL"), call.args["to"].name.upper()
    if call.args.get("decimals") is not None:
        raise checker.context.error(call, f"{name} takes one timestamp", f"it is written {name}(x TO HOUR)")
    if unit not in UNITS or unit == "WEEK":
        shown = tuple(each.lower() for each in UNITS if each != "WEEK")
        hint = _SUNDAYS if unit == "WEEK" else suggest(unit, shown, what="units are")
        raise checker.context.error(call, f"there is no unit {unit} of {name}", hint)
    typed = instant(checker, call.this)
    found = typed.type or FieldType.TIMESTAMP
    if name == "FLOOR":
        return Typed(_begin(typed.expression, unit), found)
    if unit in LENGTHS_US:
        return Typed(_begin(_later(typed.expression, LENGTHS_US[unit] - 1), unit), found)
    begin = _begin(typed.expression, unit)
    whole = exp.If(this=exp.EQ(this=typed.expression.copy(), expression=begin), true=begin.copy())
    following = _begin(_later(begin.copy(), _LONGEST_US[unit]), unit)
    return Typed(exp.Case(ifs=[whole], default=following), found)


def _begin(expression: exp.Expr, unit: str) -> exp.Expr:
    return TimeCall(this=timestamps.FLOOR, expressions=[expression, exp.Literal.string(unit)])


def _later(expression: exp.Expr, length_us: int) -> exp.Expr:
    return TimeCall(this=timestamps.PLUS, expressions=[expression, interval_of(length_us)])
