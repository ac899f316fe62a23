"""Scalar expressions: nodes -> programs, one step after another, each on whole columns; with one meaning everywhere.

    ("a" + 1) * ("a" + 1)      0  column a
                               1  constant 1
                               2  add 0, 1
                               3  multiply 2, 2

Equal parts are computed once, and neither building nor running a program is recursive: a program is as long as its
expression, however deep that is. Polars would visit an expression again at every level, and copy parts used twice.

Three-valued logic; `/` is real division; division and remainder by zero are NULL; a failed cast is NULL; text is
ordered by code point; reals are finite or NULL (:mod:`cluster.scalars.real_values`).

Comparisons of columns with constants, the most common conditions, are Polars' own, which scans of files can use.
Other expressions are programs that Polars calls with the columns they read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import and_

import polars as pl

from cluster.errors import PlanError
from cluster.expressions.conditions import conjuncts
from cluster.expressions.nodes import (
    NULL,
    Among,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Chain,
    Column,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
    UserCall,
    bare,
)
from cluster.expressions.text import text_of
from cluster.expressions.timestamps import interval_us, timestamp_us
from cluster.expressions.user_functions import UserFunction
from cluster.fjord.timestamp_functions import OF_CONSTANTS, TIMESTAMP_FUNCTIONS
from cluster.functions.calling import CALLS
from cluster.operators.columns import Scalar
from cluster.scalars import SCALAR_FUNCTIONS, texts
from cluster.scalars import operators as functions
from cluster.scalars.operators import COMPARED, POLARS_TYPES, Membership, Written
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


@dataclass(frozen=True, slots=True)
class Step:
    """A function of the values at some places; `done` are the places that no later step reads."""

    function: Function
    operands: tuple[int, ...]
    done: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """An expression.

    Parameters
    ----------
    columns
        The columns it reads; they have the places from 0 on.
    constants
        The constants, at the next places.
    steps
        The steps, at the places after those; the last is the result.
    result
        The place of the result.
    """

    columns: tuple[str, ...]
    constants: tuple[pl.Series, ...]
    steps: tuple[Step, ...]
    result: int

    def run(self, columns: Sequence[pl.Series]) -> pl.Series:
        """Return the result for these columns; one value if it is a constant."""
        places: list[pl.Series | None] = [*columns, *self.constants]
        for step in self.steps:
            places.append(step.function(*(places[operand] for operand in step.operands)))
            for done in step.done:
                places[done] = None
        found = places[self.result]
        assert found is not None  # noqa: S101 - nothing is done with the result
        return found


def program_of(expression: Expression) -> Program:
    """Return the program of an expression.

    Raises
    ------
    PlanError
        If it contains something that cannot be evaluated; the error names it.
    """
    builder = _Builder()
    return builder.program(builder.add(expression))


class _Builder:
    """Numbers the parts of an expression; equal parts have one number."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._constants: dict[int, pl.Series] = {}
        self._steps: dict[int, tuple[Function, tuple[int, ...]]] = {}
        self._known: dict[Hashable, int] = {}
        self._count = 0

    def add(self, root: Expression) -> int:
        """Return the number of an expression."""
        numbers: dict[Expression, int] = {}
        waiting: list[tuple[Expression, tuple[Expression, ...] | None]] = [(root, None)]
        while waiting:
            node, operands = waiting.pop()
            if node in numbers:
                continue
            if operands is None:
                operands = operands_of(node)
                waiting.append((node, operands))
                waiting.extend((operand, None) for operand in reversed(operands))
            else:
                numbers[node] = self._part(node, tuple(numbers[operand] for operand in operands))
        return numbers[root]

    def program(self, result: int) -> Program:
        """Return the program of all added expressions."""
        read = {result, *(operand for _, operands in self._steps.values() for operand in operands)}
        columns, constants = tuple(self._columns), {n: each for n, each in self._constants.items() if n in read}
        order = (*self._columns.values(), *constants, *self._steps)
        place = {number: at for at, number in enumerate(order)}
        last: dict[int, int] = {}
        for number, (_, operands) in self._steps.items():
            last |= dict.fromkeys(operands, number)
        last[result] = -1
        steps = tuple(
            Step(
                function,
                tuple(place[operand] for operand in operands),
                tuple(place[operand] for operand in dict.fromkeys(operands) if last[operand] == number),
            )
            for number, (function, operands) in self._steps.items()
        )
        return Program(columns, tuple(constants.values()), steps, place[result])

    def _part(self, node: Expression, operands: tuple[int, ...]) -> int:
        match node:
            case Column():
                if node.name not in self._columns:
                    self._columns[node.name] = self._next()
                return self._columns[node.name]
            case Group() | Case():
                return operands[0]
            case Among():
                return self._membership(operands[0], node.choices, operands[1:])
            case _ if (written := value_of(node)) is not None:
                return self._constant(series_of(written))
            case _:
                return self._step(*function_of(node), operands)

    def _step(self, function: Function, key: Hashable, operands: tuple[int, ...]) -> int:
        known = (key, operands)
        if known not in self._known:
            # A function of a user is not called while plans are made.
            if not isinstance(key, UserFunction) and all(operand in self._constants for operand in operands):
                return self._constant(function(*(self._constants[operand] for operand in operands)))
            number = self._known[known] = self._next()
            self._steps[number] = (function, operands)
        return self._known[known]

    def _constant(self, value: pl.Series) -> int:
        known = (value.dtype, value.item())
        if known not in self._known:
            number = self._known[known] = self._next()
            self._constants[number] = value
        return self._known[known]

    def _membership(self, value: int, choices: Sequence[Expression], others: tuple[int, ...]) -> int:
        written = tuple(dict.fromkeys(each for each in map(value_of, choices) if each is not None))
        tests = [self._step(COMPARED["="], "=", (value, other)) for other in dict.fromkeys(others)]
        if written:
            tests.append(self._step(Membership(written), (Membership, written), (value,)))
        found, *more = tests
        for test in more:
            found = self._step(functions.either, functions.either, (found, test))
        return found

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


__all__ = ["POLARS_TYPES", "compile_scalar"]


@lru_cache(maxsize=16_384)
def compile_scalar(scalar: Scalar) -> pl.Expr:
    """Return the Polars expression of a scalar; its columns are those of the expression.

    Raises
    ------
    PlanError
        If it contains something that cannot be evaluated; the error names it.
    """
    kind = POLARS_TYPES[scalar.type]
    simple = _simple(scalar.expression)
    if simple is not None:
        return simple.cast(kind)
    program = program_of(scalar.expression)
    if not program.columns and program.steps:
        # Of a function of a user, which is called with one row wherever its arguments are constants.
        return pl.map_batches(
            [pl.int_range(pl.len(), dtype=pl.Int64)],
            lambda values: _repeated(program, values[0], kind),
            return_dtype=kind,
        )
    if not program.columns:
        # Polars extends only literals to any length.
        return pl.lit(program.run(()).cast(kind).item(), kind)
    columns = [pl.col(name) for name in program.columns]
    return pl.map_batches(
        columns, lambda values: program.run(values).cast(kind), return_dtype=kind, is_elementwise=True
    )


def _repeated(program: Program, beside: pl.Series, kind: type[pl.DataType]) -> pl.Series:
    if not len(beside):
        return pl.Series([], dtype=kind)
    return program.run(()).cast(kind).new_from_index(0, len(beside))


_COMPARED: dict[str, tuple[Callable[[pl.Expr, pl.Expr], pl.Expr], str]] = {
    "=": (lambda left, right: left == right, "="),
    "<>": (lambda left, right: left != right, "<>"),
    "<": (lambda left, right: left < right, ">"),
    "<=": (lambda left, right: left <= right, ">="),
    ">": (lambda left, right: left > right, "<"),
    ">=": (lambda left, right: left >= right, "<="),
}
"""The comparisons, and the equivalent operators with the sides exchanged."""


def _simple(expression: Expression) -> pl.Expr | None:
    """Return a column, or a conjunction of comparisons of columns; None for any other expression."""
    if isinstance(expression, Column):
        return pl.col(expression.name)
    tests: list[pl.Expr] = []
    for part in conjuncts(expression):
        test = _test(part)
        if test is None:
            return None
        tests.append(test)
    return reduce(and_, tests) if len(tests) <= MOST_TESTS else pl.all_horizontal(tests)


MOST_TESTS = 32
"""Most tests in a chain, because Polars visits a chain again at each of its links."""


def _test(part: Expression) -> pl.Expr | None:
    if not isinstance(part, Binary) or part.sign not in _COMPARED:
        return None
    compared, mirrored = _COMPARED[part.sign]
    left, right = bare(part.left), bare(part.right)
    if not isinstance(left, Column):
        # With a constant on the left, Polars 2.1 sometimes gives one value for all rows.
        compared, left, right = _COMPARED[mirrored][0], right, left
    if not isinstance(left, Column):
        return None
    if isinstance(right, Column):
        return compared(pl.col(left.name), pl.col(right.name))
    constant = value_of(right)
    if constant is None or constant[0] is None or constant[1] is None:
        return None
    return compared(pl.col(left.name), pl.lit(constant[1], POLARS_TYPES[constant[0]]))
