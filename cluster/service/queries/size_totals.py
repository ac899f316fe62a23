"""What many queries with ranges take together, as their sizes change: no query is looked at twice for nothing. Pure.

share      0.5      0.6         of all ranges
a, b, c    5h       6h          the same range, and the same size until now: one sum for each size
d          30m      30m         its sum is known
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from cluster.costs.adaptation import Cost
from cluster.operators.size_ranges import Sizes
from cluster.service.queries.ranged_queries import Costs, RangedQuery, items_of

SizesAt = Callable[[RangedQuery, float, float], Sizes]
"""Returns the sizes of a query with windows and granularities at a share each."""
CostAt = Callable[[RangedQuery, Sizes], Cost]


@dataclass(frozen=True, slots=True)
class _Alike:
    """Queries with the same ranges and sizes, one of each kind; what they take together is found once for each size."""

    members: dict[str, RangedQuery] = field(default_factory=dict)
    found: dict[Hashable, Cost] = field(default_factory=dict)


class SizeTotals:
    """What queries take together with all of them at one share; those of one kind and the same sizes count once.

    Parameters
    ----------
    queries
        The queries; those of one kind have the same ranges.
    sizes_at
        Their sizes at shares, which follow from their ranges and from those that they have.
    """

    def __init__(self, queries: Iterable[RangedQuery], sizes_at: SizesAt) -> None:
        self._sizes_at = sizes_at
        self._alike: dict[Hashable, _Alike] = {}
        for each in queries:
            key = each.ranges, items_of(each.sizes), items_of(each.before)
            self._alike.setdefault(key, _Alike()).members.setdefault(each.kind, each)

    def at(self, windows: float, granularities: float, cost_of: CostAt, fixed: Cost) -> Cost:
        """Return what they take at two shares, with what is fixed.

        Parameters
        ----------
        windows, granularities
            The shares.
        cost_of
            What one takes; always the same function.
        fixed
            Added to it.
        """
        found = [self._of(each, windows, granularities, cost_of) for each in self._alike.values()]
        return _summed((fixed, *found))

    def _of(self, alike: _Alike, windows: float, granularities: float, cost_of: CostAt) -> Cost:
        sizes = self._sizes_at(next(iter(alike.members.values())), windows, granularities)
        key = items_of(sizes)
        if key not in alike.found:
            alike.found[key] = _summed(cost_of(each, sizes) for each in alike.members.values())
        return alike.found[key]


class ChangingTotal:
    """What queries take together while one after the other is given other sizes.

    Parameters
    ----------
    queries
        The queries.
    sizes
        By name, those that they have at first.
    costs
        What they take.
    """

    def __init__(self, queries: Iterable[RangedQuery], sizes: Mapping[str, Sizes], costs: Costs) -> None:
        self._of = costs.of
        self._times: Counter[Hashable] = Counter()
        self.total = costs.fixed
        for each in queries:
            self._count(each, sizes[each.name])

    def change(self, query: RangedQuery, before: Sizes, sizes: Sizes) -> None:
        """Note that a query gets other sizes."""
        key = query.shared_with(before)
        self._times[key] -= 1
        if not self._times[key]:
            cost = self._of(query, before)
            self.total = Cost(self.total.state_bytes - cost.state_bytes, self.total.busy - cost.busy)
        self._count(query, sizes)

    def _count(self, query: RangedQuery, sizes: Sizes) -> None:
        key = query.shared_with(sizes)
        self._times[key] += 1
        if self._times[key] == 1:
            self.total += self._of(query, sizes)


def _summed(costs: Iterable[Cost]) -> Cost:
    found = list(costs)
    return Cost(math.fsum(each.state_bytes for each in found), math.fsum(each.busy for each in found))
