"""What a query would share with those that run already, in words."""

from __future__ import annotations

from cluster.language.algebra import Node
from cluster.plan.demand import streams_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.folding import fold
from cluster.plan.hosts import host_of, hosted_by
from cluster.plan.picture import named, queries_counted
from protocols.durations import format_duration


def sharing_of(node: Node, running: Plan) -> str:
    """Say what a plan would share.

    Parameters
    ----------
    node
        The rewritten plan of the query.
    running
        The plan it would join.
    """
    running = hosted_by(running, host_of(node))
    query = PlannedQuery("", running.epoch + 1, node)
    folded = fold(Plan(running.epoch + 1, (*running.queries, query)))
    lines = []
    for panes in folded.panes:
        others = [member.query.name for member in panes.members if member.query != query]
        if len(others) < len(panes.members) and others:
            width = format_duration(panes.pane_us)
            lines.append(f"panes of {width} with {queries_counted(len(others))}: {named(others)}")
    for each in folded.folds:
        others = [member.query.name for member in each.members if member.query != query]
        if len(others) < len(each.members) and others:
            lines.append(f"all but its conditions with {queries_counted(len(others))}: {named(others)}")
    for stream in sorted(streams_of(node)):
        readers = [each.name for each in running.queries if stream in streams_of(each.node)]
        if readers:
            lines.append(f"the scan of {stream} with {queries_counted(len(readers))}: {named(readers)}")
    return "\n".join(f"  {line}" for line in lines) if lines else "  nothing: no running query has anything in common"
