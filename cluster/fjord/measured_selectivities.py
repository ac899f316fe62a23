"""The share of a stream's tuples that met a condition of a running plan, as it was measured lately."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cluster.expressions.nodes import Expression
from cluster.fjord.operator_statistics import Rates
from cluster.physical.nodes import Fragment, OperatorNode, PhysicalPlan
from cluster.physical.operations import Columns, Filter, GroupedFilter, PreaggregatedFilter, Sample, Scan


def measured_selectivities(plan: PhysicalPlan, rates: Callable[[str], Rates]) -> dict[tuple[str, Expression], float]:
    """Return the selectivity of each condition that an operator has for itself, by stream and condition.

    It is that of the tuples which came: those that motes left out, because no query needed them, are in no rate.

    Parameters
    ----------
    plan
        The plan that runs.
    rates
        Of an operator, by its name.
    """
    found: dict[tuple[str, Expression], float] = {}
    for fragment in plan.fragments:
        for node, condition in _filters(fragment):
            stream, share = _stream_below(fragment, node), rates(node.id).rows_out_per_row
            if stream is not None and share is not None:
                found[stream, condition] = min(share, 1.0)
    return found


def _filters(fragment: Fragment) -> Iterator[tuple[OperatorNode, Expression]]:
    """Yield the filters with one condition. What one of many lets pass is not counted by condition."""
    for node in fragment.nodes:
        operation = node.operation
        if isinstance(operation, Filter):
            yield node, operation.predicate.expression
        elif isinstance(operation, GroupedFilter):
            conditions = [each for _, each in fragment.conditions[operation.place]]
            if len(conditions) == 1 and conditions[0] is not None:
                yield node, conditions[0].expression


def _stream_below(fragment: Fragment, node: OperatorNode) -> str | None:
    """Return the stream of which all tuples come to a node; None if some do not, or they are those of a join."""
    while node.inputs:
        node = fragment.by_id[node.inputs[0]]
        match node.operation:
            case Scan(events=None):
                return node.operation.stream
            case Sample(period_us=None) | Columns() | PreaggregatedFilter():
                continue
            case _:
                return None
    return None
