"""Lets running queries go on with cheaper plans, and gives new ones the plan that is cheapest beside all others.

What is decided is decided by :mod:`cluster.costs.choice`. Here are the figures that it is given, and the clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from cluster.costs.choice import Candidate, Change, Option, Waiting, changes, cheapest, have_drifted, smoothed
from cluster.costs.estimate_text import duration_words
from cluster.errors import ClusterError
from cluster.expressions.nodes import Expression
from cluster.fjord.measured_nodes import measured_nodes
from cluster.fjord.measured_pair_shares import measured_pair_shares
from cluster.fjord.measured_selectivities import measured_selectivities
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.language.algebra import Node
from cluster.language.size_ranges import ranges_of
from cluster.language.walks import streams_of
from cluster.physical.nodes import PhysicalPlan
from cluster.physical.reach import UnboundedPlanError, reach_us
from cluster.plan.alternatives import Alternative, alternatives
from cluster.plan.history import has_own_beginning
from cluster.plan.sized import quality_of
from cluster.service.catalog.planning import Planning, PlanningContext
from cluster.service.queries.operator_prices import OperatorPrices
from cluster.service.queries.plan_options import Figures, candidate, has_choice, options_of
from cluster.service.queries.planned_text import PlannedText
from cluster.service.queries.query_alternatives import plans_of, running_plan
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.event_log import get_logger

log = get_logger(__name__)

LOOK_SECONDS = 5.0
"""Between two looks at the figures."""
WEIGHT = 0.5
"""Figures come nearer to the newest ones by this share of the distance with each look."""
FEWEST_SECONDS = 30.0
"""What joins do is measured once their query has run for so long, and for as long as its plan reaches back."""
MOST_KEPT = 1_000
"""Queries whose plans are kept until they are looked at again."""


class KnownRates(Protocol):
    """Knows how many tuples streams bring."""

    def rates(self, streams: frozenset[str]) -> Mapping[str, float]:
        """Return the tuples per second of streams, where they are known."""


Migrate = Callable[[str, Node, str], Awaitable[object]]
"""Lets a query go on with another plan, given the reason."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was looked at last: the epoch, and the figures."""

    epoch: int
    figures: dict[str, float]


class Replanning:
    """Chooses plans.

    Parameters
    ----------
    registry
        The queries that run.
    limits
        Has the rates of streams.
    operators
        What the operators of the running plan do.
    prices
        What steps of operators cost here.
    planning
        Where plans are looked for, and costs computed.
    context
        Returns that in which queries are planned.
    migrate
        Begins a change.
    on
        False if plans stay as they are without costs.
    clock, wall
        Seconds that only go forward, and seconds since 1970.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        limits: KnownRates,
        operators: OperatorStatistics,
        prices: OperatorPrices,
        planning: Planning,
        context: Callable[[], PlanningContext],
        migrate: Migrate,
        on: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._operators = operators
        self._prices = prices
        self._planning = planning
        self._context = context
        self._migrate = migrate
        self._on = on
        self._clock = clock
        self._wall = wall
        self._looked: _Looked | None = None
        self._smooth: dict[str, float] = {}
        self._waiting = Waiting()
        self._plans: OrderedDict[tuple[str, int], tuple[Alternative, ...]] = OrderedDict()
        self._planned_in: PlanningContext | None = None
        """In which these were planned."""
        self._shares: dict[str, dict[Expression, float]] = {}

    def shares_of(self, query: str) -> Mapping[Expression, float]:
        """Return, by condition, the shares of pairs that the joins of a query have found, as far as they are known."""
        return self._shares.get(query, {})

    async def run(self) -> None:
        """Look at the figures now and then, until cancelled."""
        while self._on:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.step()
            except Exception as error:  # noqa: BLE001 - whatever goes wrong here, queries keep the plans that they have
                log.warning("plans were not looked at", reason=str(error) or type(error).__name__)

    async def step(self) -> list[Change]:
        """Look at the figures, and begin the changes that have paid for a while; return these.

        Plans are compared when queries have come or gone, when figures have drifted, and while a change is wanted.
        """
        queries = [each for each in self._registry.queries() if has_choice(each.node)]
        physical = self._registry.physical
        rates = self._limits.rates(_streams(queries))
        figures = await self._planning.run(lambda: self._figures(queries, physical, rates), internal=True)
        self._smooth = smoothed(self._smooth, _flat(figures), WEIGHT)
        looked = self._looked
        if (
            looked is not None
            and looked.epoch == physical.epoch
            and not self._waiting.wanted
            and not have_drifted(looked.figures, self._smooth)
        ):
            return []
        self._looked = _Looked(physical.epoch, self._smooth)
        figures = _with_smoothed(figures, self._smooth)
        context, now = self._context(), self._clock()
        found: list[Candidate] = []
        for query in queries:
            one = await self._planning.run(partial(self._candidate, query, figures, context, now), internal=True)
            if one is not None:
                found.append(one)
        self._waiting, due = self._waiting.after(await asyncio.to_thread(changes, found), now)
        for change in due:
            await self._begin(change, context)
        return due

    def figures_for(self, queries: Sequence[PlannedText]) -> Figures | None:
        """Return what plans of queries cost by that are to be added; None if they have no choice."""
        if not self._on or not any(has_choice(each.node) for each in queries):
            return None
        return self._measured(self._limits.rates(_streams(queries)), self._registry.physical)

    async def placed(self, query: PlannedText, figures: Figures) -> PlannedText:
        """Return a query that is to be added with the plan that costs least beside those that run."""
        if not has_choice(query.node):
            return query
        return await self._planning.run(partial(self._placed, query, figures, self._registry.physical), internal=True)

    def _placed(self, query: PlannedText, figures: Figures, physical: PhysicalPlan) -> PlannedText:
        if has_own_beginning(query.node) or ranges_of(query.query.node):
            return query
        planned = query.in_epoch(physical.epoch + 1)
        first = options_of(planned, (Alternative(query.node),), figures)
        if not first:
            return query
        plans = alternatives(query.node)
        options = [*first, *(each for each in options_of(planned, plans, figures) if each.number != 1)]
        best = cheapest(options, _running_beside(options, physical))
        return query if best.number == 1 else replace(query, node=plans[best.number - 1].node)

    def _measured(self, rates: Mapping[str, float], physical: PhysicalPlan) -> Figures:
        return Figures(rates, measured_selectivities(physical, self._operators.rates), self._prices.current())

    def _figures(
        self, queries: Collection[RegisteredQuery], physical: PhysicalPlan, rates: Mapping[str, float]
    ) -> Figures:
        figures = self._measured(rates, physical)
        names = {each.name for each in queries}
        self._shares = {name: shares for name, shares in self._shares.items() if name in names}
        for query in queries:
            if query.next is None and self._is_filled(query):
                fragment = physical.by_query.get(query.identity)
                if fragment is not None:
                    measured = measured_nodes(query.node, fragment, self._operators.rates)
                    new = measured_pair_shares(query.node, measured, figures.rates, figures.selectivities)
                    # What other plans of the query have shown is still the best that is known.
                    self._shares[query.name] = {**self._shares.get(query.name, {}), **new}
        return replace(figures, shares=dict(self._shares))

    def _is_filled(self, query: RegisteredQuery) -> bool:
        try:
            reach_s = reach_us(query.node) / 1e6
        except UnboundedPlanError:
            return False
        return self._wall() - query.created_us / 1e6 >= FEWEST_SECONDS + reach_s

    def _candidate(
        self, query: RegisteredQuery, figures: Figures, context: PlanningContext, now: float
    ) -> Candidate | None:
        running = running_plan(query)
        rests = query.next is not None or self._waiting.rests(query.name, now)
        # Its text is translated only if its rows show a choice: this is asked of all queries, again and again.
        stays = rests or (quality_of(running) is not None and bool(ranges_of(context.ranged(query.sql))))
        plans = (Alternative(running),) if stays else self._kept(query, context)
        return candidate(query, plans, running, figures)

    def _kept(self, query: RegisteredQuery, context: PlanningContext) -> tuple[Alternative, ...]:
        """Return the plans of a query; they are kept until what it is planned by changes."""
        if context != self._planned_in:
            self._plans.clear()
            self._planned_in = context
        key = query.name, query.created_us
        if key not in self._plans:
            self._plans[key] = plans_of(query, context)
            while len(self._plans) > MOST_KEPT:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return self._plans[key]

    async def _begin(self, change: Change, context: PlanningContext) -> None:
        for name, number in change.plans.items():
            try:
                query = self._registry.query(name)
                plan = (await self._planning.run(partial(self._kept, query, context), internal=True))[number - 1]
                work = (
                    f"{duration_words(change.after_us)} of work a second instead of {duration_words(change.before_us)}"
                )
                what = f"with {len(change.plans) - 1:,} others" if len(change.plans) > 1 else "it saves"
                await self._migrate(name, plan.node, f"plan {number:,}: {plan.words} ({what}: {work})")
            except ClusterError as error:
                log.warning("query keeps its plan", query=name, reason=error.message)


def _streams(queries: Iterable[RegisteredQuery | PlannedText]) -> frozenset[str]:
    return frozenset[str]().union(*(streams_of(each.node) for each in queries))


def _running_beside(options: Sequence[Option], physical: PhysicalPlan) -> list[Option]:
    """Return what runs in the fragments that plans would join, a plan for each query group."""
    return [
        replace(each, number=0, group=str(group))
        for each in {option.fragment: option for option in options}.values()
        if each.fragment in physical.by_identity
        for group in physical.by_identity[each.fragment].groups
    ]


def _flat(figures: Figures) -> dict[str, float]:
    """Return figures by name, so that they can be smoothed and compared."""
    return {
        **{f"rate {stream}": rate for stream, rate in figures.rates.items()},
        **{f"share {key!r}": share for key, share in figures.selectivities.items()},
        **{f"pairs {name} {key!r}": share for name, shares in figures.shares.items() for key, share in shares.items()},
    }


def _with_smoothed(figures: Figures, smooth: dict[str, float]) -> Figures:
    return Figures(
        {stream: smooth[f"rate {stream}"] for stream in figures.rates},
        {key: smooth[f"share {key!r}"] for key in figures.selectivities},
        figures.prices,
        {name: {key: smooth[f"pairs {name} {key!r}"] for key in shares} for name, shares in figures.shares.items()},
    )
