"""What is expected of every node of a plan in its steady state: how many rows, valid for how long, and kept. Pure.

**What extents go through, by how many keys their samples have, and how many are linked.**

samples of a key   | | | |           an extent changes when one enters or leaves: all of its key are gone through
of another         |                 once in a batch, and if it is lazy, at each such instant

    aggregate AVG(x) by k      a row of each key where its window moves
    `- window of 10m           valid for 10m each
       `- filter x > 3         a third of them
          `- stream readings   180 rows/s, valid at their own instant

Estimates are averages, for people and for comparing plans. What may not be exceeded is computed elsewhere, from upper
bounds (cluster/fjord/upper_estimates.py, cluster/fjord/upper_estimates.py).

**What a plan takes of a processor besides its operators: to send rows to buckets, and to publish answers.**

stream readings -- window --| exchange |-- aggregate -- answers
                10 rows/s                             20 rows/s
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from cluster.costs.prices import SHIPPED, Prices
from cluster.costs.selectivity import NO_PARTNERS, Partners, keys_joined, share_of_pairs, share_passing
from cluster.costs.work import BATCHES_PER_SECOND, SECOND_US, compared_per_second, work_us
from cluster.expressions.nodes import Expression
from cluster.operators import Aggregate, AntiJoin, Extent, Filter, Join, Node, Project, SemiJoin, Source, TimeWindow
from cluster.operators.characteristics import KEYS_ASSUMED, Characteristics, combinations
from cluster.operators.scalar_expressions import plain_column
from cluster.operators.walks import from_below
from cluster.plan.pipelines import is_pipeline, pipelines_of
from cluster.planning_budget import spend

FEWEST_KEYS = KEYS_ASSUMED // 10
"""Keys that are assumed where they have not been measured, since more would make lazy extents look cheaper."""

LINKED_ASSUMED = 0.5
"""The share of samples that go on with the one before, where it has not been measured."""

PRICED_AMONG = 1_000
"""Prices of what is compared lazily are for so many samples that are kept."""


@dataclass(frozen=True, slots=True)
class SeenKeys:
    """What is known of the keys of samples.

    Parameters
    ----------
    count
        How many there are, the fewer, the more samples have the same one. It is the reciprocal of the probability that
        two samples have one key, so that 100 keys of which one has nearly all samples are hardly more than one.
    linked
        The share of samples that are coalesced with the one of their key before, of all extents with these keys.
    """

    count: float
    linked: float = LINKED_ASSUMED


Place = tuple[str, tuple[str, ...]]
"""A stream, and its columns that are keys."""
Keys = Mapping[Place, SeenKeys]
"""By place: as measured."""
NO_KEYS: Keys = {}
_ASSUMED = SeenKeys(FEWEST_KEYS)


def place_of_keys(extent: Extent) -> Place | None:
    """Return the stream and its columns by which an extent's samples are coalesced; None if they are computed."""
    names: list[str] = list(extent.keys)
    node = extent.input
    while isinstance(node, Filter | Project | TimeWindow):
        if isinstance(node, Project):
            columns = {each.name: plain_column(each.scalar) for each in node.outputs}
            found = [columns.get(name) for name in names]
            names = [each for each in found if each is not None]
            if len(names) < len(found):
                return None
        node = node.input
    return (node.stream, tuple(sorted(set(names)))) if isinstance(node, Source) else None


def keys_of(extent: Extent, measured: Keys) -> SeenKeys:
    """Return what is known of an extent's keys: as measured, else as assumed."""
    place = place_of_keys(extent)
    seen = _ASSUMED if place is None else measured.get(place, _ASSUMED)
    return seen if extent.keys else replace(seen, count=1.0)


def changes_of_key(samples: Characteristics, keys: float) -> float:
    """Return at how many instants of a second a sample of one key enters or leaves: where the window moves, at most."""
    return SECOND_US * min(2 * samples.rate / keys, 1 / samples.granule)


def compared_lazily(samples: Characteristics, keys: float, kept: float) -> float:
    """Return how many samples there are at the instants of a second at which something changes, key by key."""
    changes = changes_of_key(samples, keys)
    return changes * kept if changes else 0.0


def scattered(kept: float) -> float:
    """Return how many times as long it takes to read a sample as among a thousand: those of a key are far apart.

    Measured with up to 60,000 samples: the more there are, the fewer are in a processor's caches.
    """
    return math.sqrt(kept / PRICED_AMONG)


def moves(samples: Characteristics) -> float:
    """Return in how many batches of a second the window moves, at most."""
    return min(SECOND_US / samples.granule, BATCHES_PER_SECOND)


def gone_through(samples: Characteristics, keys: float, kept: float) -> float:
    """Return how many of the samples that are kept are of keys that change in a batch, on average."""
    between = max(SECOND_US / BATCHES_PER_SECOND, samples.granule)
    changing = -math.expm1(-2 * samples.rate * between / keys)
    share = changing * moves(samples) / BATCHES_PER_SECOND
    return share * kept if share else 0.0


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
    measured = _Measured(tuples_per_second, selectivities, pair_shares, partners)
    for node in from_below(plan):
        spend()
        if node in found:
            continue
        flows = [found[each].flow for each in node.inputs]
        below = tuple([each for each in flows if each is not None])
        if len(below) < len(flows):
            found[node] = UNKNOWN
            continue
        flow, kept = node.expected(below, measured)
        if flow is None or kept is None:
            found[node] = Estimate(flow, kept)
        elif isinstance(node, Source):
            found[node] = Estimate(flow, kept, _work_of_source(node, measured, prices))
        else:
            found[node] = Estimate(flow, kept, _work(node, below, (flow, kept), prices, keys))
    return found


@dataclass(frozen=True, slots=True)
class _Measured:
    """What is known, for :meth:`Node.expected`."""

    tuples_per_second: Mapping[str, float]
    selectivities: Mapping[tuple[str, Expression], float]
    pair_shares: Mapping[Expression, float]
    by_lookup: Mapping[Any, float]

    def tuples(self, stream: str) -> Characteristics | None:
        per_second = self.tuples_per_second.get(stream)
        return None if per_second is None else Characteristics(SECOND_US / per_second if per_second else math.inf, 1)

    def partners(self, stream: str, lookup: Hashable) -> float:
        return self.by_lookup.get((stream, lookup), 1.0)

    def passing(self, stream: str | None, condition: Expression) -> float:
        return share_passing(stream, condition, self.selectivities)

    def pairs(self, condition: Expression | None, left: frozenset[str], right: frozenset[str]) -> float:
        return share_of_pairs(condition, left, right, self.pair_shares)


def _work_of_source(node: Source, measured: _Measured, prices: Prices) -> float:
    flows = node.looked_up(measured)
    looked_up = sum(work_us(prices.of_lookup, (before,), after, 0.0) for before, after in pairwise(flows))
    return work_us(prices.of(node), flows[:1], flows[0], 0.0) + looked_up


def _work(
    node: Node,
    below: Sequence[Characteristics],
    expected: tuple[Characteristics, float],
    prices: Prices,
    keys: Keys,
) -> float:
    """Return what an operator takes of a processor, given its rows and how many it keeps."""
    flow, kept = expected
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
        groups = combinations(node.keys)
        # Rows of a group that begin together are aggregated before: no more change than there are instants.
        changes = min(below[0].rate, groups / below[0].granule)
        return changes * SECOND_US * kept / groups
    return 0.0


def _condition(node: Join | SemiJoin | AntiJoin) -> tuple[Expression | None, frozenset[str], frozenset[str]]:
    left, right = (frozenset(column.name for column in side.schema) for side in (node.left, node.right))
    return None if node.predicate is None else node.predicate.expression, left, right


ANSWERS, EXCHANGE, QUEUE = "Answers", "Exchange", "Queue"
"""Kinds of work in the table of prices, beside those of nodes: of a plan, of each further stream that it sends, and of
each node, whose batches wait in queues.

A plan over one stream that keeps state takes hardly more than one that keeps none; with two streams, each waits for the
watermarks of the other, and all behind them is run twice.
"""


def crossings_of(plan: Node) -> tuple[Node, ...]:
    """Return the parts of a plan whose rows are sent to buckets; none of a plan that keeps nothing."""
    return () if is_pipeline(plan) else tuple(node for node, _ in pipelines_of(plan))


def answering_us(plan: Node, estimates: Mapping[Node, Estimate], prices: Prices) -> float:
    """Return the microseconds of a processor in a second; what cannot be estimated is left out.

    Parameters
    ----------
    plan
        The plan, rewritten.
    estimates
        Those of its nodes.
    prices
        What steps cost.
    """
    answers, exchange, crossings = prices.named(ANSWERS), prices.named(EXCHANGE), crossings_of(plan)
    queued = len(list(from_below(plan))) * prices.named(QUEUE).batch
    batches = BATCHES_PER_SECOND * (answers.batch + max(len(crossings) - 1, 0) * exchange.batch + queued)
    sent, answered = (_rows(estimates, nodes) for nodes in (crossings, (plan,)))
    return batches + sent * exchange.row_in + answered * answers.row_out


def _rows(estimates: Mapping[Node, Estimate], nodes: Iterable[Node]) -> float:
    return sum(estimates[node].rows_per_second or 0.0 for node in nodes)
