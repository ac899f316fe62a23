"""The relations that a plan reads, and the functions of users that it calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from cluster.expressions.user_functions import UserFunction
from cluster.expressions.walks import functions_called
from cluster.operators import Lookup, Node, Source, TableLookup
from cluster.operators.columns import Scalar
from cluster.operators.walks import nodes_of
from cluster.shared_nodes import SharedNode, remembered

MEMORY_BYTES = 256 * 1024**2
"""How much of a worker's memory one table of relations may take, unless another limit is given."""


@dataclass(frozen=True, slots=True)
class RelationSize:
    """Statistics of a relation's newest version.

    Parameters
    ----------
    rows, bytes
        Its size; the bytes are those of its columns in memory.
    distinct
        By column: about how many different values it has; columns for which this is not known are missing.
    """

    rows: int
    bytes: int
    distinct: Mapping[str, int] = field(default_factory=dict)


def large_relations(sizes: Mapping[str, RelationSize], memory_bytes: int) -> frozenset[str]:
    """Return the relations that are too large for every worker to hold them completely, by identity."""
    return frozenset(identity for identity, size in sizes.items() if size.bytes > memory_bytes)


SLICES_IN_MEMORY = 4
"""A slice of a table beyond memory takes at most this fraction of the memory of a table."""


def slices_of(size_bytes: int, memory_bytes: int, buckets: int) -> int:
    """Return the number of slices of a table beyond memory: a multiple of the number of buckets."""
    return buckets * math.ceil(SLICES_IN_MEMORY * size_bytes / memory_bytes / buckets)


@remembered
def functions_of(node: Node) -> frozenset[UserFunction]:
    """Return the functions of users that a plan calls, in its own nodes and in tables that it looks up."""
    found: set[UserFunction] = set()
    for each in nodes_of(node):
        found |= called_by(_in_fields(each))
        for lookup in _lookups(each):
            found |= functions_of(lookup.table)
    return frozenset(found)


def called_by(scalars: Iterable[Scalar | None]) -> frozenset[UserFunction]:
    """Return the functions of users that some expressions call."""
    return frozenset[UserFunction]().union(*(functions_called(each.expression) for each in scalars if each is not None))


def _lookups(node: Node) -> tuple[TableLookup | Lookup, ...]:
    match node:
        case Source():
            return node.lookups
        case Lookup():
            return (node,)
        case _:
            return ()


def scalars_in(part: object) -> Iterator[Scalar]:
    """Yield the expressions in a node, or in a part of it; not those of nodes below."""
    match part:
        case Scalar():
            yield part
        case tuple():
            for each in part:
                yield from scalars_in(each)
        case msgspec.Struct() if not isinstance(part, SharedNode):
            yield from _in_fields(part)


def _in_fields(part: msgspec.Struct | Node) -> Iterator[Scalar]:
    for name in part.__struct_fields__:
        yield from scalars_in(getattr(part, name))
