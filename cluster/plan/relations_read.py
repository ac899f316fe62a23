"""Which relations a plan reads."""

from __future__ import annotations

from cluster.language.algebra import Lookup, Node, Relation, Source
from cluster.language.walks import nodes_of
from cluster.shared_nodes import remembered

MEMORY_BYTES = 256 * 1024**2
"""What one table of relations may take of a worker's memory, unless another limit is given."""


@remembered
def relations_of(node: Node) -> tuple[Relation, ...]:
    """Return the relations a plan reads, each once for every set of its columns."""
    found: dict[Relation, None] = {}
    for each in nodes_of(node):
        match each:
            case Relation():
                found[each] = None
            case Source():
                found |= dict.fromkeys(relation for lookup in each.lookups for relation in relations_of(lookup.table))
            case Lookup():
                found |= dict.fromkeys(relations_of(each.table))
    return tuple(found)
