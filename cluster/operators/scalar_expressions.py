"""Reading, building and rebuilding the scalar expressions of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.expressions import conditions
from cluster.expressions import nodes as expressions
from cluster.expressions.nodes import NULL, Cast, Expression, bare, grouped
from cluster.expressions.walks import column_uses as uses_in
from cluster.expressions.walks import columns_read, node_count
from cluster.expressions.walks import substituted as with_columns
from cluster.operators.columns import Column, Output, Scalar
from protocols.wire.streams import FieldType

MOST_NODES = 2_000
"""Most nodes of an expression; substitution stops where an expression would get larger."""


def column_scalar(column: Column) -> Scalar:
    """Return the expression that is just `column`."""
    return Scalar(expressions.Column(column.name), column.type)


def null_scalar(column: Column) -> Scalar:
    """Return NULL of the type of `column`."""
    return Scalar(Cast(NULL, column.type), column.type)


def passed_on(columns: Iterable[Column]) -> tuple[Output, ...]:
    """Return the outputs of a projection that pass columns on unchanged."""
    return tuple(Output(column.name, column_scalar(column), column.unit) for column in columns)


def plain_column(scalar: Scalar) -> str | None:
    """Return the name of the column that `scalar` is, or None if it is more than a column.

    >>> from protocols.wire.streams import FieldType
    >>> speed = expressions.Column("speed")
    >>> plain_column(Scalar(speed, FieldType.REAL))
    'speed'
    >>> plain_column(Scalar(expressions.Negative(speed), FieldType.REAL)) is None
    True
    """
    return scalar.expression.name if isinstance(scalar.expression, expressions.Column) else None


def columns_of(scalar: Scalar) -> frozenset[str]:
    """Return the columns that `scalar` reads."""
    return columns_read(scalar.expression)


def columns_of_all(scalars: Iterable[Scalar]) -> frozenset[str]:
    """Return the columns that any of these reads."""
    return frozenset().union(*(columns_of(scalar) for scalar in scalars))


def column_uses(scalar: Scalar) -> Mapping[str, int]:
    """Return how often `scalar` reads each column."""
    return uses_in(scalar.expression)


def conjuncts_of(scalar: Scalar | None) -> tuple[Scalar, ...]:
    """Return the different conditions that AND connects in `scalar`; none if it is None."""
    if scalar is None:
        return ()
    return tuple([_condition(each) for each in conditions.conjuncts(scalar.expression)])


def disjuncts_of(scalar: Scalar) -> tuple[Scalar, ...]:
    """Return the conditions that OR connects in `scalar`."""
    return tuple([_condition(each) for each in conditions.disjuncts(scalar.expression)])


def conjunction_of(scalars: Iterable[Scalar]) -> Scalar | None:
    """Return the conjunction of `scalars`, without repetitions; None if there are none."""
    found = conditions.all_of(scalar.expression for scalar in scalars)
    return None if found is None else _condition(found)


def substituted(scalar: Scalar, outputs: Mapping[str, Scalar]) -> Scalar | None:
    """Return `scalar` with every column replaced by its expression; None if that gets too large.

    A part that occurs in several places is shared: work and size grow with the number of parts, not of places.
    """
    read = columns_of(scalar)
    own = node_count(scalar.expression)
    grown = own + sum(node_count(outputs[name].expression) - 1 for name in read)
    if grown > MOST_NODES and grown > own:
        return None
    columns = {name: grouped(outputs[name].expression) for name in read}
    return Scalar(bare(with_columns(scalar.expression, columns)), scalar.type)


def by_name(outputs: Iterable[Output]) -> dict[str, Scalar]:
    """Return the expressions of `outputs` by name."""
    return {output.name: output.scalar for output in outputs}


def _condition(expression: Expression) -> Scalar:
    return Scalar(expression, FieldType.BOOLEAN)
