"""Which relations a plan reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class RelationSize:
    """What is known of a relation's newest version.

    Parameters
    ----------
    rows, bytes
        Its size; the bytes are those of its columns in memory.
    distinct
        By column: about how many different values it has; columns of which that is not known are not there.
    """

    rows: int
    bytes: int
    distinct: Mapping[str, int] = field(default_factory=dict)


def large_relations(sizes: Mapping[str, RelationSize], memory_bytes: int) -> frozenset[str]:
    """Return the relations that are too large for every worker to have them whole, by identity."""
    return frozenset(identity for identity, size in sizes.items() if size.bytes > memory_bytes)


SLICES_IN_MEMORY = 4
"""A slice of a table beyond memory takes at most one part in so many of what a table may take."""


def slices_of(size_bytes: int, memory_bytes: int, buckets: int) -> int:
    """Return into how many slices a table beyond memory is cut: a multiple of the number of buckets."""
    return buckets * math.ceil(SLICES_IN_MEMORY * size_bytes / memory_bytes / buckets)
