"""How much state a plan would keep: an estimate from above, made before a query is let in.

Rows are counted as if every tuple of a stream, and all that is made of it (:mod:`cluster.fjord.made_rows`), were kept
as long as it is valid; partial rows of panes and of slides as if there were so many keys as assumed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.errors import PlanError
from cluster.fjord.made_rows import KEYS_ASSUMED, RowFlows, groups_of
from cluster.fjord.validity import longest_validity_us
from cluster.language.algebra import (
    MEMBER,
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Intersection,
    Join,
    Node,
    PartitionedWindow,
    Schema,
    SemiJoin,
    Source,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.walks import nodes_of
from cluster.plan.cuts import is_chain, slide_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.folding import fold
from cluster.plan.pane_folding import PaneFold
from protocols.byte_sizes import format_byte_size
from protocols.streams import FieldType

BYTES_OF_INTERVAL = 16
BYTES_PER_VALUE = {FieldType.TEXT: 32}
"""Of other types: 8."""


class StateLimitError(PlanError):
    """A plan that would keep more state than allowed."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """What a part of a plan keeps at most.

    Parameters
    ----------
    queries
        Names of those it is kept for.
    rows
        How many rows.
    bytes
        How many bytes they take.
    """

    queries: tuple[str, ...]
    rows: float
    bytes: float


def check_state(before: Plan, added: PlannedQuery, tuples_per_second: Mapping[str, float], *, limit_bytes: int) -> None:
    """Refuse a query with which a plan would keep too much.

    Parameters
    ----------
    before
        The plan without it.
    added
        The query.
    tuples_per_second
        By stream; a stream that is not there has brought nothing yet.
    limit_bytes
        What all queries together may keep.

    Raises
    ------
    StateLimitError
        Says how much the plan would keep, how much of it for this query, and the limit.
    """
    after = Plan(before.epoch + 1, (*before.queries, added), before.positions)
    total = sum(each.bytes for each in kept_by(after, tuples_per_second))
    if total <= limit_bytes:
        return
    without = sum(each.bytes for each in kept_by(before, tuples_per_second))
    if total <= without:
        return
    rates = ", ".join(
        f"{stream} brings {tuples_per_second.get(stream, 0.0):,.0f} tuples per second"
        for stream in sorted(Plan(0, (added,)).streams)
    )
    raise StateLimitError(
        f"with this query the plan would keep up to {format_byte_size(total)} of state, "
        f"{format_byte_size(total - without)} of it for this "
        f"query alone ({rates}); the limit is {format_byte_size(limit_bytes)}",
        hint="ask for a shorter window or a longer slide, drop other queries, or start the cluster with a higher "
        "--max-state",
    )


def kept_by(plan: Plan, tuples_per_second: Mapping[str, float]) -> Iterator[KeptState]:
    """Yield what each part of a plan keeps at most."""
    folded = fold(plan)
    for each in folded.folds:
        names = tuple(member.query.name for member in each.members)
        times = len({member.group for member in each.members})
        yield _Estimate(each.shared.node, tuples_per_second).kept(names, times)
    for panes in folded.panes:
        yield _kept_panes(panes, tuples_per_second)


def _kept_panes(panes: PaneFold, rates: Mapping[str, float]) -> KeptState:
    spans_us: dict[int, int] = {}
    for member in panes.members:
        span_us = member.pane_query.size_us + member.pane_query.slide_us
        spans_us[member.group] = max(spans_us.get(member.group, 0), span_us)
    keys = KEYS_ASSUMED if panes.keys else 1
    rate = rates.get(panes.chain.input.stream, 0.0) if isinstance(panes.chain.input, Source) else 0.0
    rows = sum(min(rate * span / 1e6, keys * span / panes.pane_us) for span in spans_us.values())
    names = tuple(member.query.name for member in panes.members)
    return KeptState(names, rows, rows * _row_bytes(schema_of(panes.aggregate)))


def _schema_kept(node: Node) -> Schema:
    inputs = inputs_of(node)
    return schema_of(inputs[0]) if inputs and not isinstance(node, Aggregate | Zip) else schema_of(node)


class _Estimate:
    """What the operators of one plan keep: of each part it is found out once, however many ways lead to it."""

    def __init__(self, node: Node, tuples_per_second: Mapping[str, float]) -> None:
        self._flows = RowFlows(node, tuples_per_second)
        self._rows: dict[int, float] = {}
        self._alive: dict[int, float] = {}

    def kept(self, names: tuple[str, ...], times: int) -> KeptState:
        """Return what all operators keep together, for so many groups of queries."""
        found = [(self.rows(each) * times, _row_bytes(_schema_kept(each))) for each, _ in self._flows]
        return KeptState(names, sum(rows for rows, _ in found), sum(rows * size for rows, size in found))

    def rows(self, node: Node) -> float:
        """Return how many rows the operator of a node keeps at most."""
        if id(node) not in self._rows:
            self._rows[id(node)] = self._rows_of(node)
        return self._rows[id(node)]

    def alive(self, node: Node) -> float:
        """Return how many rows of a node are valid at one instant, at most."""
        if id(node) not in self._alive:
            self._alive[id(node)] = self._alive_of(node)
        return self._alive[id(node)]

    def _rows_of(self, node: Node) -> float:
        match node:
            case CountWindow():
                return _rows_of_window(node)
            case PartitionedWindow():
                return _rows_of_window(node) * (1 if node.keys == (MEMBER.name,) else KEYS_ASSUMED)
            case Aggregate() if is_chain(node.input):
                spans = (longest_validity_us(node.input) or 0) / slide_of(node.input)
                return min(self.alive(node.input), groups_of(node) * spans)
            case Aggregate() | Distinct() | Difference() | Intersection() | Join() | SemiJoin() | AntiJoin():
                return sum(self.alive(each) for each in inputs_of(node))
            case Zip():
                left, right = (self._flows.of(each).per_second / 1e6 for each in inputs_of(node))
                return left * (max(node.high_us, 0) + 1) + right * (max(-node.low_us, 0) + 1)
            case _:
                return 0.0

    def _alive_of(self, node: Node) -> float:
        flow = self._flows.of(node)
        if flow.lasting_us is None:  # count windows below say how many themselves
            return sum(self.rows(each) for each in nodes_of(node))
        alive = flow.per_second * flow.lasting_us / 1e6
        return min(alive, self.alive(node.input), groups_of(node)) if isinstance(node, Aggregate) else alive


def _rows_of_window(node: CountWindow | PartitionedWindow) -> float:
    """Return how many tuples a window by count keeps of one key: those in it, and the slide that is not full."""
    return float((node.rows or 0) + node.slide_rows - 1)


def _row_bytes(schema: Schema) -> int:
    return BYTES_OF_INTERVAL + sum(BYTES_PER_VALUE.get(column.type, 8) for column in schema)
