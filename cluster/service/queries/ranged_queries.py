"""Queries with ranges, and what they take at the sizes that they have or may get. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from cluster.costs.adaptation import Cost
from cluster.operators.size_ranges import SizeRange, Sizes


@dataclass(frozen=True, slots=True)
class RangedQuery:
    """A query with ranges.

    Parameters
    ----------
    name
        Its name.
    kind
        What its plan follows from, besides its sizes: queries of one kind and the same sizes share all that they keep.
    ranges
        What its author allows.
    sizes
        Those that it has, or gets; none of a query that has not begun.
    before
        Those that it has until then, while it changes: it does not change again before.
    """

    name: str
    kind: str
    ranges: tuple[SizeRange, ...]
    sizes: Sizes
    before: Sizes = field(default_factory=dict)

    def at(self, windows: float, granularities: float) -> Sizes:
        """Return its sizes with windows and granularities at a share each; while it changes, those that it gets."""
        if self.before:
            return self.sizes
        return {each: each.at(windows if each.kind == "window" else granularities) for each in self.ranges}

    def at_most(self, windows: float, granularities: float) -> Sizes:
        """Return its sizes at these shares, or those that it has where they are worse."""
        found = self.at(windows, granularities)
        return {each: min(size, self.sizes.get(each, size), key=share_of(each)) for each, size in found.items()}

    def shared_with(self, sizes: Sizes) -> Hashable:
        """Return a key that is equal for queries which share all that they keep, with these sizes from now on."""
        return self.kind, items_of(sizes), items_of(self.sizes), items_of(self.before)

    def at_least(self, windows: float, granularities: float) -> Sizes:
        """Return its sizes at these shares, or those that it has where they are better."""
        found = self.at(windows, granularities)
        return {each: max(size, self.sizes.get(each, size), key=share_of(each)) for each, size in found.items()}


def items_of(sizes: Sizes) -> tuple[tuple[SizeRange, int], ...]:
    """Return sizes as a key."""
    return tuple(sizes.items())


def share_of(allowed: SizeRange) -> Callable[[int], float]:
    """Return how far a size is from the worst of a range to the best, as a function of the size."""
    return lambda size: (size - allowed.worst_us) / (allowed.best_us - allowed.worst_us)


CostOf = Callable[[RangedQuery, Sizes], Cost]
"""Returns what a query of these sizes takes in its steady state, alone."""
CostOfBoth = Callable[[RangedQuery, Sizes, Sizes], Cost]
"""Returns what a query takes while its plan of the first sizes hands over to that of the second."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Estimates of what queries take.

    Parameters
    ----------
    fixed
        All queries without ranges together.
    of, of_both
        A query with ranges.
    """

    fixed: Cost
    of: CostOf
    of_both: CostOfBoth

    def steady(self, queries: Iterable[RangedQuery], sizes: Mapping[str, Sizes]) -> Cost:
        """Return what all take with these sizes by name; queries of one kind and the same sizes count once."""
        return self._all((each, self.of(each, sizes[each.name]), sizes[each.name]) for each in queries)

    def during(self, queries: Iterable[RangedQuery], sizes: Mapping[str, Sizes]) -> Cost:
        """Return what all take while they change to these sizes."""
        changing = ((each, sizes[each.name]) for each in queries)
        return self._all((each, self.of_change(each, new), new) for each, new in changing)

    def of_change(self, query: RangedQuery, sizes: Sizes) -> Cost:
        """Return what a query takes while it changes to these sizes."""
        old = query.before or query.sizes
        return self.of(query, sizes) if not old or old == sizes else self.of_both(query, old, sizes)

    def _all(self, costs: Iterable[tuple[RangedQuery, Cost, Sizes]]) -> Cost:
        found = {query.shared_with(sizes): cost for query, cost, sizes in costs}
        return sum(found.values(), self.fixed)
