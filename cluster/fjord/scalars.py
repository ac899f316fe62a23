"""Scalar expressions: nodes -> Polars, with one meaning everywhere.

Three-valued logic; `/` is real division; division and remainder by zero are NULL; a failed cast is NULL; text is
ordered by code point; reals are finite or NULL (:mod:`cluster.scalars.real_values`).

Comparisons of columns with constants, the most common conditions, are Polars' own, which scans of files can use.
Other expressions are programs (:mod:`cluster.fjord.scalar_programs`) that Polars calls with the columns they read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from operator import and_

import polars as pl

from cluster.expressions.conditions import conjuncts
from cluster.expressions.nodes import Binary, Column, Expression, bare
from cluster.fjord.scalar_programs import Program, program_of
from cluster.fjord.scalar_rules import value_of
from cluster.operators.columns import Scalar
from cluster.scalars.operators import POLARS_TYPES

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
