"""Rows that a plan makes, and state that it keeps: upper estimates, made before a query is accepted.

**How many rows a plan makes of one tuple, and in a second: an upper estimate, made before anything runs.**

Most operators make about one row of each row. Two make more. An aggregate over a sliding window answers once per slide:

    a tuple          |-----------------)        RANGE 6 SLIDE 1
    answers          |--|--|--|--|--|--)        6 rows, of this tuple alone

A window over rows that last, where multiplicities matter, takes each once per microsecond (`Split`). Joins, windows
and aggregates above multiply these rows further: a row of a join has as many partners as there are rows of the other
side at an instant (`valid`), so joins of joins multiply too. In a join by equality it has those of its key only
(`per_key`): nothing is known of how many rows of a stream share a value, and one partner is assumed, as of a key; rows
of a product do share the values of the side that they have in common. In a relation a row has as many partners as its
rows and keys let expect, or one where these are not known.

What an operator makes of rows stands with it (:mod:`cluster.fjord.running_kind`); here it is asked for all nodes.

No estimate of :mod:`cluster.costs.estimates` is higher, but for equalities between more rows than there are keys
assumed: it has the same assumptions otherwise, and lets conditions drop rows.

**The state that a plan would keep: an upper estimate, made before a query is accepted.**

Rows are counted as if every tuple of a stream, and all rows made of it, were
kept while it is valid; partial rows of panes and of slides as if there were as many keys as assumed there. A median,
and what else needs all values, keeps one for each tuple besides. What an operator keeps stands with it
(:mod:`cluster.fjord.running_kind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from types import MappingProxyType
from typing import TypeVar

from cluster.costs.selectivity import NO_SIZES, Sizes
from cluster.errors import PlanError
from cluster.fjord.row_flow import MOST, RowFlow, finite
from cluster.fjord.running_kind import InputFlows
from cluster.fjord.running_kinds import running_kind
from cluster.fjord.state_rows import StateRows
from cluster.physical.nodes import Fragment, OperatorNode, PaneWindow, PhysicalPlan
from cluster.physical.successors import summed
from cluster.plan.epoch import Handover
from cluster.planning_budget import spend
from protocols.text.quantities import format_byte_size

T = TypeVar("T")

NO_RATES: Mapping[str, float] = MappingProxyType({})
_FRACTIONS = 1 << 20


class RowFlows:
    """The flows of all nodes of a fragment, as if it had one query.

    Parameters
    ----------
    fragment
        The fragment.
    tuples_per_second
        By stream; streams that have brought no tuples are missing.
    sizes
        Of relations, by identity; in one that is missing a tuple finds one row.
    """

    def __init__(self, fragment: Fragment, tuples_per_second: Mapping[str, float], sizes: Sizes = NO_SIZES) -> None:
        self._fragment = fragment
        self._found: dict[str, RowFlow] = {}
        for node in fragment.nodes:
            spend()
            inputs = InputFlows(node, [self._found[each] for each in node.inputs], fragment, tuples_per_second, sizes)
            self._found[node.id] = finite(running_kind(node.operation).flow(node.operation, inputs))

    def __iter__(self) -> Iterator[tuple[OperatorNode, RowFlow]]:
        """Yield every node with its flow, after its inputs."""
        yield from ((node, self._found[node.id]) for node in self._fragment.nodes)

    def of(self, node_id: str) -> RowFlow:
        """Return the flow of a node."""
        return self._found[node_id]

    @property
    def answers(self) -> RowFlow:
        """The flow of the fragment's answers."""
        return self._found[self._fragment.sink.id]

    def window_of(self, node: OperatorNode) -> PaneWindow | None:
        """Return the window whose answers a node merges, if it slides in steps; None for any other node."""
        return running_kind(node.operation).window(node.operation, node, self._fragment)


def known_at_rates(
    function: Callable[[Fragment, Mapping[str, float]], T],
) -> Callable[[Fragment, Mapping[str, float]], T]:
    """Return a function that computes its result again only when the rates of a fragment's streams have changed."""
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def found(fragment: Fragment, tuples_per_second: Mapping[str, float]) -> T:
        rates = tuple(tuples_per_second.get(stream, 0.0) for stream in fragment.streams)
        known: tuple[tuple[float, ...], T] | None = fragment.__dict__.get(key)
        if known is None or known[0] != rates:
            known = fragment.__dict__[key] = rates, function(fragment, tuples_per_second)
        return known[1]

    return found


def rates_text(alone: Fragment, tuples_per_second: Mapping[str, float], demanded: Mapping[str, float]) -> str:
    """Return in words what the streams of a query bring, and those that will bring more for it."""
    return ", ".join(
        f"{stream} would bring {demanded[stream]:,.0f} tuples per second for it"
        if stream in demanded
        else f"{stream} brings {tuples_per_second.get(stream, 0.0):,.0f} tuples per second"
        for stream in sorted(alone.streams)
    )


def exact(amount: float) -> int:
    """Return an amount as a whole number of small parts, so that sums do not depend on the order of adding."""
    return round(min(amount, MOST) * _FRACTIONS)


def approximate(amount: int) -> float:
    """Return a sum of amounts of :func:`exact`."""
    return amount / _FRACTIONS


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
