"""What running joins and extents have found of pairs and keys: measured in turns, smoothed, and kept."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cluster.costs.choice import have_drifted
from cluster.costs.estimates import LINKED_ASSUMED, Keys, Place, SeenKeys, estimates_of, place_of_keys
from cluster.expressions.nodes import Expression
from cluster.fjord.measured_plans import measured_nodes, measured_pair_shares
from cluster.fjord.operator_statistics import NONE_YET, OperatorStatistics, Rates
from cluster.operators import Extent
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.extent import Coalescing
from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.operations import SharedExtents
from cluster.plan.extents import extent_of
from cluster.service.queries.migrations import without_history
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


@dataclass(slots=True)
class _Seen:
    fragment: Fragment
    kept: dict[int, float] = field(default_factory=dict)
    """By query group: how many samples it keeps, as estimated."""
    ways: set[Coalescing] = field(default_factory=set)
    """In which samples are coalesced."""

    def did(self, rates: Callable[[str], Rates]) -> Rates:
        """Return what its extents do."""
        operator = next((each.id for each in self.fragment.nodes if isinstance(each.operation, SharedExtents)), None)
        return NONE_YET if operator is None else rates(operator)


def measured_keys(
    queries: Iterable[RegisteredQuery],
    physical: PhysicalPlan,
    figures: Figures,
    rates: Callable[[str], Rates],
    now: float,
) -> Keys:
    """Return what is seen of the keys of extents whose windows have been filled.

    A sample meets so many of its key in a window, of so many that are there: in the fragment that keeps most samples.
    Of the neighbours that are compared, a share is linked, on average over all ways in which they are coalesced.

    Parameters
    ----------
    queries
        The queries that run.
    physical
        Their plan.
    figures
        Rates of streams, and shares of conditions.
    rates
        Of an operator, by its name.
    now
        Seconds since 1970.
    """
    seen: dict[Place, dict[str, _Seen]] = {}
    for query in queries:
        extent = extent_of(without_history(query.node))
        place = None if extent is None else place_of_keys(extent)
        fragment = physical.by_query.get(query.identity)
        if extent is None or place is None or fragment is None or not is_filled(query, now):
            continue
        of_fragment = seen.setdefault(place, {}).setdefault(fragment.identity, _Seen(fragment))
        of_fragment.ways.add(extent.coalescing)
        group = physical.subscribers[query.identity].group
        if group not in of_fragment.kept and (kept := _kept(extent, figures)) is not None:
            of_fragment.kept[group] = kept
    found: dict[Place, SeenKeys] = {}
    for place, fragments in seen.items():
        largest = max(fragments.values(), key=lambda one: sum(one.kept.values()))
        count = _count(largest, rates)
        if count is not None:
            found[place] = SeenKeys(count, _linked(fragments.values(), rates))
    return found


def _kept(extent: Extent, figures: Figures) -> float | None:
    return estimates_of(extent, figures.rates, figures.selectivities)[extent].kept


def _count(seen: _Seen, rates: Callable[[str], Rates]) -> float | None:
    met, kept = seen.did(rates).companions_per_row, sum(seen.kept.values())
    if met is None or not kept:
        return None
    # Groups keep samples of their own; most samples are those of the largest.
    of_group = sum(each * each for each in seen.kept.values()) / kept
    return max(of_group / met, 1.0)


def _linked(seen: Iterable[_Seen], rates: Callable[[str], Rates]) -> float:
    """Return the share that is linked: each way counts as much, though lazy ones compare far more often."""
    shares = [(share, len(each.ways)) for each in seen if (share := each.did(rates).linked_share) is not None]
    ways = sum(count for _, count in shares)
    return sum(share * count for share, count in shares) / ways if ways else LINKED_ASSUMED
