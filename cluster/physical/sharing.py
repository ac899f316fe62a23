"""What a query would share with running queries, in words."""

from __future__ import annotations

from cluster.errors import PlanError
from cluster.operators import Node
from cluster.physical.lowering import with_query
from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.operations import Panes
from cluster.physical.words import named, queries_counted
from cluster.plan.epoch import PlannedQuery
from protocols.text.durations import format_duration


def sharing_of(node: Node, running: PhysicalPlan) -> str:
    """Return in words what a plan would share.

    Parameters
    ----------
    node
        The rewritten plan of the query.
    running
        The running plan.
    """
    try:
        after = with_query(running, PlannedQuery("", running.epoch + 1, node))
    except PlanError:
        return "  nothing: it would be refused"
    own = after.by_query[f"@{after.epoch}"]
    lines = []
    others = [each.query for each in own.subscribers[:-1]]
    if others:
        with_them = f"with {queries_counted(len(others))}: {named(others)}"
        lines.append(f"{_what(own)} {with_them}")
    beside = [each for each in running.fragments if each.host is own.host]
    for stream in sorted(own.streams):
        subscribers = (each for fragment in beside if stream in fragment.streams for each in fragment.subscribers)
        readers = [each.query for each in sorted(subscribers, key=lambda each: each.visible_from)]
        if readers:
            lines.append(f"the scan of {stream} with {queries_counted(len(readers))}: {named(readers)}")
    return "\n".join(f"  {line}" for line in lines) if lines else "  nothing: no running query has anything in common"


def _what(fragment: Fragment) -> str:
    widths = [node.operation.width_us for node in fragment.nodes if isinstance(node.operation, Panes)]
    return f"panes of {format_duration(widths[0])}" if widths else "all but its conditions"
