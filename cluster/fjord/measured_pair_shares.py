"""The share of pairs that met the condition of a running join lately, for estimates of its query's other plans."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.costs.estimates import NOTHING_MEASURED, Estimate, estimates_of
from cluster.expressions.nodes import Expression
from cluster.fjord.operator_statistics import Rates
from cluster.operators import Join, Node
from cluster.operators.characteristics import joined
from cluster.operators.walks import from_below

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
