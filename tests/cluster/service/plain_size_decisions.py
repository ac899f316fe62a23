"""The sizes that queries with ranges get, as they are defined: every total is the sum over all queries, made anew."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.costs.adaptation import RESERVE, UNLIMITED, WORTHWHILE, Cost, adapt
from cluster.operators.size_ranges import Sizes
from cluster.service.queries.size_decisions import FURTHER
from cluster.service.queries.size_plans import Costs, RangedQuery, share_of

Found = dict[str, Sizes] | None
"""By name the sizes that change, and those of new queries; None if there is no room."""


def admitted(new: Sequence[RangedQuery], queries: Sequence[RangedQuery], costs: Costs, budget: Cost) -> Found:
    """Return the sizes of new queries, and of those that shrink to make room for them."""
    everyone = (*queries, *new)
    limit = budget.less_reserve() if any(each.ranges for each in new) else budget
    own = {each.name: each.at(1.0, 1.0) for each in new}
    if costs.steady(everyone, {each.name: each.sizes for each in queries} | own).fits(limit):
        return own
    return shrunk(queries, new, costs, limit, budget)


def changed(queries: Sequence[RangedQuery], costs: Costs, budget: Cost) -> Found:
    """Return which sizes change."""
    if not queries:
        return {}
    present = costs.steady(queries, {each.name: each.sizes for each in queries})
    limit, share = budget.less_reserve(), 1 - RESERVE / 2
    if not present.fits(Cost(budget.state_bytes * share, budget.busy * share)):
        found = shrunk(queries, (), costs, limit, budget) or shrunk(queries, (), costs, limit, UNLIMITED)
        least = {each.name: each.at_most(0.0, 0.0) for each in queries}
        return found or {each.name: least[each.name] for each in queries if least[each.name] != each.sizes}
    part = limit.state_bytes / budget.state_bytes, limit.busy / budget.busy

    def cost_at(windows: float, granularities: float) -> Cost:
        sizes = {each.name: each.at_least(windows, granularities) for each in queries}
        steady, during = costs.steady(queries, sizes), costs.during(queries, sizes)
        return Cost(max(steady.state_bytes, during.state_bytes * part[0]), max(steady.busy, during.busy * part[1]))

    fit = adapt(cost_at, limit, fineness=2.0**-10)
    if fit is None:
        return {}
    better = {each.name: each.at_least(fit.windows, fit.granularities) for each in queries}
    return {
        each.name: better[each.name] for each in queries if _share(better[each.name]) - _share(each.sizes) >= WORTHWHILE
    }


def shrunk(
    queries: Sequence[RangedQuery], new: Sequence[RangedQuery], costs: Costs, limit: Cost, budget: Cost
) -> Found:
    """Return sizes with which all fit into a limit, and while they change into the budget; None if there are none."""
    everyone = (*queries, *new)

    def cost_at(windows: float, granularities: float) -> Cost:
        return costs.steady(everyone, {each.name: each.at_most(windows, granularities) for each in everyone})

    fit = adapt(cost_at, limit, fineness=2.0**-10)
    for part in () if fit is None else FURTHER:
        at = fit.windows * part, fit.granularities * part
        sizes = fewest(queries, new, costs, limit, at)
        if costs.during(everyone, sizes).fits(budget):
            found = {each.name: sizes[each.name] for each in queries if sizes[each.name] != each.sizes}
            return found | {each.name: sizes[each.name] for each in new}
    return None


def fewest(
    queries: Sequence[RangedQuery], new: Sequence[RangedQuery], costs: Costs, limit: Cost, at: tuple[float, float]
) -> dict[str, Sizes]:
    """Return the sizes of all, of which as few as possible have those of two shares."""
    everyone = (*queries, *new)
    sizes = {each.name: each.sizes for each in queries} | {each.name: each.at_most(*at) for each in new}

    def saved(query: RangedQuery) -> tuple[float, float]:
        before, after = costs.of(query, query.sizes), costs.of(query, query.at_most(*at))
        return max(before.state_bytes - after.state_bytes, 0.0), max(before.busy - after.busy, 0.0)

    for each in sorted(queries, key=saved, reverse=True):
        if costs.steady(everyone, sizes).fits(limit):
            break
        sizes[each.name] = each.at_most(*at)
    return sizes


def _share(sizes: Sizes) -> float:
    shares = [share_of(each)(size) for each, size in sizes.items()]
    return sum(shares) / len(shares) if shares else 1.0
