"""Lets running queries go on with cheaper plans, and gives new ones the plan that is cheapest beside all others.

What is decided is decided by :mod:`cluster.costs.choice` and :mod:`cluster.costs.pane_families`. Here are the figures
that they are given, whose turn it is, and the clock. All of it runs beside the event loop, and takes so long at most:

    a look, every 5 s    costs of 2,000 plans, 500 queries compared, joins of 100 measured    then it is others' turn
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from cluster.costs.choice import (
    MOST_AT_A_TIME,
    Candidate,
    Change,
    Waiting,
    best_first,
    changes,
    have_drifted,
    smoothed,
)
from cluster.costs.estimate_text import duration_words
from cluster.costs.estimates import SeenKeys
from cluster.costs.pane_families import Move
from cluster.errors import ClusterError
from cluster.expressions.nodes import Expression
from cluster.fjord.measured_plans import measured_partners, measured_selectivities
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.operators import Node
from cluster.operators.size_ranges import ranges_of
from cluster.operators.walks import streams_of_all
from cluster.physical.nodes import PhysicalPlan
from cluster.plan.alternatives import Alternative
from cluster.plan.pane_query import with_family
from cluster.plan.sized import quality_of
from cluster.service.catalog.planning import Planning, PlanningContext
from cluster.service.queries.measured_shares import PairShares, measured_keys, shares_have_drifted
from cluster.service.queries.operator_prices import OperatorPrices
from cluster.service.queries.pane_options import (
    family_moves,
    in_cheapest_family,
    may_choose,
    pane_users,
    with_cheapest_plan,
)
from cluster.service.queries.plan_options import Figures, PlannedText, candidate, has_choice
from cluster.service.queries.query_alternatives import plans_of, running_plan
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.event_log import get_logger

log = get_logger(__name__)

LOOK_SECONDS = 5.0
"""Between two looks at the figures."""
WEIGHT = 0.5
"""Figures come nearer to the newest ones by this share of the distance with each look."""
MOST_KEPT = 1_000
"""Queries whose plans are kept until they are looked at again."""
MOST_COSTED = 2_000
"""Plans whose costs are computed in a look, but for the last query's; other queries have their turn later."""
PLANS_OF_A_TEXT = 50
"""Finding the plans of a query takes as long as computing what so many cost."""
MOST_COMPARED = 500
"""Queries with joins that may change in a look: those in the fragments whose turn it is."""


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


@dataclass(frozen=True, slots=True)
class _Compared:
    """A query as it was compared last, with the shares of pairs of then, and the plan by which it ran."""

    candidate: Candidate
    shares: Mapping[Expression, float]
    plan: Node


@dataclass(frozen=True, slots=True)
class _Running:
    """What runs in a look.

    Parameters
    ----------
    queries
        By name, oldest first.
    physical
        Their plan.
    context
        That in which they are planned.
    now
        Seconds that only go forward.
    """

    queries: Mapping[str, RegisteredQuery]
    physical: PhysicalPlan
    context: PlanningContext
    now: float

    def fragment_of(self, name: str) -> str:
        """Return the fragment that answers a query."""
        fragment = self.physical.by_query.get(self.queries[name].identity)
        return "" if fragment is None else fragment.identity


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
        self._looked: _Looked | None = None
        self._smooth: dict[str, float] = {}
        self._waiting = Waiting()
        self._plans: OrderedDict[tuple[str, int], tuple[Alternative, ...]] = OrderedDict()
        self._planned_in: PlanningContext | None = None
        """In which these were planned."""
        self._wall = wall
        self._shares = PairShares(operators, weight=WEIGHT, wall=wall)
        self._compared: dict[str, _Compared] = {}
        self._due: dict[str, None] = {}
        """Queries with joins that are to be compared, in turns; those of a fragment one after the other."""

    def shares_of(self, query: str) -> Mapping[Expression, float]:
        """Return, by condition, the shares of pairs that the joins of a query have found, as far as they are known."""
        return self._shares.known.get(query, {})

    def rest(self, name: str) -> None:
        """Let a query keep the plan that was asked for, for as long as one that was chosen."""
        self._waiting = self._waiting.resting(name, self._clock())

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

        Plans are compared when queries have come or gone or have rested, when figures have drifted, and while a change
        is wanted: in each look some of them, until all have been.
        """
        physical = self._registry.physical
        running = _Running(
            {each.name: each for each in self._registry.queries()}, physical, self._context(), self._clock()
        )
        rates = self._limits.rates(physical.streams)
        figures = await self._planning.run(partial(self._look, running, rates), internal=True)
        if figures is None:
            return []
        costed = await self._cost(running, figures)
        moves = await self._planning.run(partial(self._moves, running, figures), internal=True)
        lists = [await self._planning.run(partial(self._changes, running, costed), internal=True)]
        lists += [await self._planning.run(partial(self._numbered, each, running), internal=True) for each in moves]
        self._waiting, due = self._waiting.after(best_first(lists), running.now)
        for change in due:
            await self._begin(change, running.context)
        return due

    def _look(self, running: _Running, rates: Mapping[str, float]) -> Figures | None:
        """Return the figures, smoothed; None if there is nothing to compare. Puts those in turn that are to be."""
        measured = self._measured(rates, running.physical)
        self._smooth = smoothed(self._smooth, _flat(measured), WEIGHT)
        figures = _with_smoothed(measured, self._smooth)
        choosing = {name: each for name, each in running.queries.items() if has_choice(each.node)}
        self._waiting, rested = self._waiting.rested(running.now)
        again = {name for name in rested if name in choosing} | self._with_drifted_shares(choosing, running, figures)
        looked = self._looked
        if looked is None or looked.epoch != running.physical.epoch or have_drifted(looked.figures, self._smooth):
            self._looked = _Looked(running.physical.epoch, self._smooth)
            again = set(choosing)
        elif not (rested or again or self._due or self._waiting.wanted):
            return None
        self._compared = {
            name: each
            for name, each in self._compared.items()
            if name in choosing and each.plan is running_plan(choosing[name])
        }
        self._due = {name: None for name in self._due if name in choosing}
        self._due.update(dict.fromkeys(sorted(again, key=lambda name: (running.fragment_of(name), name))))
        return replace(figures, shares=dict(self._shares.known))

    def _with_drifted_shares(
        self, choosing: Mapping[str, RegisteredQuery], running: _Running, figures: Figures
    ) -> set[str]:
        measured = self._shares.measure(choosing, running.physical, figures)
        compared = {name: self._compared[name].shares for name in measured if name in self._compared}
        return {name for name, shares in compared.items() if shares_have_drifted(shares, self._shares.known[name])}

    async def _cost(self, running: _Running, figures: Figures) -> set[str]:
        """Compute what plans of some queries cost whose turn it is; return these queries."""
        wanted = {name: None for name, _ in self._waiting.wanted if name in self._compared}
        costed: set[str] = set()
        spent = 0
        for name in (*wanted, *(each for each in self._due if each not in wanted)):
            query = running.queries[name]
            known = (name, query.created_us) in self._plans
            one = await self._planning.run(partial(self._candidate, query, figures, running.context), internal=True)
            self._due.pop(name, None)
            self._compared.pop(name, None)
            if one is not None:
                self._compared[name] = _Compared(one, dict(figures.shares.get(name, {})), running_plan(query))
            costed.add(name)
            spent += len(self._plans.get((name, query.created_us), ())) + (0 if known else PLANS_OF_A_TEXT)
            if spent >= MOST_COSTED:
                break
        return costed

    def _changes(self, running: _Running, costed: Collection[str]) -> list[Change]:
        """Return changes of queries with joins that pay; those of fragments of which some plans have been costed."""
        if not costed:
            return []
        fragments = {running.fragment_of(name) for name in costed}
        free = [
            name for name in self._compared if running.fragment_of(name) in fragments and self._is_free(name, running)
        ]
        may_change = frozenset(free[:MOST_COMPARED])
        return changes(
            [
                each.candidate if name in may_change else replace(each.candidate, options=())
                for name, each in self._compared.items()
            ]
        )

    def _moves(self, running: _Running, figures: Figures) -> list[list[Move]]:
        """Return moves of windows to other families that pay, by what their panes are of."""
        users = pane_users(
            running.queries.values(),
            running.physical,
            figures,
            self._operators.rates,
            lambda query: self._is_free(query.name, running) and quality_of(running_plan(query)) is None,
        )
        return [found for each in users.values() if (found := family_moves(each, figures, MOST_AT_A_TIME))]

    def _is_free(self, name: str, running: _Running) -> bool:
        return running.queries[name].next is None and not self._waiting.rests(name, running.now)

    def _numbered(self, moves: Sequence[Move], running: _Running) -> list[Change]:
        """Return moves as changes to numbered plans, up to one whose plan has no number any more."""
        found: list[Change] = []
        for move in moves:
            plans: dict[str, int] = {}
            for name, family in move.families.items():
                node = with_family(running_plan(running.queries[name]), family if family > 0 else None)
                kept = self._kept(running.queries[name], running.context)
                number = next((place + 1 for place, each in enumerate(kept) if each.node == node), None)
                if number is None:
                    return found
                plans[name] = number
            found.append(Change(plans, move.before_us, move.after_us))
        return found

    async def choosing(self, queries: Sequence[PlannedText]) -> list[bool]:
        """Return of queries that are to be added whether they have a choice of plans beside those that run."""
        if not self._on:
            return [False] * len(queries)
        return await self._planning.each(partial(may_choose, physical=self._registry.physical), queries)

    async def figures_for(self, queries: Sequence[PlannedText]) -> Figures:
        """Return what plans of queries cost by that are to be added."""
        physical = self._registry.physical
        rates = self._limits.rates(streams_of_all(each.node for each in queries))
        return await self._planning.run(lambda: self._measured(rates, physical), internal=True)

    async def placed(self, query: PlannedText, figures: Figures) -> PlannedText:
        """Return a query that is to be added, and has a choice, with the plan that costs least beside all others."""
        physical, queries = self._registry.physical, self._registry.queries()
        if has_choice(query.node):
            return await self._planning.run(partial(with_cheapest_plan, query, physical, figures), internal=True)
        in_family = partial(in_cheapest_family, query, queries, physical, figures, self._operators.rates)
        return await self._planning.run(in_family, internal=True)

    def _measured(self, rates: Mapping[str, float], physical: PhysicalPlan) -> Figures:
        operators = self._operators.rates
        figures = Figures(
            rates,
            measured_selectivities(physical, operators),
            self._prices.current(),
            relations=self._context().sizes,
            partners=measured_partners(physical, operators),
        )
        keys = measured_keys(self._registry.queries(), physical, figures, operators, self._wall())
        return replace(figures, keys=keys)

    def _candidate(self, query: RegisteredQuery, figures: Figures, context: PlanningContext) -> Candidate | None:
        running = running_plan(query)
        # Its text is translated only if its rows show a choice: this is asked of all queries, again and again.
        ranges = quality_of(running) is not None and bool(ranges_of(context.ranged(query.sql)))
        plans = (Alternative(running),) if ranges or query.next is not None else self._kept(query, context)
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
                others = len(change.plans) - 1
                what = f"with {others:,} other{'s' if others > 1 else ''}" if others else "it saves"
                await self._migrate(name, plan.node, f"plan {number:,}: {plan.words} ({what}: {work})")
            except ClusterError as error:
                log.warning("query keeps its plan", query=name, reason=error.message)


def _flat(figures: Figures) -> dict[str, float]:
    """Return figures by name, so that they can be smoothed and compared."""
    return {
        **{f"rate {stream}": rate for stream, rate in figures.rates.items()},
        **{f"share {key!r}": share for key, share in figures.selectivities.items()},
        **{f"partners {key!r}": rows for key, rows in figures.partners.items()},
        **{f"keys {place!r}": seen.count for place, seen in figures.keys.items()},
        # Costs have a part for all neighbours, and another one for those that are linked: few of these hardly matter.
        **{f"linked {place!r}": 1 + seen.linked for place, seen in figures.keys.items()},
    }


def _with_smoothed(figures: Figures, smooth: dict[str, float]) -> Figures:
    return replace(
        figures,
        rates={stream: smooth[f"rate {stream}"] for stream in figures.rates},
        selectivities={key: smooth[f"share {key!r}"] for key in figures.selectivities},
        partners={key: smooth[f"partners {key!r}"] for key in figures.partners},
        keys={place: SeenKeys(smooth[f"keys {place!r}"], smooth[f"linked {place!r}"] - 1) for place in figures.keys},
    )
