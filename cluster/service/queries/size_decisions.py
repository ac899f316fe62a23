"""Which sizes the queries with ranges get: when one comes or goes, and when rates change. Pure.

**What many queries with ranges take together, as their sizes change: no query is looked at twice for nothing.**

share      0.5      0.6         of all ranges a, b, c    5h       6h          the same range, and the same size until
now: one sum for each size d          30m      30m         its sum is known

    limit     |---------------------------------------|  queries without ranges, and both plans while sizes change
    for sizes |-------------------------------|          a fifth less: all queries, in their steady state

Sizes shrink when half of that fifth is used, and grow where that is worth a change (:mod:`cluster.costs.adaptation`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop

from cluster.costs.adaptation import RESERVE, UNLIMITED, WORTHWHILE, Cost, Fit, adapt
from cluster.errors import PlanError
from cluster.operators.size_ranges import Sizes
from cluster.service.queries.size_plans import Costs, RangedQuery, items_of, share_of
from protocols.text.quantities import byte_size_of_at_least, format_byte_size

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


FURTHER = (1.0, 0.75, 0.5, 0.25, 0.0)
"""To so much of a share queries shrink, one after the other, until they fit while they change."""
ROUNDING = 2.0**-30
"""By such a part sums may be wrong to which much has been added, and from which much has been taken."""
NAMED = 3
"""So many queries are named whose end would have made room."""


class NoRoomError(PlanError):
    """A query for which there is no room, however small the sizes of all are."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Sizes for queries.

    Parameters
    ----------
    sizes
        By name of those queries whose sizes change, and of one that comes.
    grows
        Whether sizes become better, which is not urgent.
    fits
        Whether all fits then.
    """

    sizes: Mapping[str, Sizes]
    grows: bool = False
    fits: bool = True


UNCHANGED = Choice({})


def changed_sizes(queries: Sequence[RangedQuery], costs: Costs, budget: Cost) -> Choice:
    """Return which sizes change: they shrink if they have to, and else grow where that is worth it.

    Parameters
    ----------
    queries
        Those that run.
    costs
        What they take.
    budget
        What all queries may take.
    """
    if not queries:
        return UNCHANGED
    present = costs.steady(queries, {each.name: each.sizes for each in queries})
    limit = budget.less_reserve()
    if not present.fits(_scaled(budget, 1 - RESERVE / 2)):
        found = _shrunk(queries, (), costs, limit, budget) or _shrunk(queries, (), costs, limit, UNLIMITED)
        return found or _at_their_least(queries)
    fit = _grown(queries, costs, limit, budget)
    if fit is None:
        return UNCHANGED
    better = {each.name: each.at_least(fit.windows, fit.granularities) for each in queries}
    worth = {each.name: better[each.name] for each in queries if _gained(each, better[each.name]) >= WORTHWHILE}
    return Choice(worth, grows=True) if worth else UNCHANGED


def _at_their_least(queries: Sequence[RangedQuery]) -> Choice:
    least = {each.name: each.at_most(0.0, 0.0) for each in queries}
    return Choice({each.name: least[each.name] for each in queries if least[each.name] != each.sizes}, fits=False)


def admitted(new: Sequence[RangedQuery], queries: Sequence[RangedQuery], costs: Costs, budget: Cost) -> Choice:
    """Return the sizes of new queries, and of those that shrink to make room for them.

    Queries without ranges have none; then the reserve is no matter, and what they take is in the costs.

    Raises
    ------
    NoRoomError
        If they do not fit, with what would have made room.
    """
    everyone = (*queries, *new)
    limit = budget.less_reserve() if any(each.ranges for each in new) else budget
    own = {each.name: each.at(1.0, 1.0) for each in new}
    if costs.steady(everyone, {each.name: each.sizes for each in queries} | own).fits(limit):
        return Choice(own)
    choice = _shrunk(queries, new, costs, limit, budget)
    if choice is None:
        raise _no_room(new, queries, costs, budget)
    return choice


def _shrunk(
    queries: Sequence[RangedQuery], new: Sequence[RangedQuery], costs: Costs, limit: Cost, budget: Cost
) -> Choice | None:
    """Return sizes with which all fit into a limit, and while they change into the budget; None if there are none.

    The share is that with which all would fit if all had it. Those shrink to it that save most by that, and no more
    than have to: what does not change is not kept twice. Should too much be kept even so, fewer shrink further.
    """
    everyone = (*queries, *new)
    totals = SizeTotals(everyone, RangedQuery.at_most)

    def cost_at(windows: float, granularities: float) -> Cost:
        return totals.at(windows, granularities, costs.of, costs.fixed)

    fit = adapt(cost_at, limit, fineness=2.0**-10)
    if fit is None:
        return None
    for part in FURTHER:
        at = fit.windows * part, fit.granularities * part
        sizes = _fewest(queries, new, costs, limit, at)
        if costs.during(everyone, sizes).fits(budget):
            changed = {each.name: sizes[each.name] for each in queries if sizes[each.name] != each.sizes}
            return Choice({**changed, **{each.name: sizes[each.name] for each in new}})
    return None


def _fewest(
    queries: Sequence[RangedQuery], new: Sequence[RangedQuery], costs: Costs, limit: Cost, at: tuple[float, float]
) -> dict[str, Sizes]:
    """Return the sizes of all, of which as few as possible have those of two shares."""
    everyone = (*queries, *new)
    sizes = {each.name: each.sizes for each in queries} | {each.name: each.at_most(*at) for each in new}
    changing = ChangingTotal(everyone, sizes, costs)
    largest: list[tuple[float, float, int, Sizes]] = []
    for place, each in enumerate(queries):
        target = each.at_most(*at)
        saved = _less(costs.of(each, each.sizes), costs.of(each, target))
        largest.append((-saved.state_bytes, -saved.busy, place, target))
    heapify(largest)
    nearly = _scaled(limit, 1 + ROUNDING)
    while largest:
        if changing.total.fits(nearly) and costs.steady(everyone, sizes).fits(limit):
            break
        *_, place, target = heappop(largest)
        each = queries[place]
        changing.change(each, sizes[each.name], target)
        sizes[each.name] = target
    return sizes


def _grown(queries: Sequence[RangedQuery], costs: Costs, limit: Cost, budget: Cost) -> Fit | None:
    """Return the shares up to which all may grow: they fit into a limit, and while they change into the budget."""
    steadily, on_the_way = (SizeTotals(queries, RangedQuery.at_least) for _ in range(2))

    def cost_at(windows: float, granularities: float) -> Cost:
        steady = steadily.at(windows, granularities, costs.of, costs.fixed)
        during = on_the_way.at(windows, granularities, costs.of_change, costs.fixed)
        # What they take on the way has the whole budget: as much of the limit as it takes of that.
        return Cost(
            max(steady.state_bytes, during.state_bytes * _part(limit.state_bytes, budget.state_bytes)),
            max(steady.busy, during.busy * _part(limit.busy, budget.busy)),
        )

    return adapt(cost_at, limit, fineness=2.0**-10)


def _gained(query: RangedQuery, sizes: Sizes) -> float:
    """Return by how much of their ranges sizes are better than those that a query has, on average."""
    return _share(sizes) - _share(query.sizes)


def _part(limit: float, budget: float) -> float:
    return 1.0 if math.isinf(budget) or not budget else limit / budget


def _scaled(cost: Cost, share: float) -> Cost:
    return Cost(cost.state_bytes * share, cost.busy * share)


def _share(sizes: Sizes) -> float:
    """Return how far sizes are from the worst to the best, on average."""
    if not sizes:
        return 1.0
    return sum(share_of(each)(size) for each, size in sizes.items()) / len(sizes)


def _no_room(new: Sequence[RangedQuery], queries: Sequence[RangedQuery], costs: Costs, budget: Cost) -> NoRoomError:
    everyone, ranged = (*queries, *new), any(each.ranges for each in new)
    these = "this query" if len(new) == 1 else f"these {len(new)} queries"
    least = {each.name: each.at(0.0, 0.0) for each in everyone}
    total, others = costs.steady(everyone, least), costs.steady(queries, least)
    limit = budget.less_reserve() if ranged else budget
    of_all = f"{_words(budget, budget)} that all may take"
    allowed = f"{_words(limit, budget)}, which is {of_all} less a fifth in reserve" if ranged else of_all
    if total.fits(limit):
        during = costs.during(everyone, least)
        return NoRoomError(
            f"with {these} others would have to shrink, and keep {_words(during, budget)} while they do; there is only "
            f"{of_all}",
            hint=_way_out(queries, costs, during, budget, 1.0),
        )
    alone = f", {_words(_less(total, others), budget)} of it for {these} alone" if ranged else ""
    return NoRoomError(
        "even with the shortest windows and the coarsest granularities of all queries, they would take "
        f"{_words(total, budget)} with {these}{alone}; there is {allowed}",
        hint=_way_out(queries, costs, total, limit, 1 - RESERVE if ranged else 1.0),
    )


def _way_out(queries: Sequence[RangedQuery], costs: Costs, total: Cost, limit: Cost, part: float) -> str:
    """Return what would have made room: the end of one query, or larger budgets, of which a limit is a part."""
    enough = [each.name for each in queries if _less(total, costs.of(each, each.at(0.0, 0.0))).fits(limit)]
    wanted = []
    if total.state_bytes > limit.state_bytes:
        wanted.append(f"--max-state {byte_size_of_at_least(total.state_bytes / part)}")
    if total.busy > limit.busy:
        wanted.append(f"--max-busy {math.ceil(total.busy / part * 1000) / 1000:g}")
    larger = f"start the cluster with {' and '.join(wanted)} at least" if wanted else "ask for less"
    if not enough:
        return larger
    named = ", ".join(sorted(enough)[:NAMED]) + (f" or {len(enough) - NAMED} more" if len(enough) > NAMED else "")
    return f"drop one of these queries: {named}; or {larger}"


def _less(total: Cost, part: Cost) -> Cost:
    return Cost(max(total.state_bytes - part.state_bytes, 0.0), max(total.busy - part.busy, 0.0))


def _words(cost: Cost, budget: Cost) -> str:
    """Return in words what is taken of a budget, without what has no limit."""
    state = [] if math.isinf(budget.state_bytes) else [f"{format_byte_size(round(cost.state_bytes))} of state"]
    busy = [] if math.isinf(budget.busy) else [f"{cost.busy:.3g} of a processor"]
    return " and ".join([*state, *busy])
