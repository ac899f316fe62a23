"""What is expected of every node of a plan in its steady state: how many rows, valid for how long, and kept.

    aggregate AVG(x) by k      a row of each key where its window moves
    `- window of 10m           valid for 10m each
       `- filter x > 3         a third of them
          `- stream readings   180 rows/s, valid at their own instant

Estimates are averages, for people and for comparing plans. What may not be exceeded is computed elsewhere, from upper
bounds (cluster/fjord/made_rows.py, cluster/fjord/state_size.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.costs.characteristics import (
    Characteristics,
    aggregated,
    coarsened,
    counted,
    distinct,
    filtered,
    grouped,
    joined,
    stepped,
    united,
    windowed,
)
from cluster.costs.kept_rows import kept_by_aggregate, kept_by_distinct, kept_by_groups, kept_by_join
from cluster.costs.selectivity import KEYS_ASSUMED, join_selectivity, selectivity
from cluster.expressions.conditions import conjuncts
from cluster.expressions.nodes import Expression
from cluster.language.algebra import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    Project,
    Ranked,
    SemiJoin,
    Source,
    StampJoin,
    TimeWindow,
    Union,
    WindowBounds,
    Zip,
    inputs_of,
    schema_of,
)
from cluster.language.algebra import (
    Sequence as InOrder,
)
from cluster.language.columns import Scalar
from cluster.language.walks import below_filters, from_below
from cluster.planning_budget import spend

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of one node.

    Parameters
    ----------
    flow
        Its rows, in microseconds; None where it cannot be estimated.
    kept
        How many rows its operator keeps; infinite if they become ever more, None where it cannot be estimated.
    """

    flow: Characteristics | None
    kept: float | None = 0.0

    @property
    def rows_per_second(self) -> float | None:
        """Rows that begin in a second of application time."""
        return None if self.flow is None else self.flow.rate * SECOND_US


UNKNOWN = Estimate(None, None)
NOTHING_MEASURED: Mapping[tuple[str, Expression], float] = {}


def estimates_of(
    plan: Node,
    tuples_per_second: Mapping[str, float],
    selectivities: Mapping[tuple[str, Expression], float] = NOTHING_MEASURED,
) -> dict[Node, Estimate]:
    """Return what is expected of the nodes of a plan.

    Parameters
    ----------
    plan
        The plan, rewritten.
    tuples_per_second
        By stream, in application time; those of streams that are missing are not known.
    selectivities
        By stream and condition, where they have been measured.
    """
    found: dict[Node, Estimate] = {}
    for node in from_below(plan):
        spend()
        below = [found[each].flow for each in inputs_of(node)]
        if isinstance(node, Source):
            found[node] = _source(node, tuples_per_second.get(node.stream))
        elif isinstance(node, Filter) and below[0] is not None:
            found[node] = Estimate(filtered(below[0], _passing(node, selectivities)))
        elif any(each is None for each in below):
            found[node] = UNKNOWN
        else:
            found[node] = _estimate(node, [each for each in below if each is not None])
    return found


def _source(node: Source, per_second: float | None) -> Estimate:
    """Return the tuples of a stream; those that are sampled more rarely, or are events, are not known."""
    if per_second is None or node.detector is not None or node.sample_period_us is not None:
        return UNKNOWN
    return Estimate(Characteristics(SECOND_US / per_second if per_second else math.inf, 1))


def _estimate(node: Node, below: Sequence[Characteristics]) -> Estimate:
    (flow, *_) = below or (None,)
    if flow is None:
        return UNKNOWN
    match node:
        case Project() | WindowBounds() | Lookup():
            return Estimate(flow)  # one row of a relation is found for each
        case TimeWindow():
            # What lasts already, lasts longer by the window.
            size_us = math.inf if node.size_us is None else node.size_us + flow.validity - 1
            return Estimate(windowed(flow, size_us, node.slide_us))
        case CountWindow() | PartitionedWindow():
            rows = math.inf if node.rows is None else node.rows
            keys = _combinations(node.keys) if isinstance(node, PartitionedWindow) else 1
            return Estimate(counted(flow, rows, keys), rows * keys if math.isfinite(rows) else 0.0)
        case Granularity():
            return Estimate(coarsened(flow, node.granule_us))
        case Aggregate():
            return _aggregate(node, flow)
        case Distinct():
            return Estimate(distinct(flow, math.inf), kept_by_distinct(flow))
        case Union():
            return Estimate(united(below))
        case Difference() | Intersection():
            return Estimate(flow, sum(each.valid_rows for each in below))
        case Istream() | Dstream():
            return Estimate(replace(flow, validity=1, granule=1), flow.valid_rows)
        case Ranked():
            most = math.inf if node.most is None else node.most * _combinations(node.keys)
            return Estimate(flow, min(flow.valid_rows, most))
        case InOrder():
            rows = max((call.reach_rows for call in node.calls), default=0) * _combinations(node.keys)
            reach_us = max((call.reach_us or 0 for call in node.calls), default=0)
            return Estimate(flow, rows + reach_us * flow.rate)
        case Join() | SemiJoin() | AntiJoin() | Zip() | StampJoin():
            return _pairs(node, flow, below[1])
        case _:
            return UNKNOWN


def _combinations(keys: Sequence[object]) -> int:
    """Return how many combinations of the values of some keys there are."""
    return KEYS_ASSUMED if keys else 1


def _passing(node: Filter, selectivities: Mapping[tuple[str, Expression], float]) -> float:
    """Return the share of rows that pass a filter: as measured, whole or part by part, else as assumed."""
    stream, condition = _stream_below(node.input), node.predicate.expression
    if stream is None:
        return selectivity(condition)
    measured = selectivities.get((stream, condition))
    if measured is not None:
        return measured
    return math.prod(selectivities.get((stream, each), selectivity(each)) for each in conjuncts(condition))


def _stream_below(node: Node) -> str | None:
    """Return the stream whose tuples come to a node as they are, each by itself."""
    while isinstance(node, Filter | TimeWindow):
        node = node.input
    return node.stream if isinstance(node, Source) else None


def _aggregate(node: Aggregate, flow: Characteristics) -> Estimate:
    """Return an aggregate. Over a window that moves in steps it answers at each, over a count with each row."""
    groups = _combinations(node.keys)
    kept = kept_by_groups(flow, groups) if node.keys else kept_by_aggregate(flow)
    window = below_filters(node.input)
    if isinstance(window, TimeWindow) and window.slide_us > 1:
        return Estimate(stepped(flow, groups), kept)
    if isinstance(window, CountWindow | PartitionedWindow):
        return Estimate(replace(flow, validity=min(flow.distance * groups, flow.validity)), kept)
    return Estimate(grouped(flow, groups) if node.keys else aggregated(flow), kept)


def _pairs(
    node: Join | SemiJoin | AntiJoin | Zip | StampJoin, left: Characteristics, right: Characteristics
) -> Estimate:
    """Return the answers of a join. All left rows of a semijoin are counted, as nothing is known of partners."""
    if isinstance(node, Zip | StampJoin):
        reach_us = (max(node.high_us, 0), max(-node.low_us, 0) if node.low_us is not None else 0)
        latest = isinstance(node, StampJoin) and node.latest
        of_right = _combinations(node.keys) if latest else right.rate * (reach_us[1] + 1)
        return Estimate(left, left.rate * (reach_us[0] + 1) + of_right)
    kept = sum(kept_by_join(left, right))
    if not isinstance(node, Join):
        return Estimate(left, kept)
    if math.isinf(left.validity) or math.isinf(right.validity):
        return Estimate(None, kept)
    return Estimate(joined(left, right, _share(node.predicate, node)), kept)


def _share(predicate: Scalar | None, node: Join) -> float:
    left, right = (frozenset(column.name for column in schema_of(side)) for side in (node.left, node.right))
    return join_selectivity(None if predicate is None else predicate.expression, left, right)
