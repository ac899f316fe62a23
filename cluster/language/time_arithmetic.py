"""Typing of +, -, * and / where an operand is a timestamp or an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions import timestamps
from cluster.expressions.called_functions import TimeCall, TimeLiteral
from cluster.language.typing_rules import Typed
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context

INSTANTS = (FieldType.TIMESTAMP, FieldType.LOCAL_TIMESTAMP)
TIMES = frozenset((*INSTANTS, FieldType.INTERVAL))
"""Types about time."""
_NUMBERS = (FieldType.INTEGER, FieldType.REAL, None)
_WORDS: dict[type[exp.Expr], str] = {
    exp.Add: "added",
    exp.Sub: "subtracted",
    exp.Mul: "multiplied",
    exp.Div: "divided",
    exp.Mod: "divided",
}


def time_arithmetic(context: Context, at: exp.Expr, left: Typed, right: Typed) -> Typed:
    """Return the sum, difference, product or quotient of two operands, one of which is about time.

    Raises
    ------
    FjordSqlError
        If there is none of their types.
    """
    kind = type(at)
    match kind, left.type, right.type:
        case (exp.Add, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP, FieldType.INTERVAL | None):
            return _call(timestamps.PLUS, left.type, left, right)
        case (exp.Add, FieldType.INTERVAL | None, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP):
            return _call(timestamps.PLUS, right.type, right, left)
        case (exp.Sub, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP, FieldType.INTERVAL):
            return _call(timestamps.PLUS, left.type, left, negative(right))
        case (exp.Sub, one, other) if one in INSTANTS and other in (one, None):
            return _call(timestamps.MINUS, FieldType.INTERVAL, left, right)
        case (exp.Sub, None, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP):
            return _call(timestamps.MINUS, FieldType.INTERVAL, left, right)
        case (exp.Add, FieldType.INTERVAL | None, FieldType.INTERVAL | None):
            return _call(timestamps.INTERVAL_PLUS, FieldType.INTERVAL, left, right)
        case (exp.Sub, FieldType.INTERVAL | None, FieldType.INTERVAL | None):
            return _call(timestamps.INTERVAL_PLUS, FieldType.INTERVAL, left, negative(right))
        case (exp.Mul, FieldType.INTERVAL, number) if number in _NUMBERS:
            return _call(timestamps.INTERVAL_TIMES, FieldType.INTERVAL, left, right)
        case (exp.Mul, number, FieldType.INTERVAL) if number in _NUMBERS:
            return _call(timestamps.INTERVAL_TIMES, FieldType.INTERVAL, right, left)
        case (exp.Div, FieldType.INTERVAL, number) if number in _NUMBERS:
            return _call(timestamps.INTERVAL_PARTS, FieldType.INTERVAL, left, right)
        case _:
            names = [each.type.value if each.type else "null" for each in (left, right)]
            reason = f"{names[0]} and {names[1]} cannot be {_WORDS[kind]}"
            raise context.error(at, reason, _hint(kind, left.type, right.type))


def negative(typed: Typed) -> Typed:
    """Return an interval the other way."""
    inner = typed.expression
    inner = inner if isinstance(inner, exp.Func | exp.Column | exp.Paren | TimeLiteral) else exp.Paren(this=inner)
    return Typed(exp.Neg(this=inner), FieldType.INTERVAL, nullable=typed.nullable)


def _call(name: str, result: FieldType, *operands: Typed) -> Typed:
    return Typed(TimeCall(this=name, expressions=[each.expression for each in operands]), result)


def _hint(kind: type[exp.Expr], left: FieldType | None, right: FieldType | None) -> str:
    if {left, right} == {*INSTANTS}:
        return "x AT TIME ZONE 'Europe/Berlin' makes one of the other"
    if left in INSTANTS and right in INSTANTS:
        return "the difference of two timestamps is an interval"
    if kind in (exp.Add, exp.Sub):
        return "an interval is written INTERVAL '5' MINUTE"
    return "EXTRACT(EPOCH FROM x) gives seconds, as a real"
