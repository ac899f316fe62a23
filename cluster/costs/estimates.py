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
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cluster.costs.extents import NO_KEYS, Keys, compared_lazily, gone_through, keys_of, moves, scattered
from cluster.costs.partners import NO_PARTNERS, Partners
from cluster.costs.prices import SHIPPED, Prices
from cluster.costs.selectivity import keys_joined, share_of_pairs, share_passing
from cluster.costs.work import BATCHES_PER_SECOND, SECOND_US, compared_per_second, work_us
from cluster.expressions.nodes import Expression
from cluster.operators import (
    Aggregate,
    AntiJoin,
    Extent,
    Join,
    Node,
    SemiJoin,
    Source,
)
from cluster.operators.characteristics import Characteristics
from cluster.operators.expected_rows import combinations
from cluster.operators.walks import from_below
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
