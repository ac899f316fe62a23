"""When the rows of a fragment flow: once their beginning is certain, or only once their end is known, too."""

from __future__ import annotations

from cluster.errors import PlanError
from cluster.operators import Node
from cluster.physical import operations as kinds
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Operation


def holds_rows_back(operation: Operation) -> bool:
    """Return whether an operation holds a row back until its end is known."""
    match operation:
        case (
            kinds.Held()
            | kinds.CountWindow()
            | kinds.SharedCountWindow()
            | kinds.SemiJoin()
            | kinds.Difference()
            | kinds.Intersection()
            | kinds.Ranked()
            | kinds.Extent()
            | kinds.SharedExtents()
        ):
            return True
        case kinds.MergeAggregate():
            return operation.slide_us == 1
        case kinds.SessionWindow():
            return operation.session.early
        case kinds.UntilNext():
            return operation.bounds is None
        case kinds.KeptExtent():
            return not operation.kept.in_steps
        case _:
            return False


def late_nodes(fragment: Fragment) -> tuple[OperatorNode, ...]:
    """Return the nodes of a fragment that answer rows after their beginning is certain; inputs come first."""
    late: dict[str, OperatorNode] = {}
    for node in fragment.behind:
        if holds_rows_back(node.operation) or any(each in late for each in node.inputs):
            late[node.id] = node
    return tuple(late.values())


def emission_words(node: Node, *, early: bool) -> str | None:
    """Return in words when the rows of a query are published, given its rewritten plan; None if EMIT changes nothing.

    Parameters
    ----------
    node
        The plan.
    early
        Whether it is published early.
    """
    try:
        if not late_nodes(lower_alone(node)):
            return None
    except PlanError:  # it cannot be run, and is explained nevertheless
        return None
    if early:
        return "each row as soon as its beginning is certain (EMIT EARLY): one whose end is not known is closed later"
    return "each row once its end is known (EMIT FINAL)"
