"""Small plans to try rules on."""

from __future__ import annotations

from cluster.operators import Aggregate, Filter, Node, Project, Source, TimeWindow
from cluster.operators.columns import AggregateCall, Column, Output, Scalar
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

INTEGER, BOOLEAN = FieldType.INTEGER, FieldType.BOOLEAN


def source(name: str, *columns: str) -> Source:
    """A stream of whole numbers."""
    return Source(name, tuple(Column(column, INTEGER) for column in columns))


A = source("a", "x", "y")
B = source("b", "u", "v")
C = source("c", "p", "q")
ALSO_A = source("also_a", "x", "y")
"""Another stream with the columns of A."""


def condition(sql: str) -> Scalar:
    """A predicate."""
    return read_scalar(sql, BOOLEAN)


def where(node: Node, sql: str) -> Filter:
    """A selection."""
    return Filter(node, condition(sql))


def pick(node: Node, **outputs: str) -> Project:
    """A projection to integers, name = expression."""
    return Project(node, tuple(Output(name, read_scalar(sql, INTEGER)) for name, sql in outputs.items()))


def prefixed(name: str, prefix: str) -> Project:
    """A stream of columns x and y, called apart from those of others by a prefix."""
    return pick(source(name, "x", "y"), **{f"{prefix}x": '"x"', f"{prefix}y": '"y"'})


def window(node: Node, size_us: int | None, slide_us: int = 1) -> TimeWindow:
    """A time window."""
    return TimeWindow(node, size_us, slide_us)


def call(function: str, column: str | None = None, *, distinct: bool = False) -> AggregateCall:
    """An aggregate of a column, or COUNT(*)."""
    name = f"{function}({column})" if column else function
    return AggregateCall(
        name, function, read_scalar(f'"{column}"', INTEGER) if column else None, INTEGER, distinct=distinct
    )


def grouped(node: Node, keys: str, *calls: AggregateCall) -> Aggregate:
    """Groups; keys as letters."""
    return Aggregate(node, tuple(keys), calls)
