"""Gives queries with ranges the sizes that fit: when they are added, when others come and go, and when rates change."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec.structs import replace as struct_replace

from cluster.costs.adaptation import Cost, History
from cluster.errors import ClusterError, UnwritableError
from cluster.fjord.batch import instant_text
from cluster.operators import Node
from cluster.operators.size_ranges import SizeRange, Sizes, ranges_of
from cluster.operators.walks import streams_of_all
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan
from cluster.plan.history import EVER_US
from cluster.plan.pipelines import is_pipeline
from cluster.plan.sized import quality_of, quality_words, sizes_in
from cluster.planning_budget import PlanningLimitError
from cluster.service.catalog.planning import Planning, PlanningContext
from cluster.service.queries.migrations import MigrationState
from cluster.service.queries.operator_prices import OperatorPrices
from cluster.service.queries.plan_options import PlannedText
from cluster.service.queries.query_limits import QueryLimits
from cluster.service.queries.size_decisions import UNCHANGED, Choice, admitted, changed_sizes
from cluster.service.queries.size_plans import RangedQuery, SizeCosts, SizePlans
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.event_log import get_logger

log = get_logger(__name__)

SETTLED_SECONDS = 30.0
"""Sizes grow once no query has come or gone for so long."""
LOOK_SECONDS = 10.0
"""How often the rates of streams are looked at."""
MOST_CHANGES = 100
"""Of each query so many changes are kept."""
Migrate = Callable[[str, Node, str], Awaitable[MigrationState]]
"""Lets a query go on with another plan, given the reason."""


class AdaptedSizes:
    """The sizes of queries with ranges; every method that waits is called under the lock of the queries.

    Parameters
    ----------
    registry
        The queries that run, and the histories of their sizes.
    limits
        Has the rates of streams.
    planning
        Where all is computed.
    context
        Returns that in which queries are planned.
    migrate
        Begins a change.
    prices
        What steps of operators cost.
    budget
        The state and time that all queries may take.
    settled_seconds
        See :data:`SETTLED_SECONDS`.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        registry: Registry,
        limits: QueryLimits,
        planning: Planning,
        context: Callable[[], PlanningContext],
        migrate: Migrate,
        *,
        prices: OperatorPrices,
        budget: Cost,
        settled_seconds: float = SETTLED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._planning = planning
        self._context = context
        self._migrate = migrate
        self._prices = prices
        self._budget = budget
        self._settled_seconds = settled_seconds
        self._clock = clock
        self._changed_at = clock()
        self._look_at = 0.0
        self._considered: object = None
        """What the last decision was made of."""
        self._estimates: SizeCosts | None = None
        self._noted: dict[str, object] = {}

    async def placed(self, queries: Sequence[PlannedText]) -> list[PlannedText]:
        """Return queries that are to be added at sizes that fit; others begin to shrink to make room for them.

        Raises
        ------
        NoRoomError
            If they do not fit.
        """
        if not any(ranges_of(each.query.node) for each in queries) and not self._registry.sized():
            return list(queries)
        costs = self._size_costs(streams_of_all(each.node for each in queries))
        choice, placed = await self._planning.run(lambda: self._placed(queries, costs), internal=True)
        await self._begin(choice, costs)
        return placed

    def _placed(self, queries: Sequence[PlannedText], costs: SizeCosts) -> tuple[Choice, list[PlannedText]]:
        new: dict[int, RangedQuery] = {}
        for place, each in enumerate(queries):
            ranges = ranges_of(each.query.node)
            if ranges and not is_pipeline(each.node):
                costs.plans.note(each.sql, each.query.node)
                new[place] = RangedQuery(f"new {place}", each.sql, ranges, {})
        everything = self._with_others([each for place, each in enumerate(queries) if place not in new], costs)
        if not new and everything.fits(self._budget):
            return UNCHANGED, list(queries)
        if new and self._fits_at_best([*new.values()], everything, costs):
            choice = Choice({each.name: each.at(1.0, 1.0) for each in new.values()})
        else:
            running = list(self._running(costs))
            if not new and not running:
                return UNCHANGED, list(queries)
            asked = [*new.values()] or [RangedQuery("new", "", (), {})]
            choice = admitted(asked, running, costs.beside(everything, running), self._budget)
        placed = list(queries)
        for place, ranged in new.items():
            node = costs.plans.plan(ranged.kind, choice.sizes[ranged.name])
            placed[place] = replace(queries[place], node=node)
        named = {each.name for each in new.values()} | {"new"}
        return Choice({name: sizes for name, sizes in choice.sizes.items() if name not in named}), placed

    def _with_others(self, others: Sequence[PlannedText], costs: SizeCosts) -> Cost:
        """Return what all queries take with some new ones that have no ranges."""
        physical, nodes = self._registry.physical, self._nodes()
        if others:
            epoch = physical.epoch + 1
            new = [struct_replace(each.in_epoch(epoch), name=f"new {place}") for place, each in enumerate(others)]
            physical = lower(Plan(epoch, (*self._registry.plan.queries, *new)), physical)
            nodes += [each.node for each in new]
        return costs.of_running(physical, nodes)

    def _fits_at_best(self, new: Sequence[RangedQuery], everything: Cost, costs: SizeCosts) -> bool:
        """Return whether new queries fit at their best whatever the others could change: no text is translated for it.

        Of what all take together, those with ranges take what they would take alone, at most.
        """
        plans = {(each.sql, node) for each in self._registry.sized() for node in (each.node, each.next_node) if node}
        alone = sum((costs.of_plan(node) for _, node in plans), Cost())
        own = sum({each.kind: costs.of(each, each.at(1.0, 1.0)) for each in new}.values(), Cost())
        taken = Cost(max(everything.state_bytes, alone.state_bytes), max(everything.busy, alone.busy))
        return (taken + own).fits(self._budget.less_reserve())

    def note_change(self) -> None:
        """Note that a query has come or gone."""
        self._changed_at = self._clock()

    async def step(self) -> None:
        """Change sizes, if something has changed that they depend on, and note which hold."""
        sized = self._registry.sized()
        self._note(sized)
        if not sized:
            return
        settled = self._clock() - self._changed_at >= self._settled_seconds
        considered = (self._registry.epoch, settled)
        if considered == self._considered and self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_SECONDS
        costs = self._size_costs(frozenset())
        try:
            choice = await self._planning.run(lambda: self._choice(costs, settled=settled), internal=True)
            await self._begin(choice, costs)
        except PlanningLimitError:
            return  # what has been estimated is kept: the next step goes on from there
        self._considered = (self._registry.epoch, settled)

    def _choice(self, costs: SizeCosts, *, settled: bool) -> Choice:
        running = list(self._running(costs))
        beside = costs.beside(costs.of_running(self._registry.physical, self._nodes()), running)
        choice = changed_sizes(running, beside, self._budget)
        return choice if settled or not choice.grows else UNCHANGED

    async def _begin(self, choice: Choice, costs: SizeCosts) -> None:
        reason = "fits into" if choice.fits else "is the least; all together are still above"
        if not choice.fits:
            log.warning("queries take more than --max-state or --max-busy with all their ranges at the least")
        for name, sizes in choice.sizes.items():
            query = self._registry.query(name)
            node = await self._planning.run(partial(costs.plans.plan, query.sql, sizes), internal=True)
            quality = quality_words(ranges_of(costs.plans.ranged(query.sql)), sizes)
            try:
                state = await self._migrate(name, node, f"{quality} {reason} --max-state and --max-busy")
            except (UnwritableError, PlanningLimitError):
                raise
            except ClusterError as error:
                log.warning("sizes stay", query=name, wanted=quality, reason=error.message)
                continue
            log.info("sizes change", query=name, to=quality, waits_for=state.waits_for)

    def history(self, query: RegisteredQuery) -> list[dict[str, Any]] | None:
        """Return which sizes of a query hold from which instant on, as the API shows it; None without ranges."""
        if quality_of(query.node) is None:
            return None
        self._note([query])
        return [
            {"from": None if at_us <= EVER_US else instant_text(at_us), "quality": quality}
            for at_us, quality in self._registry.sizes.of(query.name, query.created_us)
        ]

    def forget(self, name: str) -> None:
        """Forget the history of a query that is dropped."""
        self._noted.pop(name, None)
        self._registry.sizes.forget(name)

    def _note(self, queries: Sequence[RegisteredQuery]) -> None:
        for query in queries:
            holds = (query.since, query.node, query.next)
            if self._noted.get(query.name) == holds:
                continue
            history: History[str] = History(tuple(self._registry.sizes.of(query.name, query.created_us)))
            since_us = EVER_US if query.since is None else query.since.at_us
            found = [(since_us, quality_of(query.node))]
            if query.next is not None and query.next_node is not None:
                found.append((query.next.handover.at_us, quality_of(query.next_node)))
            for at_us, quality in found:
                if quality is not None and history.at(at_us) != quality:
                    history = history.changed(at_us, quality)
            self._registry.sizes.store(query.name, query.created_us, list(history)[-MOST_CHANGES:])
            self._noted[query.name] = holds

    def _nodes(self) -> list[Node]:
        return [each.node for each in self._registry.plan.queries]

    def _running(self, costs: SizeCosts) -> Iterator[RangedQuery]:
        """Yield the queries whose sizes can be changed."""
        for query in self._registry.sized():
            if is_pipeline(query.node):
                continue
            try:
                ranges = ranges_of(costs.plans.ranged(query.sql))
            except PlanningLimitError:
                raise
            except ClusterError as error:  # it was added by another version, or what it reads has changed
                log.warning("sizes stay", query=query.name, reason=error.message)
                continue
            sizes = _sizes_of(query.node, ranges)
            following = None if query.next_node is None else _sizes_of(query.next_node, ranges)
            if sizes is None or not self._can_change(query, sizes, costs):
                continue
            if query.next_node is not None:
                yield RangedQuery(query.name, query.sql, ranges, following or sizes, sizes)
            else:
                yield RangedQuery(query.name, query.sql, ranges, sizes)

    def _can_change(self, query: RegisteredQuery, sizes: Sizes, costs: SizeCosts) -> bool:
        ends = [{each: each.worst_us for each in sizes}, {each: each.best_us for each in sizes}]
        other = ends[0] if ends[0] != sizes else ends[1]
        return costs.plans.can_change(query.node, query.sql, other)

    def _size_costs(self, streams: frozenset[str]) -> SizeCosts:
        context, rates, prices = self._context(), dict(self._limits.rates(streams)), self._prices.current()
        known = self._estimates
        plans = SizePlans(context) if known is None else known.plans.moved_to(context)
        if known is None or not known.holds(plans, rates, prices):
            timed = self._budget.busy != float("inf")
            found = SizeCosts(plans, rates, prices, timed=timed)
            self._estimates = known = found if known is None else found.with_all_of(known)
        known.keep([each.sql for each in self._registry.sized()])
        return known


def _sizes_of(node: Node, ranges: Sequence[SizeRange]) -> Sizes | None:
    quality = quality_of(node)
    return None if quality is None or not ranges else sizes_in(quality, ranges)
