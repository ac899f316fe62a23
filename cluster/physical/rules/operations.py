"""The operation of a node of the algebra."""

from __future__ import annotations

from cluster.operators import Node
from cluster.operators.operation import Operation
from cluster.operators.walks import named_operator
from cluster.physical.errors import UnsupportedPlanError


def operation_of(node: Node, lag_us: int | None = None) -> Operation:
    """Return the operation of a node, as :meth:`Node.operation` does.

    Raises
    ------
    UnsupportedPlanError
        If it cannot be run by itself; says why.
    """
    found = node.operation(lag_us)
    if found is None:
        raise UnsupportedPlanError(f"{named_operator(node)} cannot be run here")
    return found
