"""Programs for expressions: one step after another, each on whole columns.

    ("a" + 1) * ("a" + 1)      0  column a
                               1  constant 1
                               2  add 0, 1
                               3  multiply 2, 2

Equal parts are computed once, and neither building nor running a program is recursive: a program is as long as its
expression, however deep that is. Polars would visit an expression again at every level, and copy parts used twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import polars as pl

from cluster.expressions.nodes import Among, Case, Column, Expression, Group
from cluster.expressions.user_functions import UserFunction
from cluster.fjord.scalar_rules import Function, function_of, operands_of, series_of, value_of
from cluster.scalars import operators as functions
from cluster.scalars.operators import COMPARED, Membership


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
