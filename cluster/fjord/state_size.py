"""The state that a plan would keep: an upper estimate, made before a query is accepted.

Rows are counted as if every tuple of a stream, and all rows made of it (:mod:`cluster.fjord.made_rows`), were kept
while it is valid; partial rows of panes and of slides as if there were as many keys as assumed there. A median, and
what else needs all values, keeps one for each tuple besides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.aggregates import keeps_values, partial_columns
from cluster.fjord.made_rows import (
    NO_RATES,
    RowFlow,
    RowFlows,
    approximate,
    exact,
    groups_of,
    known_at_rates,
    rates_text,
    rows_of_window,
)
from cluster.fjord.operators.kept_extent import BOOKKEEPING
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, AggregateCall, Column, Schema
from cluster.operators.mark_columns import RIGHT, SUPERSEDED_UNTIL
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment, OperatorNode, PhysicalPlan
from cluster.physical.successors import summed
from cluster.plan.epoch import Handover
from protocols.text.byte_sizes import format_byte_size
from protocols.wire.streams import FieldType

BYTES_OF_INTERVAL = 16
BYTES_PER_VALUE = {FieldType.TEXT: 32}
"""Bytes of a value; 8 for types that are missing."""
BYTES_OF_ANSWER = 160
"""Bytes of an answer that waits: its text, usually, and what names it."""


class StateLimitError(PlanError):
    """A plan that would keep more state than allowed."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state that a part of a plan keeps at most.

    Parameters
    ----------
    queries
        Names of the queries for which it is kept.
    rows
        How many rows.
    bytes
        How many bytes they take.
    """

    queries: tuple[str, ...]
    rows: float
    bytes: float


def check_state(
    before: PhysicalPlan,
    after: PhysicalPlan,
    query: str,
    tuples_per_second: Mapping[str, float],
    *,
    limit_bytes: int,
    demanded: Mapping[str, float] = NO_RATES,
) -> None:
    """Refuse a query with which a plan would keep too much.

    Parameters
    ----------
    before, after
        The plan without it, and with it.
    query
        The query's identity.
    tuples_per_second
        By stream; streams that have brought no tuples are missing.
    limit_bytes
        The limit for all queries together.
    demanded
        Tuples per second that streams will bring for the query, if it lets sensors sample faster.

    Raises
    ------
    StateLimitError
        With the size of the plan's state, the part for this query, and the limit.
    """
    total = state_bytes(after, tuples_per_second)
    alone = after.alone(query) if demanded else None
    if alone is not None:
        soon = {**tuples_per_second, **demanded}
        total += bytes_kept_by(alone, soon) - bytes_kept_by(alone, tuples_per_second)
    if total <= limit_bytes:
        return
    without = state_bytes(before, tuples_per_second)
    if total <= without:
        return
    rates = rates_text(alone or after.by_query[query], tuples_per_second, demanded)
    raise StateLimitError(
        f"with this query the plan would keep up to {format_byte_size(total)} of state, "
        f"{format_byte_size(total - without)} of it for this "
        f"query alone ({rates}); the limit is {format_byte_size(limit_bytes)}",
        hint="ask for a shorter window, a longer slide or a shorter MAX of sessions, write KEEP n TUPLES behind a "
        "COALESCE, drop other queries, or start the cluster with a higher --max-state",
    )


def state_bytes(plan: PhysicalPlan, tuples_per_second: Mapping[str, float]) -> float:
    """Return how many bytes of state a plan keeps at most."""
    return approximate(summed(plan, _bytes_kept, tuples_per_second))


def bytes_kept_by(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> float:
    """Return how many bytes of state a fragment keeps at most."""
    return approximate(_bytes_kept(fragment, tuples_per_second))


def kept_by(plan: PhysicalPlan, tuples_per_second: Mapping[str, float]) -> Iterator[KeptState]:
    """Yield the state that each fragment of a plan keeps at most."""
    for fragment in plan.fragments:
        yield _kept(fragment, tuples_per_second)


def _kept(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> KeptState:
    rows, size = _size_kept(fragment, tuples_per_second)
    return KeptState(tuple(each.query for each in fragment.subscribers), rows, size)


def _bytes_kept(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> int:
    return exact(_size_kept(fragment, tuples_per_second)[1])


@known_at_rates
def _size_kept(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> tuple[float, float]:
    """Return how many rows a fragment keeps, and how many bytes they take."""
    handing = [each.until for each in fragment.subscribers if each.until is not None]
    waiting = _answers_waiting(fragment, handing, tuples_per_second)
    if fragment.shares_panes:
        rows, size = _panes_kept(fragment, tuples_per_second)
    else:
        rows, size = _Estimate(fragment, tuples_per_second).kept(len(fragment.tally.groups))
    return rows + waiting, size + waiting * BYTES_OF_ANSWER


def _answers_waiting(fragment: Fragment, handing: Sequence[Handover], rates: Mapping[str, float]) -> float:
    """Return how many answers of queries wait while these go on with another plan: its own, and those that are cut.

    They are counted where the plan is that is followed; the one that follows answers as much. Of an aggregate those
    count that begin with a row, not those that begin where one ends.
    """
    if not handing:
        return 0.0
    waiting_us = sum((each.opens_us - each.at_us) * (2 if each.cut else 1) for each in handing)
    answers = RowFlows(fragment, rates).answers
    return (answers.per_second - answers.at_ends_per_second) * waiting_us / 1e6


def bytes_of_waiting(plan: PhysicalPlan, handing: Handover, tuples_per_second: Mapping[str, float]) -> float:
    """Return how many bytes answers take that wait while the queries of a plan go on with others.

    Parameters
    ----------
    plan
        Of these queries alone.
    handing
        How each of them goes on.
    tuples_per_second
        By stream; streams that have brought no tuples are missing.
    """
    rows = (_answers_waiting(each, [handing] * len(each.subscribers), tuples_per_second) for each in plan.fragments)
    return sum(rows) * BYTES_OF_ANSWER


def _panes_kept(fragment: Fragment, rates: Mapping[str, float]) -> tuple[float, float]:
    (stream,) = fragment.streams
    (pane_us,) = (each.operation.width_us for each in fragment.nodes if isinstance(each.operation, kinds.Panes))
    (merged,) = (each.operation for each in fragment.behind if isinstance(each.operation, kinds.PaneAggregate))
    keys, rate = groups_of(merged.keys), rates.get(stream, 0.0)
    # Of each query group as long as its longest window lasts.
    rows = min(rate * fragment.tally.span_us / 1e6, keys * fragment.tally.span_us / pane_us)
    listed = rate * fragment.tally.span_us / 1e6 * _listed_bytes(merged.calls)
    return rows, rows * _row_bytes((*merged.keys, QUERY_GROUP, VISIBLE_FROM, *_results(merged.calls))) + listed


def _schema_kept(operation: kinds.Operation) -> Schema:
    match operation:
        case kinds.CountWindow() | kinds.SessionWindow() | kinds.UntilNext() | kinds.PatternMatch():
            return operation.columns
        case kinds.SharedCountWindow():
            return (*operation.columns, SUPERSEDED_UNTIL, Column("begins", FieldType.INTEGER))
        case kinds.Distinct() | kinds.Difference() | kinds.Intersection():
            return operation.columns
        case kinds.Extent() | kinds.SharedExtents():
            return (*operation.columns, Column("since", FieldType.INTEGER))
        case kinds.Ranked():
            return (*operation.columns, Column("since", FieldType.INTEGER), Column("place", FieldType.INTEGER))
        case kinds.Join() | kinds.SemiJoin():
            return operation.left
        case kinds.StampJoin():
            return (*operation.left, *operation.right)
        case kinds.KeptExtent():
            return (*operation.columns, *(Column(name, FieldType.INTEGER) for name in BOOKKEEPING))
        case kinds.Sequence():
            return (*operation.columns, *(Column(call.name, call.type) for call in operation.calls))
        case kinds.Zip():
            return (*operation.left, *operation.right, Column(operation.apart, FieldType.INTEGER))
        case kinds.MergeAggregate():
            return (*operation.keys, *_results(operation.calls))
        case _:
            return ()


def _results(calls: tuple[AggregateCall, ...]) -> Schema:
    """Return the columns that are kept for aggregates: of a mean, a sum and a count."""
    kinds_kept = ((each.name, each.type in (pl.String, pl.List(pl.String))) for each in partial_columns(calls))
    return tuple(Column(name, FieldType.TEXT if text else FieldType.INTEGER) for name, text in kinds_kept)


class _Estimate:
    """The state of the operators of one fragment."""

    def __init__(self, fragment: Fragment, tuples_per_second: Mapping[str, float]) -> None:
        self._fragment = fragment
        self._flows = RowFlows(fragment, tuples_per_second)
        self._rows: dict[str, float] = {}

    def kept(self, times: int) -> tuple[float, float]:
        """Return the rows and bytes of all operators together, for so many query groups."""
        found = [
            (self._rows_kept(each) * times, _row_bytes(_schema_kept(each.operation))) for each in self._fragment.nodes
        ]
        listed = sum(map(self._listed, self._fragment.nodes)) * times
        return sum(rows for rows, _ in found), sum(rows * size for rows, size in found) + listed

    def _rows_kept(self, node: OperatorNode) -> float:
        if node.id not in self._rows:
            self._rows[node.id] = self._rows_of(node)
        return self._rows[node.id]

    def _rows_of(self, node: OperatorNode) -> float:  # noqa: C901 - a case per kind
        """Return how many rows the operator of a node keeps at most."""
        operation = node.operation
        match operation:
            case kinds.CountWindow() | kinds.SharedCountWindow():
                return rows_of_window(operation)
            case kinds.PatternMatch():
                return _rows_of_pattern(operation, self._flows.of(node.inputs[0]).per_second)
            case kinds.SessionWindow():
                open_us = operation.session.longest_us
                return self._flows.of(node.inputs[0]).per_second * open_us / 1e6
            case kinds.UntilNext():
                last = float(KEYS_ASSUMED if set(operation.keys) - {QUERY_GROUP.name} else 1)
                if operation.longest_us is None:
                    return last
                return min(last, self._flows.of(node.inputs[0]).per_second * operation.longest_us / 1e6)
            case kinds.MergeAggregate():
                return self._kept_in_groups(node, operation)
            case kinds.Distinct() | kinds.Difference() | kinds.Intersection() | kinds.Join() | kinds.SemiJoin():
                return sum(self._alive(self._fragment.by_id[each]) for each in node.inputs)
            case kinds.StampJoin() if operation.latest:
                # Of the right the latest of each key, as long as it may be a partner.
                right = self._flows.of(node.inputs[1]).per_second / 1e6
                kept = KEYS_ASSUMED if set(operation.keys) - {(QUERY_GROUP.name, RIGHT + QUERY_GROUP.name)} else 1
                return float(kept) if operation.low_us is None else min(kept, right * (1 - operation.low_us))
            case kinds.StampJoin():
                left, right = (self._flows.of(each).per_second / 1e6 for each in node.inputs)
                return left * (max(operation.high_us, 0) + 1) + right * (max(-(operation.low_us or 0), 0) + 1)
            case kinds.Extent() | kinds.SharedExtents():
                return self._alive(self._fragment.by_id[node.inputs[0]])
            case kinds.Ranked():
                (below,) = (self._fragment.by_id[each] for each in node.inputs)
                if self._flows.of(below.id).lasting_us is not None or operation.most is None:
                    return self._alive(below)
                keys = tuple(each for each in operation.columns if each.name in operation.keys)
                return groups_of(keys) * float(operation.most)
            case kinds.Sequence():
                return self._kept_in_order(node, operation)
            case kinds.KeptExtent(kept=kept):
                window = self._flows.of(node.inputs[0]).per_second * kept.size_us / 1e6
                return min(float(kept.most), window if kept.rows is None else kept.rows)
            case kinds.Zip():
                left, right = (self._flows.of(each).per_second / 1e6 for each in node.inputs)
                return left * (max(operation.high_us, 0) + 1) + right * (max(-operation.low_us, 0) + 1)
            case _:
                return 0.0

    def _kept_in_groups(self, node: OperatorNode, operation: kinds.MergeAggregate) -> float:
        """Return how many partial aggregates are kept at most: one for each tuple, or for each group and span."""
        below = self._aggregated(node)
        alive, lasting_us = self._alive(below), self._flows.of(below.id).lasting_us
        if granule_us := self._granule_us(below):
            # Rows of a granularity begin and end at its multiples only: no more intervals than there are.
            spans = math.inf if lasting_us is None else lasting_us / granule_us + 1
        elif self._crosses(node):
            spans = (lasting_us or 0) / self._step_us(node, operation)
        else:
            return alive
        return min(alive, groups_of(operation.keys) * spans)

    def _granule_us(self, node: OperatorNode) -> int | None:
        """Return the granularity of a node's rows, if they have one: below filters and projections."""
        while isinstance(node.operation, kinds.Project | kinds.GroupedFilter | kinds.Filter) and node.inputs:
            node = self._fragment.by_id[node.inputs[0]]
        return node.operation.granule_us if isinstance(node.operation, kinds.Granularity) else None

    def _step_us(self, merged: OperatorNode, operation: kinds.MergeAggregate) -> int:
        """Return how far apart the ends of the intervals of partial rows are, at least."""
        node = merged
        while node.inputs:
            node = self._fragment.by_id[node.inputs[0]]
            if isinstance(node.operation, kinds.GridWindow):
                return node.operation.grid.step.usual_us
        return operation.slide_us

    def _kept_in_order(self, node: OperatorNode, operation: kinds.Sequence) -> float:
        """Return how many tuples are kept for functions over tuples in order: so many of each key, and some by age."""
        keyed = bool(set(operation.keys) - {QUERY_GROUP.name})
        by_count = max((call.reach_rows for call in operation.calls), default=0)
        reach_us = max(call.span_us for call in operation.calls)
        per_second = self._flows.of(node.inputs[0]).per_second
        return by_count * (KEYS_ASSUMED if keyed else 1) + per_second * reach_us / 1e6

    def _listed(self, node: OperatorNode) -> float:
        """Return the bytes of the lists of values in the rows of a node, where a row is of many tuples."""
        operation = node.operation
        if not isinstance(operation, kinds.MergeAggregate) or not (size := _listed_bytes(operation.calls)):
            return 0.0
        return self._alive(self._aggregated(node)) * size

    def _crosses(self, node: OperatorNode) -> bool:
        """Return whether a node reads rows that cross an exchange."""
        return isinstance(self._fragment.by_id[node.inputs[0]].operation, kinds.Exchange)

    def _aggregated(self, merged: OperatorNode) -> OperatorNode:
        """Return the node whose rows are aggregated: below the first half, and the exchange between the halves."""
        node = self._fragment.by_id[merged.inputs[0]]
        while isinstance(node.operation, kinds.PartialAggregate | kinds.Exchange):
            node = self._fragment.by_id[node.inputs[0]]
        return node

    def _alive(self, node: OperatorNode) -> float:
        """Return how many rows of a node are valid at one instant, at most."""
        flow: RowFlow = self._flows.of(node.id)
        if flow.lasting_us is None:  # count windows below have their own number of rows
            return max(flow.valid, sum(self._rows_kept(each) for each in self._below(node)))
        if not isinstance(node.operation, kinds.MergeAggregate):
            return flow.valid
        return min(flow.valid, self._alive(self._aggregated(node)), groups_of(node.operation.keys))

    def _below(self, node: OperatorNode) -> Iterator[OperatorNode]:
        """Yield a node and all nodes below it, each once."""
        seen: set[str] = set()
        waiting = [node.id]
        while waiting:
            current = waiting.pop()
            if current not in seen:
                seen.add(current)
                yield self._fragment.by_id[current]
                waiting.extend(self._fragment.by_id[current].inputs)


def _rows_of_pattern(match: kinds.PatternMatch, per_second: float) -> float:
    """Return how many rows a pattern keeps: those within its time, or the last few of each key."""
    pattern = match.pattern
    if pattern.within_us is not None:
        return per_second * pattern.within_us / 1e6
    partitioned = set(match.keys) - {QUERY_GROUP.name}
    rows = max((pattern.most_rows or 0) - 1, *(lag.rows for lag in pattern.lags), 0)
    return float(rows * (KEYS_ASSUMED if partitioned else 1))


def _listed_bytes(calls: tuple[AggregateCall, ...]) -> int:
    """Return how many bytes of each tuple aggregates keep that need all values; those of the same values share them."""
    listed = {(call.argument, call.distinct) for call in calls if keeps_values(call)}
    return sum(BYTES_PER_VALUE.get(argument.type, 8) for argument, _ in listed if argument is not None)


def _row_bytes(schema: Schema) -> int:
    return BYTES_OF_INTERVAL + sum(BYTES_PER_VALUE.get(column.type, 8) for column in schema)
