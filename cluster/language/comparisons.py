"""Simple conditions on the columns of a relation, which every source can evaluate, by an index if it has one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from cluster.language.conditions import SWAPPED
from cluster.language.syntax import place_of
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context

Value = bool | int | float | str
Operator = Literal["=", "<", "<=", ">", ">=", "in", "is null", "is not null"]

_OPERATORS: dict[type[exp.Expr], Operator] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_KINDS: dict[FieldType, tuple[type, str]] = {
    FieldType.BOOLEAN: (bool, "TRUE and FALSE"),
    FieldType.INTEGER: (float, "numbers"),
    FieldType.REAL: (float, "numbers"),
    FieldType.TEXT: (str, "texts in quotes"),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A simple predicate on one column. Conjunctions of them are tuples.

    Parameters
    ----------
    column
        Name of a column of the relation.
    operator
        How it is compared.
    values
        One; any number for ``in``; none for the tests for NULL.
    """

    column: str
    operator: Operator
    values: tuple[Value, ...] = ()

    def objection(self, type_: FieldType) -> str | None:
        """Return why a column of a type cannot be compared in this way; None if it can."""
        kind, values = _KINDS[type_]
        if any((float if type(each) is int else type(each)) is not kind for each in self.values):
            return f"column {self.column!r} is {type_.value} and compared with {values} only"
        if type_ is FieldType.BOOLEAN and self.operator in ("<", "<=", ">", ">="):
            return f"column {self.column!r} is boolean and has no order"
        return None


@dataclass(frozen=True, slots=True)
class WrittenComparison:
    """A comparison as it is written in a text, with the column's name as written there."""

    comparison: Comparison
    span: tuple[int, int]


def comparisons_of(condition: exp.Expr, context: Context) -> Iterator[WrittenComparison]:
    """Yield the comparisons of which a condition consists; all of them have to hold.

    Raises
    ------
    FjordSqlError
        If it contains anything else.
    """
    match condition:
        case exp.And():
            yield from comparisons_of(condition.left, context)
            yield from comparisons_of(condition.right, context)
        case exp.Paren():
            yield from comparisons_of(condition.this, context)
        case _:
            for literal in condition.find_all(exp.Literal):
                value_of(literal, context)
            found = list(_simple(condition))
            if not found:
                raise context.error(
                    condition,
                    "the WHERE of a relation compares columns with values: =, <, <=, >, >=, BETWEEN, IN, IS NULL, "
                    "joined by AND",
                    "a database can filter by more: QUERY 'SELECT ... WHERE ...'",
                )
            span = place_of(condition.find(exp.Column) or condition)
            yield from (WrittenComparison(each, span) for each in found)


def _simple(test: exp.Expr) -> Iterator[Comparison]:
    """Yield the comparisons of one test; none if it is not a simple one."""
    match test:
        case exp.Column():
            yield from _compared(test, "=", [exp.true()])
        case exp.Not(this=exp.Column() as column):
            yield from _compared(column, "=", [exp.false()])
        case exp.Is(this=exp.Column() as column, expression=exp.Null()):
            yield from _compared(column, "is null", [])
        case exp.Not(this=exp.Is(this=exp.Column() as column, expression=exp.Null())):
            yield from _compared(column, "is not null", [])
        case exp.In(this=exp.Column() as column) if test.args.get("query") is None:
            yield from _compared(column, "in", test.expressions)
        case exp.Between(this=exp.Column() as column) if test.args.get("symmetric") is None:
            both = [
                each
                for operator, part in ((">=", "low"), ("<=", "high"))
                for each in _compared(column, operator, [test.args[part]])  # type: ignore[arg-type] # two of them
            ]
            yield from both if len(both) == 2 else []  # noqa: PLR2004 - from below and from above
        case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            operator = _OPERATORS[type(test)]
            if isinstance(test.this, exp.Column):
                yield from _compared(test.this, operator, [test.expression])
            elif isinstance(test.expression, exp.Column):
                yield from _compared(test.expression, _OPERATORS[SWAPPED[type(test)]], [test.this])


def _compared(column: exp.Column, operator: Operator, values: list[exp.Expr]) -> Iterator[Comparison]:
    meant = [_value(each) for each in values]
    known = tuple(each for each in meant if each is not None)
    if len(column.parts) == 1 and len(known) == len(meant):
        yield Comparison(column.name, operator, known)


def _value(tree: exp.Expr) -> Value | None:
    """Return a literal's value; None if the expression is not a literal."""
    match tree:
        case exp.Boolean():
            return bool(tree.this)
        case exp.Literal():
            return _literal(tree)
        case exp.Neg(this=exp.Literal() as literal) if not literal.is_string:
            positive = _value(literal)
            return -positive if isinstance(positive, int | float) else None
        case _:
            return None


def value_of(literal: exp.Literal, context: Context) -> int | float | str:
    """Return the number or text of a literal.

    Raises
    ------
    FjordSqlError
        If a number does not fit 64 bits.
    """
    value = _literal(literal)
    if not isinstance(value, str) and (abs(value) == math.inf or (isinstance(value, int) and value >= 2**63)):
        raise context.error(literal, "this number does not fit 64 bits")
    return value


def _literal(literal: exp.Literal) -> int | float | str:
    text = str(literal.this)
    if literal.is_string:
        return text
    return int(text) if text.isdigit() else float(text)
