"""ASOF and zipper joins with exactly the columns that the query reads: their values break ties between partners.

Of right tuples with equal stamps, the partner in an ASOF join is the one with the greatest values; in a zipper join, on
both sides, the first is the one with the least. Rules move and remove what is above a join, so what they leave of the
columns depends on how a query is written. Here it is what the query reads as it was written, and no rule removes any of
it later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from msgspec.structs import replace

from cluster.operators import Node, Project, StampJoin, Zip
from cluster.operators.columns import Output
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, null_scalar
from cluster.operators.walks import above, nodes_of
from cluster.plan.expressions import kept
from cluster.planning_budget import spend


def with_partner_columns(node: Node) -> Node:
    """Return a plan, not rewritten yet, in which sides whose columns break ties have only those that are read."""
    if not any(_breaks_ties(each) for each in nodes_of(node)):
        return node
    read = _columns_read(node)
    made: dict[int, Node] = {}

    def visit(current: Node) -> Node:
        found = made.get(id(current))
        if found is None:
            found = above(current, tuple([visit(each) for each in current.inputs]))
            if _breaks_ties(found):
                found = _narrowed(found, read[id(current)])
            made[id(current)] = found
        return found

    return visit(node)


def _breaks_ties(node: Node) -> TypeGuard[Zip | StampJoin]:
    return isinstance(node, Zip) or (isinstance(node, StampJoin) and node.latest)


def _narrowed(join: Zip | StampJoin, read: frozenset[str]) -> Node:
    """Return a join of the same columns, with NULL for those that nothing reads."""
    left, right = (project(side, kept(side, read.union(*join.keys))) for side in (join.left, join.right))
    if isinstance(join, StampJoin):
        left = join.left
    if (left, right) == (join.left, join.right):
        return join
    unread = (join.left.names - left.names) | (join.right.names - right.names)
    outputs = [
        Output(each.name, null_scalar(each) if each.name in unread else column_scalar(each), each.unit)
        for each in join.schema
    ]
    return Project(replace(join, left=left, right=right), tuple(outputs))


def _columns_read(node: Node) -> dict[int, frozenset[str]]:
    """Return which columns of each node of a plan are read, by identity of the node."""
    found: dict[int, frozenset[str]] = {}
    waiting = [(node, node.names)]
    while waiting:
        current, read = waiting.pop()
        known = found.get(id(current))
        if known is not None and read <= known:
            continue
        spend()
        found[id(current)] = read if known is None else known | read
        waiting.extend(_read_below(current, found[id(current)]))
    return found


def _read_below(node: Node, read: frozenset[str]) -> Iterator[tuple[Node, frozenset[str]]]:
    if _breaks_ties(node):
        own = read.union(*node.keys)
        yield from ((side, own & side.names) for side in (node.left, node.right))
    else:
        yield from ((below, needed) for below, needed, _ in node.needed_below(read, ()))
