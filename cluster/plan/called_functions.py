"""The functions of users that a plan calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cluster.expressions.user_functions import UserFunction
from cluster.expressions.walks import functions_called
from cluster.operators import Lookup, Node, Source, TableLookup
from cluster.operators.columns import Scalar
from cluster.operators.walks import nodes_of
from cluster.shared_nodes import SharedNode, remembered


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
