"""What a query needs of the sensors: fields and sample period per stream, derived from its plan."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from cluster.language.algebra import (
    STAMP,
    Aggregate,
    AntiJoin,
    Difference,
    Distinct,
    Dstream,
    Filter,
    Intersection,
    Istream,
    Join,
    Node,
    PartitionedWindow,
    Project,
    Scalar,
    SemiJoin,
    Source,
    Union,
    inputs_of,
    schema_of,
)
from cluster.language.dialect import parse_scalar
from protocols.demands import QueryDemand


def demands_of(query: str, node: Node) -> dict[str, tuple[QueryDemand, ...]]:
    """Return, by stream, what a query needs of it.

    Occurrences of a stream with one sample period are one demand for all the fields they read. An explicit period and
    the sensor's default cannot be compared here, as only the proxy knows the default: they stay apart.
    """
    fields: dict[str, dict[int | None, set[str]]] = {}
    for source, needed in _needs(node, {column.name for column in schema_of(node)}):
        fields.setdefault(source.stream, {}).setdefault(source.sample_period_us, set()).update(needed)
    return {
        stream: tuple(
            QueryDemand(query, tuple(sorted(by_period[period])), period)
            for period in sorted(by_period, key=lambda period: (period is None, period))
        )
        for stream, by_period in fields.items()
    }


def streams_of(node: Node) -> frozenset[str]:
    """Return the names of the streams a plan reads."""
    if isinstance(node, Source):
        return frozenset({node.stream})
    return frozenset().union(*(streams_of(child) for child in inputs_of(node)))


def columns_of(scalar: Scalar) -> frozenset[str]:
    """Return the columns a scalar expression reads."""
    return frozenset(column.name for column in parse_scalar(scalar.sql).find_all(exp.Column))


def _needs(node: Node, wanted: set[str]) -> Iterable[tuple[Source, set[str]]]:
    """Yield each source below `node` with the columns needed of it, if `wanted` are needed of the node's output."""
    match node:
        case Source():
            yield node, wanted & {column.name for column in node.columns if column != STAMP}
        case Project():
            scalars = [output.scalar for output in node.outputs if output.name in wanted]
            yield from _needs(node.input, _columns(scalars))
        case Filter():
            yield from _needs(node.input, wanted | columns_of(node.predicate))
        case Aggregate():
            arguments = [scalar for call in node.calls if call.name in wanted for scalar in call.reads]
            yield from _needs(node.input, set(node.keys) | _columns(arguments))
        case PartitionedWindow():
            yield from _needs(node.input, wanted | set(node.keys))
        case Join() | SemiJoin() | AntiJoin():
            needed = wanted | (columns_of(node.predicate) if node.predicate else set())
            for side in (node.left, node.right):
                yield from _needs(side, needed & {column.name for column in schema_of(side)})
        case Union():
            places = [place for place, column in enumerate(schema_of(node)) if column.name in wanted]
            for side in (node.left, node.right):
                yield from _needs(side, {schema_of(side)[place].name for place in places})
        case Distinct() | Difference() | Intersection() | Istream() | Dstream():
            # Equality of whole tuples: every column matters.
            for side in inputs_of(node):
                yield from _needs(side, {column.name for column in schema_of(side)})
        case _:
            for side in inputs_of(node):
                yield from _needs(side, wanted)


def _columns(scalars: Iterable[Scalar]) -> set[str]:
    return set().union(*(columns_of(scalar) for scalar in scalars))
