"""Which relations a plan reads."""

from __future__ import annotations

from cluster.language.algebra import Lookup, Node, Relation, Source, inputs_of

MEMORY_BYTES = 256 * 1024**2
"""What one table of relations may take of a worker's memory, unless another limit is given."""


def relations_of(node: Node) -> tuple[Relation, ...]:
    """Return the relations a plan reads, each once for every set of its columns."""
    found: dict[Relation, None] = {}
    _gather(node, found)
    return tuple(found)


def _gather(node: Node, found: dict[Relation, None]) -> None:
    match node:
        case Relation():
            found[node] = None
        case Source():
            for lookup in node.lookups:
                _gather(lookup.table, found)
        case Lookup():
            _gather(node.table, found)
    for each in inputs_of(node):
        _gather(each, found)
