"""The relations that a plan reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

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
