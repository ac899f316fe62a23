"""Into how many slices the table of a relation beyond memory is cut."""

from __future__ import annotations

import math

SLICES_IN_MEMORY = 4
"""A slice of a table beyond memory takes at most one part in so many of what a table may take."""


def slices_of(size_bytes: int, memory_bytes: int, buckets: int) -> int:
    """Return into how many slices a table beyond memory is cut: a multiple of the number of buckets."""
    return buckets * math.ceil(SLICES_IN_MEMORY * size_bytes / memory_bytes / buckets)
