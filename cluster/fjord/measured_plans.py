"""What a running plan did lately, as estimates of other plans need it: by node, pair, lookup and condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cluster.costs.estimates import NOTHING_MEASURED, Estimate, estimates_of
from cluster.expressions.nodes import Expression
from cluster.fjord.operator_statistics import NONE_YET, Rates
from cluster.fjord.upstream_dataflow import lookup_name
from cluster.operators import Join, Node, TableLookup
from cluster.operators.characteristics import joined
from cluster.operators.walks import from_below
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, Host, OperatorNode, PhysicalPlan
from cluster.physical.operations import (
    Columns,
    Exchange,
    Filter,
    GroupedFilter,
    Lookup,
    Operation,
    PreaggregatedFilter,
    Reorder,
    Sample,
    Scan,
)

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


SECOND_US = 1e6
LEAST_ROWS_PER_SECOND = 0.05
"""Where fewer come, as many are assumed: that none have come yet does not show that none will."""


def measured_pair_shares(
    plan: Node,
    measured: Mapping[Node, Rates],
    tuples_per_second: Mapping[str, float],
    selectivities: Mapping[tuple[str, Expression], float] = NOTHING_MEASURED,
) -> dict[Expression, float]:
    """Return, by condition, the share of pairs that met it, of the joins of a plan that have run.

    The rows of its inputs are those that are estimated; as many as came are taken for them, since a fragment may run
    for several queries, and behind the time of its streams. Joins further up are measured with what is known below.

    Parameters
    ----------
    plan
        The plan of a query, whose windows have been filled.
    measured
        What operators of its nodes do.
    tuples_per_second, selectivities
        As for :func:`~cluster.costs.estimates.estimates_of`.
    """
    found: dict[Expression, float] = {}
    for node in from_below(plan):
        rates = measured.get(node)
        if not isinstance(node, Join) or node.predicate is None or rates is None or not rates.rows_in_per_second:
            continue
        estimates: dict[Node, Estimate] = estimates_of(node, tuples_per_second, selectivities, pair_shares=found)
        left, right = estimates[node.left].flow, estimates[node.right].flow
        if left is None or right is None:
            continue
        pairs_per_second = joined(left, right).rate * SECOND_US
        came = (left.rate + right.rate) * SECOND_US / rates.rows_in_per_second
        if pairs_per_second:
            rows = max(rates.rows_out_per_second * came, LEAST_ROWS_PER_SECOND)
            found[node.predicate.expression] = min(rows / pairs_per_second, 1.0)
    return found


def measured_partners(plan: PhysicalPlan, rates: Callable[[str], Rates]) -> dict[tuple[str, TableLookup], float]:
    """Return the rows that lookups next to scans make of a row, by stream and lookup, as far as rows have come.

    Earlier lookups may have dropped tuples; whether one is found in a relation is assumed not to depend on others.

    Parameters
    ----------
    plan
        The plan that runs.
    rates
        Of an operator, by its name.
    """
    found: dict[tuple[str, TableLookup], float] = {}
    for name, key in _named(plan).items():
        made = None if key is None else rates(name).rows_out_per_row
        if key is not None and made is not None:
            found[key] = made
    return found


def _named(plan: PhysicalPlan) -> dict[str, tuple[str, TableLookup] | None]:
    """Return lookups by the names that they have while they run; None where two have one name, on different hosts."""
    found: dict[str, tuple[str, TableLookup] | None] = {}
    for host in Host:
        for name, key in _of_host(plan.hosted(host).fragments):
            found[name] = key if found.get(name, key) == key else None
    return found


def _of_host(fragments: Iterable[Fragment]) -> Iterator[tuple[str, tuple[str, TableLookup]]]:
    """Yield lookups of live tuples with their names, numbered as they are made (cluster/fjord/upstream_dataflow.py)."""
    numbers: dict[tuple[object, ...], int] = {}
    for fragment in fragments:
        below: dict[str, tuple[object, ...]] = {}
        for node in fragment.next_to_scan:
            operation = node.operation
            if isinstance(operation, Scan):
                below[node.id] = (operation.stream, operation.events, operation.history)
            elif isinstance(operation, Lookup):
                key = below[node.id] = (*below[node.inputs[0]], operation)
                if key in numbers:
                    continue
                numbers[key] = len(numbers) + 1
                (stream,) = operation.streams
                if key[2] is None:  # those of a past have other names
                    yield lookup_name(operation.table, numbers[key], stream), (stream, operation.table)
            elif node.inputs and node.inputs[0] in below:
                below[node.id] = below[node.inputs[0]]


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
