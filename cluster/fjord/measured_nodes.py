"""What operators of a running fragment do, beside the nodes of the plan whose work they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cluster.fjord.operator_statistics import NONE_YET, Rates
from cluster.operators import Node
from cluster.operators.walks import from_below
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode
from cluster.physical.operations import Exchange, GroupedFilter, Operation, Reorder

LOGICAL_KINDS: Mapping[type[object], str] = {
    **dict.fromkeys((kinds.Scan, kinds.Sample, kinds.Columns, kinds.Exchange, kinds.Reorder), "Source"),
    **dict.fromkeys((kinds.Filter, kinds.GroupedFilter, kinds.PerQueryFilter), "Filter"),
    **dict.fromkeys((kinds.TimeWindow, kinds.GridWindow, kinds.Panes), "TimeWindow"),
    kinds.SharedExtents: "Extent",
    **dict.fromkeys((kinds.PartialAggregate, kinds.Split, kinds.MergeAggregate, kinds.PaneAggregate), "Aggregate"),
}
"""Operations whose nodes have other names; all others are named like theirs, but for those below."""
_KEYED = "PartitionedWindow"


def logical_kind(operation: Operation) -> str:
    """Return the kind of node of the algebra whose work an operation does."""
    match operation:
        case kinds.CountWindow(keys=keys) if keys:
            return _KEYED
        case kinds.SharedCountWindow(keys=keys):
            return _KEYED if len(keys) > 1 else "CountWindow"  # one is the query group
        case kinds.SemiJoin(anti=True):
            return "AntiJoin"
        case kinds.Changes():
            return "Istream" if operation.insertions else "Dstream"
        case _:
            return LOGICAL_KINDS.get(type(operation), operation.kind_name())


def measured_nodes(plan: Node, fragment: Fragment, rates: Callable[[str], Rates]) -> dict[Node, Rates]:
    """Return the rates of the nodes of a plan, as far as operators can be assigned to them.

    A fragment has the operators of a plan in the same order, and others between them. Of a kind of which it has
    another number, nothing is returned; nor of operators that have not run yet.

    Parameters
    ----------
    plan
        The plan of one of its subscribers.
    fragment
        What runs it, maybe for others, too.
    rates
        Of an operator, by its name.
    """
    logical: dict[str, list[Node]] = {}
    for node in from_below(plan):
        logical.setdefault(node.kind_name(), []).append(node)
    physical = _operators(fragment)
    found: dict[Node, Rates] = {}
    for kind, nodes in logical.items():
        operators = physical.get(kind, ())
        if len(operators) == len(nodes):
            measured = (_together(each, rates) for each in operators)
            found.update((node, each) for node, each in zip(nodes, measured, strict=True) if each != NONE_YET)
    return found


def _operators(fragment: Fragment) -> Mapping[str, Sequence[list[OperatorNode]]]:
    """Return, by kind of node, the operators that do the work of each, in the order of the fragment."""
    found: dict[str, list[list[OperatorNode]]] = {}
    part_of: dict[str, list[OperatorNode]] = {}
    for node in fragment.nodes:
        if isinstance(node.operation, Exchange | Reorder):
            if node.inputs[0] in part_of:
                part_of[node.id] = part_of[node.inputs[0]]  # the halves of an aggregate are on both sides
            continue
        if isinstance(node.operation, GroupedFilter) and not _has_condition(node.operation, fragment):
            continue
        kind = logical_kind(node.operation)
        below = part_of.get(node.inputs[0]) if node.inputs else None
        if below is not None and logical_kind(below[-1].operation) == kind and _continues(kind):
            below.append(node)
        else:
            below = [node]
            found.setdefault(kind, []).append(below)
        part_of[node.id] = below
    return found


def _continues(kind: str) -> bool:
    """Return whether several operators, one behind the other, do the work of one node of a kind."""
    return kind in ("Source", "Aggregate")


def _has_condition(operation: GroupedFilter, fragment: Fragment) -> bool:
    return any(condition is not None for _, condition in fragment.conditions[operation.place])


def _together(operators: Sequence[OperatorNode], rates: Callable[[str], Rates]) -> Rates:
    measured = [rates(each.id) for each in operators]
    return Rates(measured[0].rows_in_per_second, measured[-1].rows_out_per_second, sum(each.busy for each in measured))
