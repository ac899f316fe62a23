"""What a plan needs of its inputs: which of their columns, and tuples that meet which conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from cluster.language.algebra import (
    Aggregate,
    AntiJoin,
    Difference,
    Distinct,
    Dstream,
    Extent,
    Filter,
    Held,
    Intersection,
    Istream,
    Join,
    KeptExtent,
    Lookup,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    Ranked,
    SemiJoin,
    Sequence,
    SessionWindow,
    StampJoin,
    TimeWindow,
    Union,
    UntilNext,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.columns import Scalar
from cluster.plan.expressions import columns_of, conjuncts_of, names_of, substituted

Conditions = tuple[Scalar, ...]

N = TypeVar("N", bound=Node)
Need = tuple[N, frozenset[str], Conditions]
"""A part of a plan, the needed ones of its columns, and conditions that all needed tuples meet."""


def needed_below(  # noqa: C901, PLR0912 - a case per kind of node
    node: Node, wanted: frozenset[str], conditions: Conditions
) -> Iterator[Need[Node]]:
    """Yield each input of a node with the needed part of it.

    Parameters
    ----------
    node
        The node.
    wanted
        What is needed of its columns.
    conditions
        Met by all tuples that are needed of it.
    """
    match node:
        case Project():
            outputs = {output.name: output.scalar for output in node.outputs}
            below = [substituted(condition, outputs) for condition in conditions]
            known = tuple(condition for condition in below if condition is not None)
            scalars = [scalar for name, scalar in outputs.items() if name in wanted]
            yield node.input, columns_of_all(scalars), known
        case Filter():
            here = (*conditions, *conjuncts_of(node.predicate))
            yield node.input, wanted | columns_of(node.predicate), here
        case TimeWindow():
            # The tuples in a window of time do not depend on each other.
            yield node.input, wanted, conditions
        case Aggregate():
            arguments = [scalar for call in node.calls if call.name in wanted for scalar in call.reads]
            yield node.input, frozenset(node.keys) | columns_of_all(arguments), ()
        case Extent():
            yield node.input, frozenset(node.keys) | node.coalescing.reads, ()
        case Ranked():
            read = frozenset((*node.keys, *(each.column for each in node.order)))
            yield node.input, (wanted & names_of(node.input)) | read, ()
        case PartitionedWindow() | SessionWindow() | UntilNext():
            yield node.input, (wanted & names_of(node.input)) | frozenset(node.keys), ()
        case Lookup():
            needed = wanted | (columns_of(node.predicate) if node.predicate else frozenset())
            yield node.input, needed & names_of(node.input), ()
        case Held():
            # Only the time of these streams matters.
            yield node.input, frozenset(), ()
        case Join() | Zip() | StampJoin() | SemiJoin() | AntiJoin():
            # The pairs of a zipper join depend on all tuples: no condition from above holds below.
            needed = wanted | _read_of_pairs(node)
            for side in (node.left, node.right):
                yield side, needed & names_of(side), ()
        case Union():
            places = [place for place, column in enumerate(schema_of(node)) if column.name in wanted]
            for side in (node.left, node.right):
                yield side, frozenset(schema_of(side)[place].name for place in places), ()
        case (
            Distinct()
            | Difference()
            | Intersection()
            | Istream()
            | Dstream()
            | PatternMatch()
            | Sequence()
            | KeptExtent()
        ):
            # Equality of whole tuples, or their order: every column matters.
            for side in inputs_of(node):
                yield side, names_of(side), ()
        case _:
            for side in inputs_of(node):
                yield side, wanted, ()


def _read_of_pairs(node: Join | Zip | StampJoin | SemiJoin | AntiJoin) -> frozenset[str]:
    keys = frozenset().union(*node.keys) if isinstance(node, Zip | StampJoin) else frozenset()
    if isinstance(node, StampJoin) and node.latest:
        return keys | names_of(node.right)  # all break ties: cluster/plan/partner_columns.py
    return keys if isinstance(node, Zip) or not node.predicate else keys | columns_of(node.predicate)


def columns_of_all(scalars: Iterable[Scalar]) -> frozenset[str]:
    """Return the columns that any of these reads."""
    return frozenset().union(*(columns_of(scalar) for scalar in scalars))
