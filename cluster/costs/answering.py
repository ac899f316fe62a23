"""What a plan takes of a processor besides its operators: to send rows to buckets, and to publish answers. Pure.

stream readings -- window --| exchange |-- aggregate -- answers
                10 rows/s                             20 rows/s
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.costs.estimates import Estimate
from cluster.costs.prices import Prices
from cluster.costs.work import BATCHES_PER_SECOND
from cluster.operators import Node
from cluster.operators.walks import from_below
from cluster.plan.pipelines import is_pipeline, pipelines_of

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
