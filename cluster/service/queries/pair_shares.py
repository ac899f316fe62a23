"""The shares of pairs that joins of running queries have found: measured in turns, smoothed, and kept."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from cluster.costs.choice import have_drifted
from cluster.expressions.nodes import Expression
from cluster.fjord.measured_nodes import measured_nodes
from cluster.fjord.measured_pair_shares import measured_pair_shares
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.operators.errors import UnboundedPlanError
from cluster.physical.nodes import PhysicalPlan
from cluster.service.queries.plan_options import Figures
from cluster.service.registry.running_queries import RegisteredQuery

FEWEST_SECONDS = 30.0
"""What joins do is measured once their query has run for so long, and for as long as its plan reaches back."""
MOST_MEASURED = 100
"""Queries whose joins are measured at a time, in turns."""
Shares = Mapping[Expression, float]
"""By condition."""


class PairShares:
    """Keeps shares of pairs.

    Parameters
    ----------
    operators
        What the operators of the running plan do.
    weight
        Shares come nearer to the newest ones by this share of the distance.
    wall
        Seconds since 1970.
    """

    def __init__(self, operators: OperatorStatistics, *, weight: float, wall: Callable[[], float] = time.time) -> None:
        self._operators = operators
        self._weight = weight
        self._wall = wall
        self.known: dict[str, dict[Expression, float]] = {}
        """By query."""
        self._turns: OrderedDict[str, None] = OrderedDict()

    def measure(self, queries: Mapping[str, RegisteredQuery], physical: PhysicalPlan, figures: Figures) -> list[str]:
        """Measure what the joins of some queries do; return which of them have been measured.

        Parameters
        ----------
        queries
            All queries that have joins, by name; what was known of others is forgotten.
        physical
            The plan that runs.
        figures
            Rates of streams, and shares of conditions.
        """
        self.known = {name: shares for name, shares in self.known.items() if name in queries}
        for name in [each for each in self._turns if each not in queries]:
            del self._turns[name]
        self._turns.update(dict.fromkeys(each for each in queries if each not in self._turns))
        in_turn = list(self._turns)[:MOST_MEASURED]
        for name in in_turn:
            self._turns.move_to_end(name)
        return [name for name in in_turn if self._measure(queries[name], physical, figures)]

    def _measure(self, query: RegisteredQuery, physical: PhysicalPlan, figures: Figures) -> bool:
        fragment = physical.by_query.get(query.identity)
        if query.next is not None or fragment is None or not is_filled(query, self._wall()):
            return False
        measured = measured_nodes(query.node, fragment, self._operators.rates)
        new = measured_pair_shares(query.node, measured, figures.rates, figures.selectivities)
        # What other plans of the query have shown is still the best that is known.
        known = self.known.get(query.name, {})
        nearer = {key: known.get(key, each) + self._weight * (each - known.get(key, each)) for key, each in new.items()}
        self.known[query.name] = {**known, **nearer}
        return True


def is_filled(query: RegisteredQuery, now: float) -> bool:
    """Return whether a query has run for so long that what its operators do can be measured, at a time since 1970."""
    try:
        reach_s = query.node.reach_us() / 1e6
    except UnboundedPlanError:
        return False
    return now - query.created_us / 1e6 >= FEWEST_SECONDS + reach_s


def shares_have_drifted(before: Shares, now: Shares) -> bool:
    """Return whether shares have changed so much that plans have to be compared anew, or are others."""
    old, new = ({repr(key): share for key, share in shares.items()} for shares in (before, now))
    return have_drifted(old, new)
