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
from collections.abc import Iterable, Mapping, Sequence
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
from cluster.costs.extents import NO_KEYS, Keys, compared_lazily, gone_through, keys_of, moves, scattered
from cluster.costs.kept_rows import kept_by_aggregate, kept_by_distinct, kept_by_groups, kept_by_join
from cluster.costs.partners import NO_PARTNERS, Partners
from cluster.costs.prices import SHIPPED, Prices
from cluster.costs.selectivity import KEYS_ASSUMED, keys_joined, share_of_pairs, share_passing
from cluster.costs.work import BATCHES_PER_SECOND, SECOND_US, compared_per_second, work_us
from cluster.expressions.nodes import Expression
from cluster.operators import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Extent,
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
    UntilNext,
    WindowBounds,
    Zip,
)
from cluster.operators import Sequence as InOrder
from cluster.operators.walks import below_filters, from_below
from cluster.planning_budget import spend


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of one node.

    Parameters
    ----------
    flow
        Its rows, in microseconds; None where it cannot be estimated.
    kept
        How many rows its operator keeps; infinite if they become ever more, None where it cannot be estimated.
    work_us
        Microseconds of a processor that it takes in a second; None where it cannot be estimated.
    """

    flow: Characteristics | None
    kept: float | None = 0.0
    work_us: float | None = None

    @property
    def rows_per_second(self) -> float | None:
        """Rows that begin in a second of application time."""
        return None if self.flow is None else self.flow.rate * SECOND_US


UNKNOWN = Estimate(None, None)
NOTHING_MEASURED: Mapping[tuple[str, Expression], float] = {}
NO_SHARES: Mapping[Expression, float] = {}


@dataclass(frozen=True, slots=True)
class Totals:
    """What a plan is expected to cost, or several together: each node counts once.

    Parameters
    ----------
    work_us
        Microseconds of a processor in a second.
    kept
        Rows that are kept.
    known
        False if something of it could not be estimated; what could be is counted.
    """

    work_us: float = 0.0
    kept: float = 0.0
    known: bool = True


def totals_of(estimates: Iterable[Estimate]) -> Totals:
    """Return what nodes cost together."""
    found = list(estimates)
    return Totals(
        sum(each.work_us for each in found if each.work_us is not None),
        sum(each.kept for each in found if each.kept is not None),
        all(each.work_us is not None and each.kept is not None for each in found),
    )


def estimates_of(
    plan: Node,
    tuples_per_second: Mapping[str, float],
    selectivities: Mapping[tuple[str, Expression], float] = NOTHING_MEASURED,
    *,
    prices: Prices = SHIPPED,
    pair_shares: Mapping[Expression, float] = NO_SHARES,
    partners: Partners = NO_PARTNERS,
    keys: Keys = NO_KEYS,
    known: dict[Node, Estimate] | None = None,
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
    prices
        What steps of operators cost.
    pair_shares
        By condition of a join: the share of pairs that meet it, where that has been measured.
    partners
        What lookups make of a tuple; of one that is missing, one row.
    keys
        How many keys the samples of extents have, and how many are linked, where that has been measured.
    known
        Estimates made with the same figures; these are added to it, and it is returned.
    """
    found = {} if known is None else known
    for node in from_below(plan):
        spend()
        if node in found:
            continue
        flows = [found[each].flow for each in node.inputs]
        below = [each for each in flows if each is not None]
        if len(below) < len(flows):
            found[node] = UNKNOWN
            continue
        if isinstance(node, Source):
            found[node] = _source(node, tuples_per_second.get(node.stream), partners, prices)
            continue
        if isinstance(node, Filter):
            share = share_passing(_stream_below(node.input), node.predicate.expression, selectivities)
            estimate = Estimate(filtered(below[0], share))
        elif isinstance(node, Join):
            estimate = _joined(node, below[0], below[1], pair_shares)
        else:
            estimate = _estimate(node, below)
        work = _work(node, below, estimate, prices, keys)
        found[node] = estimate if work is None else replace(estimate, work_us=work)
    return found


def _work(node: Node, below: Sequence[Characteristics], estimate: Estimate, prices: Prices, keys: Keys) -> float | None:
    """Return what an operator takes of a processor; None if that is not known."""
    flow, kept = estimate.flow, estimate.kept
    if flow is None or kept is None:
        return None
    if isinstance(node, Extent):
        changing = gone_through(below[0], keys_of(node, keys).count, kept)
        own = coalescing_us(node, below[0], kept, prices, keys)
        return own + moves(below[0]) * prices.of(node).moved + work_us(prices.of(node), below, flow, changing)
    return work_us(prices.of(node), below, flow, kept, compared=_compared(node, below, kept))


def coalescing_us(node: Extent, samples: Characteristics, kept: float, prices: Prices, keys: Keys) -> float:
    """Return what a query takes whose extent is lazy, beside the samples that it shares with others."""
    if node.coalescing.kept == "eager":
        return 0.0
    seen, price = keys_of(node, keys), prices.of_coalescing
    compared_us = price.compared * scattered(kept) + price.apart * (1 - seen.linked)
    compared = compared_lazily(samples, seen.count, kept)
    return price.batch * BATCHES_PER_SECOND + price.moved * moves(samples) + compared_us * compared


def compared_by(node: Node, estimates: Mapping[Node, Estimate]) -> float:
    """Return how many pairs a node of a plan compares in a second; none where that is not known."""
    flows = [estimates[each].flow for each in node.inputs]
    below = [each for each in flows if each is not None]
    kept = estimates[node].kept
    return 0.0 if kept is None or len(below) < len(flows) else _compared(node, below, kept)


def _compared(node: Node, below: Sequence[Characteristics], kept: float) -> float:
    """Return how many pairs are compared: rows of both sides, or rows and the partial aggregates of their group."""
    if isinstance(node, Join | SemiJoin | AntiJoin):
        return compared_per_second(below[0], below[1], keys_joined(*_condition(node)))
    if isinstance(node, Aggregate) and kept:
        groups = _combinations(node.keys)
        # Rows of a group that begin together are aggregated before: no more change than there are instants.
        changes = min(below[0].rate, groups / below[0].granule)
        return changes * SECOND_US * kept / groups
    return 0.0


def _source(node: Source, per_second: float | None, partners: Partners, prices: Prices) -> Estimate:
    """Return the tuples of a stream, looked up; those that are sampled more rarely, or are events, are not known."""
    if per_second is None or node.detector is not None or node.sample_period_us is not None:
        return UNKNOWN
    flow = Characteristics(SECOND_US / per_second if per_second else math.inf, 1)
    work = work_us(prices.of(node), (flow,), flow, 0.0)
    for lookup in node.lookups:
        found = filtered(flow, partners.get((node.stream, lookup), 1.0))
        work += work_us(prices.of_lookup, (flow,), found, 0.0)
        flow = found
    return Estimate(flow, 0.0, work)


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
        case UntilNext():
            return _until_next(node, flow)
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
        case Extent() | Ranked():
            most = math.inf if isinstance(node, Extent) or node.most is None else node.most * _combinations(node.keys)
            return Estimate(flow, min(flow.valid_rows, most))
        case InOrder():
            rows = max((call.reach_rows for call in node.calls), default=0) * _combinations(node.keys)
            reach_us = max((call.reach_us or call.until_us for call in node.calls), default=0)
            return Estimate(flow, rows + reach_us * flow.rate)
        case SemiJoin() | AntiJoin() | Zip() | StampJoin():
            return _pairs(node, flow, below[1])
        case _:
            return UNKNOWN


def _until_next(node: UntilNext, flow: Characteristics) -> Estimate:
    """Return rows that are valid until the next of their key, at most for a time."""
    longest_us = math.inf if node.longest_us is None else node.longest_us
    held = counted(flow, 1, _combinations(node.keys))
    held = replace(held, validity=min(held.validity, longest_us))
    return Estimate(held if node.lasts else flow, held.valid_rows)


def _combinations(keys: Sequence[object]) -> int:
    """Return how many combinations of the values of some keys there are."""
    return KEYS_ASSUMED if keys else 1


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


def _pairs(node: SemiJoin | AntiJoin | Zip | StampJoin, left: Characteristics, right: Characteristics) -> Estimate:
    """Return the answers of a join. All left rows of a semijoin are counted, as nothing is known of partners."""
    if isinstance(node, Zip | StampJoin):
        reach_us = (max(node.high_us, 0), max(-node.low_us, 0) if node.low_us is not None else 0)
        latest = isinstance(node, StampJoin) and node.latest
        of_right = _combinations(node.keys) if latest else right.rate * (reach_us[1] + 1)
        return Estimate(left, left.rate * (reach_us[0] + 1) + of_right)
    return Estimate(left, sum(kept_by_join(left, right)))


def _joined(
    node: Join, left: Characteristics, right: Characteristics, pair_shares: Mapping[Expression, float]
) -> Estimate:
    kept = sum(kept_by_join(left, right))
    if math.isinf(left.validity) or math.isinf(right.validity):
        return Estimate(None, kept)
    condition, *sides = _condition(node)
    share = share_of_pairs(condition, sides[0], sides[1], pair_shares)
    return Estimate(joined(left, right, share), kept)


def _condition(node: Join | SemiJoin | AntiJoin) -> tuple[Expression | None, frozenset[str], frozenset[str]]:
    left, right = (frozenset(column.name for column in side.schema) for side in (node.left, node.right))
    return None if node.predicate is None else node.predicate.expression, left, right
