"""What is known of how large relations are, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
