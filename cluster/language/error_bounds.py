"""ERROR_BOUND(aggregate): how far an aggregate may be from the exact one because of WITHIN.

It bounds the error over all values that the seen samples may have had within the tolerance. Missing samples do not
count: COMPLETENESS() reports those. It is composed of other aggregates and constants, so it needs no operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.walks import columns_read
from cluster.language.functions import AGGREGATES, RANKED
from cluster.language.typing_rules import scalar_of
from cluster.operators import Node
from cluster.operators.columns import Scalar
from cluster.operators.node import all_exact, error_of
from cluster.operators.scalar_expressions import plain_column

if TYPE_CHECKING:
    from cluster.language.expressions import Checker
    from cluster.language.syntax import ErrorBound

AS_FAR_AS_ITS_VALUES = tuple(kind for kind, row in AGGREGATES.items() if row.errs_as_its_values)
"""Aggregates whose error is at most the largest error of a value."""


def error_bound(bound: ErrorBound, node: Node, keys: tuple[str, ...], checker: Checker) -> exp.Expr:
    """Return the error bound as an expression over aggregates.

    Parameters
    ----------
    bound
        The call.
    node, keys
        The plan that is aggregated, and the columns by which it is grouped.
    checker
        A checker that knows the names of its columns.

    Raises
    ------
    FjordSqlError
        If there is no such bound, or it is not known.
    """
    context = checker.context
    arguments = bound.expressions
    if len(arguments) == 1 and isinstance(arguments[0], exp.Filter):
        reason = "ERROR_BOUND takes an aggregate without FILTER: which rows count may depend on values that may be off"
        raise context.error(arguments[0], reason, "put the condition into WHERE")
    if len(arguments) != 1 or AGGREGATES.get(type(arguments[0])) is None:
        raise context.error(bound, "ERROR_BOUND takes one aggregate", "ERROR_BOUND(AVG(speed))")
    (call,) = arguments
    name = AGGREGATES[type(call)].name.upper()
    if name == "COMPLETENESS":
        raise context.error(bound, "COMPLETENESS is counted, and never off", "leave ERROR_BOUND out")
    if not node.is_off:
        return _where_known(call, exp.Literal.number("0.0"))
    if not node.rows_are_certain or not all_exact(node, keys):
        raise context.error(
            bound,
            "how far this may be off is not known: which samples count, or in which group, depends on values for "
            "which the query allows an error",
            "allow no error on fields of conditions, of PARTITION BY and of GROUP BY",
        )
    rows = isinstance(call, exp.Count) and isinstance(call.this, exp.Star)
    error = 0.0 if rows else _error(call, node, checker)
    # How many values a field has is known, however far they may be off; whether an expression is NULL may depend on it.
    counts_values = isinstance(call, exp.Count) and not isinstance(call.this, exp.Distinct) and error is not None
    if error == 0 or counts_values:
        return _where_known(call, exp.Literal.number("0.0"))
    if error is not None and isinstance(call, AS_FAR_AS_ITS_VALUES):
        return _where_known(call, exp.Literal.number(repr(error)))
    if error is not None and isinstance(call, exp.Sum):
        many = exp.Count(this=call.this.copy())
        return _where_known(call, exp.Mul(this=exp.Literal.number(repr(error)), expression=many))
    raise context.error(
        bound,
        f"how far this {name} may be off is not known",
        "it is known for COUNT(*), and for COUNT, AVG, SUM, MIN, MAX, FIRST, LAST, MEDIAN and quantiles of a field "
        "as it is",
    )


def _where_known(call: exp.Expr, bound: exp.Expr) -> exp.Expr:
    """Return a bound that is NULL where the aggregate is NULL."""
    known = exp.Not(this=exp.Is(this=call.copy(), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=known, true=bound)])


def _error(call: exp.Expr, node: Node, checker: Checker) -> float | None:
    """Return the allowed error of the column that an aggregate reads; None for an expression or distinct values."""
    if isinstance(call, RANKED):
        by = checker.check(call.expression)
        if by.type is not None and not _exact(scalar_of(by, by.type), node):
            return None  # another tuple may be the right one
    distinct = isinstance(call.this, exp.Distinct)
    argument = call.this.expressions[0] if distinct and len(call.this.expressions) == 1 else call.this
    typed = checker.check(argument)
    if typed.type is None:
        return 0.0
    scalar = scalar_of(typed, typed.type)
    if _exact(scalar, node):
        return 0.0
    name = plain_column(scalar)
    return None if name is None or (distinct and not isinstance(call, exp.Min | exp.Max)) else error_of(node, name)


def _exact(scalar: Scalar, node: Node) -> bool:
    """Return whether an expression over the columns of a node reads none that may be off."""
    return all_exact(node, columns_read(scalar.expression))
