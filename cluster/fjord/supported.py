"""Whether a query can be run at all, checked before it is registered, so that a running engine never meets it."""

from __future__ import annotations

from cluster.fjord.instantiation import subscribed_operator
from cluster.fjord.scalars import compile_scalar
from cluster.language.algebra import Node
from cluster.physical.lowering import lower_alone
from cluster.physical.operations import Exchange, GroupedFilter, Sink
from cluster.plan.completeness import check_completeness


def check_supported(node: Node) -> None:
    """Raise if a plan has an operator that cannot be run yet, or needs completeness where it is not known.

    Raises
    ------
    PlanError
        An UnsupportedPlanError names the operator.
    """
    check_completeness(node)
    fragment = lower_alone(node)
    for each in fragment.nodes:
        if not isinstance(each.operation, Exchange | GroupedFilter | Sink):
            subscribed_operator(each.operation, fragment)
    for subscriber in fragment.subscribers:
        for condition in filter(None, subscriber.conditions):
            compile_scalar(condition)  # which a grouped filter does with the first tuple
        for step in subscriber.finish:
            subscribed_operator(step, fragment)
