"""Families of panes: which windowed aggregates of one stream by the same keys share panes, and which do not. Pure.

    common family    1 min every 10 s, 5 min every 10 s, 61 s every 7 s      panes of 1 s for all of them

    common family    1 min every 10 s, 5 min every 10 s                      panes of 10 s
    family of 1 s    61 s every 7 s                                          panes of 1 s, from the same tuples

Panes are as wide as the greatest common divisor of all windows of a family. A family is named by a width; its windows
are those that were put there, and each of them consists of whole panes of this width. So windows of the same own panes
meet in one family, and windows of two or three times as wide panes may join them. Answers are the same in each.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from cluster.operators import Node, TimeWindow
from cluster.operators.walks import rebuilt
from cluster.plan.pane_query import pane_query_of
from cluster.shared_nodes import remembered
from protocols.text.durations import format_duration

MOST_PARTS = 6
"""A window may be made of panes that are up to so many times as narrow as its own."""


@remembered
def families_of(plan: Node) -> tuple[int, ...]:
    """Return the families, by width in microseconds, that a windowed aggregate may join; none of any other plan."""
    windowed = pane_query_of(plan)
    if windowed is None:
        return ()
    own_us = windowed.own_pane_us
    return tuple(own_us // parts for parts in range(1, MOST_PARTS + 1) if own_us % parts == 0)


def with_family(plan: Node, family_us: int | None) -> Node:
    """Return a windowed aggregate with its window in a family; None for the common one."""
    wanted = UNSET if family_us is None else family_us

    def placed(node: Node) -> Node:
        return replace(node, family_us=wanted) if isinstance(node, TimeWindow) and node.family_us != wanted else node

    return rebuilt(plan, placed)


def differ_in_families_only(one: Node, other: Node) -> bool:
    """Return whether two plans are windowed aggregates that share panes with others, and are the same apart from that.

    Their rows are the same then, each with the same interval.
    """
    return pane_query_of(one) is not None and with_family(one, None) == with_family(other, None)


def pane_families(plan: Node) -> Iterator[tuple[Node, str]]:
    """Yield a windowed aggregate with its panes in each family that it may join, and in words what is different."""
    for family_us in families_of(plan):
        words = f"panes are shared in the family of {format_duration(family_us)} only"
        yield with_family(plan, family_us), words
