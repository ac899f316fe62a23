"""Windows whose progress others wait for: tuples are cut at watermarks, and where they began is passed on. Pure.

**Windows by count, ranks and extents whose progress operators above wait for: their tuples are cut at the watermark.**

A stateless operator forwards its input. Every other one waits: it answers what its inputs' watermarks have passed, and
keeps the rest. At the top of a plan nothing waits, and a tuple is answered once, when its end is known.

**Which operators pass on where rows began that are cut at watermarks: those from the cuts up to lookups.**

    filter                       none       what it reads has no origins
    |- lookup in r               dropped    each piece is looked up where its row began, by its origin
       |- aggregate              kept
          |- until the next      kept       cuts rows at watermarks

Where a row that waits is cut depends on how tuples come in batches (cluster/physical/rules/pieces.py). A
relation may have changed between two cuts, so a lookup needs to know which pieces are of one row. Snapshots do not
depend on cuts, so nothing else does. Plans without a lookup above a cut are as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from cluster.operators import Node
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode, Origins
from cluster.physical.operations import Operation

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


_PASSES_ON = (
    kinds.Filter
    | kinds.PerQueryFilter
    | kinds.Project
    | kinds.TimeWindow
    | kinds.GridWindow
    | kinds.WindowBounds
    | kinds.Granularity
    | kinds.PartialAggregate
    | kinds.MergeAggregate
    | kinds.Union
    | kinds.Distinct
    | kinds.Difference
    | kinds.Intersection
    | kinds.Join
    | kinds.SemiJoin
    | kinds.Ranked
    | kinds.Lookup
)
"""What answers pieces if it is given pieces. All others answer rows of instants, or cut rows anyway."""
_ROW_BY_ROW = kinds.Filter | kinds.PerQueryFilter | kinds.Project
"""What leaves rows in the order in which they begin and end: tuples of one window, behind the exchange."""


def with_origins(nodes: Sequence[OperatorNode]) -> tuple[OperatorNode, ...]:
    """Return the nodes of a fragment, each with whether its rows have origins.

    Parameters
    ----------
    nodes
        Inputs before what reads them.
    """
    pieces: set[str] = set()
    in_order: set[str] = set()
    for node in nodes:
        below = any(each in pieces for each in _cut_inputs(node))
        if isinstance(node.operation, kinds.Reorder) or (
            isinstance(node.operation, _ROW_BY_ROW) and node.inputs[0] in in_order
        ):
            in_order.add(node.id)
        # Which of equal rows is there first depends on how they come, where they do not end as they begin.
        takes_turns = isinstance(node.operation, kinds.Distinct) and node.inputs[0] not in in_order
        if cuts(node.operation) or takes_turns or (below and isinstance(node.operation, _PASSES_ON)):
            pieces.add(node.id)
    needed: set[str] = set()
    for node in reversed(nodes):
        if node.id in needed or isinstance(node.operation, kinds.Lookup):
            needed.update(each for each in _cut_inputs(node) if each in pieces)
    if not needed:
        return tuple(nodes)
    return tuple(replace(node, origins=_origins(node, needed)) for node in nodes)


def cuts(operation: Operation) -> bool:
    """Return whether an operation cuts rows at watermarks: where, depends on how tuples come in batches."""
    match operation:
        case kinds.UntilNext():
            return operation.lag_us is not None and operation.bounds is None
        case kinds.SessionWindow():
            return operation.lag_us is not None and operation.session.early
        case kinds.CountWindow() | kinds.Ranked() | kinds.Extent() | kinds.KeptExtent():
            return operation.lag_us is not None
        case _:
            return isinstance(operation, kinds.Held)


def _cut_inputs(node: OperatorNode) -> Iterable[str]:
    """Return the inputs of a node on whose pieces it depends where its own rows begin."""
    match node.operation:
        case kinds.SemiJoin():
            return node.inputs[:1]  # of the right, all that counts is where some row is valid
        case operation if isinstance(operation, _PASSES_ON):
            return node.inputs
        case _:
            return ()


def _origins(node: OperatorNode, needed: set[str]) -> Origins:
    if node.id in needed:
        return "kept"
    return "dropped" if any(each in needed for each in node.inputs) else "none"
