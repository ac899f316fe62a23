"""The state that a plan would keep: an upper estimate, made before a query is accepted.

Rows are counted as if every tuple of a stream, and all rows made of it (:mod:`cluster.fjord.made_rows`), were kept
while it is valid; partial rows of panes and of slides as if there were as many keys as assumed there. A median, and
what else needs all values, keeps one for each tuple besides. What an operator keeps stands with it
(:mod:`cluster.fjord.running_kind`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cluster.errors import PlanError
from cluster.fjord.made_rows import NO_RATES, RowFlows, approximate, exact, known_at_rates, rates_text
from cluster.fjord.row_flow import RowFlow
from cluster.fjord.running_kinds import running_kind
from cluster.fjord.state_rows import StateRows
from cluster.physical.nodes import Fragment, OperatorNode, PhysicalPlan
from cluster.physical.successors import summed
from cluster.plan.epoch import Handover
from protocols.text.byte_sizes import format_byte_size

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
    # What shared panes keep is counted for all query groups together.
    times = 1 if fragment.shares_panes else len(fragment.tally.groups)
    rows, size = StateOfFragment(fragment, tuples_per_second).kept(times)
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


class StateOfFragment:
    """The state of the operators of one fragment."""

    def __init__(self, fragment: Fragment, tuples_per_second: Mapping[str, float]) -> None:
        self.fragment = fragment
        self.rates = tuples_per_second
        self._kept: dict[str, StateRows] = {}

    @cached_property
    def _flows(self) -> RowFlows:
        """Not computed for nodes that keep nothing."""
        return RowFlows(self.fragment, self.rates)

    def kept(self, times: int) -> tuple[float, float]:
        """Return the rows and bytes of all operators together, for so many query groups."""
        found = [self._kept_by(each) for each in self.fragment.nodes]
        listed = sum(each.listed_bytes for each in found) * times
        rows = [each.rows * times for each in found]
        return sum(rows), sum(size * each.row_bytes for size, each in zip(rows, found, strict=True)) + listed

    def _kept_by(self, node: OperatorNode) -> StateRows:
        if node.id not in self._kept:
            self._kept[node.id] = running_kind(node.operation).kept(node.operation, node, self)
        return self._kept[node.id]

    def flow(self, node_id: str) -> RowFlow:
        """Return the rows of a node."""
        return self._flows.of(node_id)

    def alive(self, node: OperatorNode) -> float:
        """Return how many rows of a node are valid at one instant, at most."""
        flow = self.flow(node.id)
        if flow.lasting_us is None:  # count windows below have their own number of rows
            return max(flow.valid, sum(self._kept_by(each).rows for each in self._below(node)))
        return running_kind(node.operation).alive(node.operation, node, self)

    def _below(self, node: OperatorNode) -> Iterator[OperatorNode]:
        """Yield a node and all nodes below it, each once."""
        seen: set[str] = set()
        waiting = [node.id]
        while waiting:
            current = waiting.pop()
            if current not in seen:
                seen.add(current)
                yield self.fragment.by_id[current]
                waiting.extend(self.fragment.by_id[current].inputs)
