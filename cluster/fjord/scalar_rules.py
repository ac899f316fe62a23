"""Rules for programs (:mod:`cluster.fjord.scalar_programs`): the operands and the function of each expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping

import polars as pl

from cluster.errors import PlanError
from cluster.expressions.nodes import (
    NULL,
    Among,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Chain,
    Expression,
    Like,
    Literal,
    Negative,
    Not,
    UserCall,
)
from cluster.expressions.text import text_of
from cluster.expressions.timestamps import interval_us, timestamp_us
from cluster.expressions.user_functions import UserFunction
from cluster.fjord.timestamp_functions import OF_CONSTANTS, TIMESTAMP_FUNCTIONS
from cluster.functions.calling import CALLS
from cluster.scalars import SCALAR_FUNCTIONS, texts
from cluster.scalars import operators as functions
from cluster.scalars.operators import COMPARED, POLARS_TYPES, Written
from cluster.scalars.real_values import settled
from protocols.wire.streams import FieldType

Function = Callable[..., pl.Series]

SMALLEST, LARGEST = -(2**63), 2**63 - 1


class Choice(Expression, frozen=True, tag="Choice"):
    """One branch of CASE, and the rest of it."""

    other: Expression
    condition: Expression
    chosen: Expression

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The last one first: then at most one branch is kept while the program runs."""
        return (self.other, self.condition, self.chosen)


def value_of(node: Expression) -> Written | None:
    """Return a literal's value with its type, None for NULL; None if the expression is not a literal.

    Raises
    ------
    PlanError
        If it is an integer that does not fit 64 bits.
    """
    match node:
        case Literal(kind=None):
            return None, None
        case Literal(kind=FieldType.BOOLEAN):
            return FieldType.BOOLEAN, node.text == "TRUE"
        case Literal(kind=FieldType.TEXT):
            return FieldType.TEXT, node.text
        case Literal(kind=FieldType.TIMESTAMP):
            return FieldType.TIMESTAMP, timestamp_us(node.text)
        case Literal(kind=FieldType.INTERVAL):
            return FieldType.INTERVAL, interval_us(node.text)
        case Literal():
            return _number(node.text)
        case Negative(operand=Literal(kind=FieldType.INTEGER | FieldType.REAL) as literal):
            return _number(f"-{literal.text}")
        case _:
            return None


def series_of(written: Written) -> pl.Series:
    """Return a literal as a series of one value."""
    kind, value = written
    return pl.Series([value]) if kind is None else pl.Series([value], dtype=POLARS_TYPES[kind])


def _number(text: str) -> Written:
    if not text.removeprefix("-").isdecimal():
        value = float(text) + 0.0
        return FieldType.REAL, value if math.isfinite(value) else None
    if not SMALLEST <= int(text) <= LARGEST:
        raise PlanError(f"the integer {text} does not fit 64 bits")
    return FieldType.INTEGER, int(text)


def operands_of(node: Expression) -> tuple[Expression, ...]:
    """Return the parts of an expression that must be computed before it, in order."""
    match node:
        case Negative() if value_of(node) is not None:
            return ()
        case Case():
            return (_choices(node),)
        case Chain() if len(node.parts) > 2:  # noqa: PLR2004 - a function of two computes longer ones in halves
            middle = len(node.parts) // 2
            return (_part(node, node.parts[:middle]), _part(node, node.parts[middle:]))
        case Call() if node.function in _OF_CONSTANTS:
            return node.arguments[:1]
        case Among():
            return (node.value, *(each for each in node.choices if value_of(each) is None))
        case _:
            return node.operands


def _part(whole: Chain, parts: tuple[Expression, ...]) -> Expression:
    return parts[0] if len(parts) == 1 else Chain(whole.word, parts)


def _choices(case: Case) -> Expression:
    """Return CASE as one choice in another, the first branch outermost."""
    found = case.default or NULL
    for condition, chosen in zip(reversed(case.conditions), reversed(case.results), strict=True):
        compared = condition if case.subject is None else Binary("=", case.subject, condition)
        found = Choice(found, compared, chosen)
    return found


def function_of(node: Expression) -> tuple[Function, Hashable]:
    """Return the function that computes an expression from its operands, and a value that identifies the function."""
    match node:
        case Binary() if node.sign in _SIGNS:
            return _SIGNS[node.sign], node.sign
        case Chain():
            return _CHAINED[node.word], node.word
        case Choice():
            return (lambda other, condition, chosen: functions.choice(condition, chosen, other)), Choice
        case Not():
            return functions.negation, Not
        case Negative():
            return functions.negate, Negative
        case Between():
            return functions.within, Between
        case Cast():
            return functions.cast_to(node.target), (Cast, node.target)
        case Like():
            like = (node.pattern, node.escape, node.folds)
            return texts.matching(*like), (Like, *like)
        case Call() if node.function in _OF_CONSTANTS:
            constants = _constants(node)
            return _OF_CONSTANTS[node.function](*constants), (node.function, *constants)
        case UserCall():
            return user_function(node.function), node.function
        case Call() if node.function in _CALLED:
            return _CALLED[node.function], node.function
        case _:
            raise PlanError(f"{text_of(node)} cannot be evaluated")


def user_function(function: UserFunction) -> Function:
    """Return a function of series that calls a function of a user; NULL for reals and texts that cannot be."""
    return lambda *operands: texts.bounded(settled(CALLS.call(function, operands)))


def _constants(call: Call) -> tuple[str | int, ...]:
    found = [value_of(each) for each in call.arguments[1:]]
    values = [each[1] for each in found if each is not None and isinstance(each[1], str | int)]
    if len(values) < len(found):
        raise PlanError(f"an argument of {text_of(call)} is not a constant")
    return tuple(values)


_CALLED: Mapping[str, Function] = {
    **{name: function.compute for name, function in SCALAR_FUNCTIONS.items() if not function.of_constants},
    **TIMESTAMP_FUNCTIONS,
}
_OF_CONSTANTS: Mapping[str, Callable[..., Function]] = {
    **{name: function.compute for name, function in SCALAR_FUNCTIONS.items() if function.of_constants},
    **OF_CONSTANTS,
}
"""Functions all of whose arguments but the first are written out."""

_CHAINED: dict[str, Function] = {"AND": functions.both, "OR": functions.either, "||": texts.joined}

_SIGNS: dict[str, Function] = {
    "+": functions.add,
    "-": functions.subtract,
    "*": functions.multiply,
    "/": functions.divide,
    "%": functions.remainder,
    "IS": functions.is_the_same,
    "IS NOT DISTINCT FROM": functions.is_the_same,
    "IS DISTINCT FROM": functions.is_another,
    **COMPARED,
}
