"""How many keys the samples of running extents have, and how many are linked: by it eager and lazy are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cluster.costs.estimates import estimates_of
from cluster.costs.extents import LINKED_ASSUMED, Keys, Place, SeenKeys, place_of_keys
from cluster.fjord.operator_statistics import NONE_YET, Rates
from cluster.operators import Extent
from cluster.operators.extent import Coalescing
from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.operations import SharedExtents
from cluster.plan.extent_keeping import extent_of
from cluster.service.queries.migration_steps import without_history
from cluster.service.queries.pair_shares import is_filled
from cluster.service.queries.plan_options import Figures
from cluster.service.registry.running_queries import RegisteredQuery


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
