"""Rows of values in conditions: ``(a, b) IN ((1, 2), (3, 4))``.

It is ``a = 1 AND b = 2 OR a = 3 AND b = 4``, also where values are NULL: so standard SQL defines it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.typing_rules import Typed
from cluster.planning_budget import spend
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.operand_checks import OperandChecker


def row_in_list(checker: OperandChecker, expression: exp.In) -> Typed:
    """Return IN of a row over a list of rows, as comparisons connected by AND and OR.

    Raises
    ------
    FjordSqlError
        If the list holds something else than rows of as many values, or values do not compare.
    """
    if not expression.this.expressions:
        raise checker.context.error(expression, "a row has one value or more", "(a, b) IN ((1, 2), (3, 4))")
    values = [checker.check(each) for each in expression.this.expressions]
    nullable = any(value.nullable for value in values)
    rows: list[exp.Expr] = []
    for row in expression.expressions:
        if not isinstance(row, exp.Tuple) or len(row.expressions) != len(values):
            reason = f"a row of {len(values)} values was expected here"
            raise checker.context.error(row, reason, "(a, b) IN ((1, 2), (3, 4))")
        others = [checker.check(each) for each in row.expressions]
        nullable |= any(other.nullable for other in others)
        tests: list[exp.Expr] = []
        for value, other in zip(values, others, strict=True):
            spend()
            checker.common(row, [value, other], action="compare")
            left, right = (_apart(each.expression.copy()) for each in (value, other))
            tests.append(exp.EQ(this=left, expression=right))
        rows.append(exp.Paren(this=_connected(exp.And, tests)))
    return Typed(exp.Paren(this=_connected(exp.Or, rows)), FieldType.BOOLEAN, nullable=nullable)


def _apart(value: exp.Expr) -> exp.Expr:
    return value if isinstance(value, exp.Column | exp.Literal | exp.Null | exp.Boolean) else exp.Paren(this=value)


def _connected(word: type[exp.Connector], parts: list[exp.Expr]) -> exp.Expr:
    """Return conditions connected in halves: lists may be long, and trees must not be deep."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return word(this=_connected(word, parts[:middle]), expression=_connected(word, parts[middle:]))
