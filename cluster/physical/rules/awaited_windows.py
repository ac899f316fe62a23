"""Windows by count, ranks and extents whose progress operators above wait for: their tuples are cut at the watermark.

A stateless operator forwards its input. Every other one waits: it answers what its inputs' watermarks have passed, and
keeps the rest. At the top of a plan nothing waits, and a tuple is answered once, when its end is known.
"""

from __future__ import annotations

from cluster.operators import Node

MOST_LAG_US = 1_000_000
"""How far such a window may lag behind its input, in application time, before it cuts its tuples: 1 s."""


def awaited_windows(root: Node) -> frozenset[Node]:
    """Return a plan's windows whose tuples wait for later ones, ranks and extents, for whose progress another waits."""
    found: set[Node] = set()
    seen: set[tuple[Node, bool]] = set()
    to_see = [(root, False)]
    while to_see:
        node, awaited = to_see.pop()
        if (node, awaited) in seen:
            continue
        seen.add((node, awaited))
        if awaited and node.is_cut_at_watermarks:
            found.add(node)
        waits = awaited or node.waits_for_progress
        to_see.extend((each, waits) for each in node.inputs)
    return frozenset(found)
