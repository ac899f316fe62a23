"""The plans that answer a query, reached by rules from the one that is planned without costs. Pure.

They are numbered in the order in which they are reached, which depends on that plan alone: a number means the same
plan, whatever runs and however costs change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.operators import (
    CountWindow,
    KeptExtent,
    Lookup,
    Node,
    PartitionedWindow,
    PatternMatch,
    Sequence,
    SessionWindow,
    StampJoin,
    UntilNext,
    Zip,
)
from cluster.operators.walks import nodes_of, rebuilt
from cluster.plan.called_functions import functions_of
from cluster.plan.extent_keeping import extents_kept
from cluster.plan.history import has_own_beginning
from cluster.plan.join_orders import inner_parts
from cluster.plan.pane_families import pane_families
from cluster.plan.rewrite import rewrite
from cluster.plan.variations import VARIATIONS, aggregate_before_join, join_orders, lookup_orders
from cluster.planning_budget import spend

MOST = 1_000
"""Plans that are looked at of one query; there are 945 orders of six streams of which each is joined with each."""
MOST_CHANGES = 2
"""Places of a plan that are written differently at once."""
AS_PLANNED = "as planned without costs"
_Windows = CountWindow | PartitionedWindow | SessionWindow | KeptExtent
_BY_ORDER = _Windows | UntilNext | Zip | PatternMatch | StampJoin | Sequence
"""What depends on the order in which rows come, or on where they begin: parts below stay as they are."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan of a query.

    Parameters
    ----------
    node
        The plan; at every instant it has the rows of the others, with the same columns.
    changes
        What is different from the first one, place by place.
    """

    node: Node
    changes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What is different, in words."""
        return "; ".join(self.changes) or AS_PLANNED


def alternatives(plan: Node, *, most: int = MOST) -> tuple[Alternative, ...]:
    """Return the plans of a query, the given one first.

    Parameters
    ----------
    plan
        The plan, rewritten.
    most
        Further ones are not looked for.

    Raises
    ------
    PlanningLimitError
        If it takes longer than planning may.
    """
    found = {plan: Alternative(plan)}
    if has_own_beginning(plan) or functions_of(plan):
        # The past is read once, and a function may fail for rows that another plan gives it.
        return tuple(found.values())
    newest = [(0, found[plan])]
    for _ in range(MOST_CHANGES):
        before, newest = newest, []
        for first, each in before:
            for rank, other in _varied(each, first):
                if other.node not in found and other.node.schema == plan.schema:
                    found[other.node] = other
                    newest.append((rank, other))
                    if len(found) >= most:
                        return tuple(found.values())
    return tuple(found.values())


def _varied(given: Alternative, first: int) -> Iterator[tuple[int, Alternative]]:
    """Yield plans that differ from one in one place, each with the place of its variation among all.

    Parameters
    ----------
    given
        The plan.
    first
        The place of the first variation to try: those before it have been tried on another plan that leads to the same.
    """
    plan = given.node
    inner, kept = inner_parts(plan), _kept(plan)
    looked_up = any(isinstance(each, Lookup) for each in nodes_of(plan))
    for rank, variation in list(enumerate(VARIATIONS))[first:]:
        if looked_up and variation is not lookup_orders:
            continue  # it matters where the rows begin that are looked up
        for node in nodes_of(plan):
            if id(node) in kept or (variation is join_orders and id(node) in inner):
                continue
            if variation in (pane_families, extents_kept) and node is not plan:
                continue  # what shares panes or extents is a whole query
            for changed, words in variation(node):
                spend()
                other = _replaced(plan, node, changed)
                tidy = rewrite(other).node if variation is aggregate_before_join else other
                # All orders of joins are reached from the first plan.
                yield max(rank, 1), Alternative(tidy, (*given.changes, words))


def _replaced(plan: Node, part: Node, changed: Node) -> Node:
    return rebuilt(plan, lambda each: changed if each is part else each)


def _kept(plan: Node) -> frozenset[int]:
    """Return the identities of the nodes below operators that depend on the order of rows, and of these operators."""
    return frozenset(id(below) for node in nodes_of(plan) if isinstance(node, _BY_ORDER) for below in nodes_of(node))
