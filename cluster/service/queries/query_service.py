"""Adds, drops and explains queries: text -> plan -> registry -> demand."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, count
from operator import attrgetter
from typing import TypeVar

from cluster.costs.adaptation import Cost
from cluster.errors import MOST_REFUSED, ClusterError, OneOfManyError, UnwritableError, blamed
from cluster.fjord.acceptance import RowLimits, share_of
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.functions.allowed import FunctionRules
from cluster.ingest.service import Ingest, Link
from cluster.language.errors import FjordSqlError
from cluster.language.parameter_values import NO_VALUES, Value
from cluster.operators import Node
from cluster.physical.difference import operators_changed
from cluster.physical.lowering import begins_with_others
from cluster.physical.nodes import Fragment, SensorDemands, Subscriber
from cluster.physical.rules.sensor_demands import sensor_demands
from cluster.plan.epoch import PlannedQuery
from cluster.plan.names_read import MEMORY_BYTES, RelationSize, large_relations
from cluster.service.catalog.function_service import FunctionService
from cluster.service.catalog.function_store import FunctionStore
from cluster.service.catalog.planning import AT_ONCE, PLANNING_SECONDS, Planning, PlanningContext, finished
from cluster.service.catalog.relation_refresh import RelationReaders, RelationRefresher, WaitingQueries
from cluster.service.catalog.relation_service import RelationService
from cluster.service.catalog.stream_service import ReservedNames, StreamService
from cluster.service.publishing.demand_publication import DemandPublication, DemandReports, DemandRequests
from cluster.service.publishing.published_demands import PublishedDemands
from cluster.service.queries.adapted_sizes import AdaptedSizes
from cluster.service.queries.long_lived import without_full_collections
from cluster.service.queries.migrations import RETRY_SECONDS, AnsweredBy, Migrations, MigrationState
from cluster.service.queries.operator_prices import OperatorPrices, QueryEstimates
from cluster.service.queries.plan_options import Adding, Figures, PlannedText, positions_between_epochs
from cluster.service.queries.query_alternatives import QueryAlternatives
from cluster.service.queries.query_explanation import (
    HistoryRead,
    Surroundings,
    begun_at,
    explanation,
    history_of,
    publisher_warnings,
    publishers_of,
)
from cluster.service.queries.query_limits import QueryLimits
from cluster.service.queries.replanning import Replanning
from cluster.service.registry.registry import Registry
from cluster.service.registry.registry_tables import WaitingQuery
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.event_log import get_logger
from protocols.wire.catalog import MoteEntry
from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION

log = get_logger(__name__)

PUT_ASIDE = 256
"""Queries that are planned between two calls of `put_aside`."""
T = TypeVar("T")
WAIT_ALONE = "add it by itself: alone it waits for the relation"


class QueryService:
    """Adds, drops and explains queries.

    Parameters
    ----------
    name
        Of the cluster, for demands.
    registry
        Keeps queries and plans.
    ingest
        The streams, and how far they have come.
    link
        Where demands are published.
    names
        The relations, and the names by which no proxy may offer a stream; shared with the ingest.
    max_state_bytes
        Queries with which the plan would keep more state than this are refused.
    max_busy
        How much of processors' time queries with ranges may take together with all others, as estimated; 1 is one
        processor.
    row_limits
        Queries that would make more rows than this are refused.
    relation_memory_bytes, buckets
        What one table of relations may take of a worker's memory; how many buckets there are downstream.
    history_rows
        About how many rows of history a micro-batch reads.
    planning_seconds
        How long the planning of a statement may take.
    functions
        What functions of users may be; None allows none.
    demand_reports
        Reports of proxies on the demands that they leave out.
    operators
        What the operators of the running plan do, for estimates.
    prices
        What steps of operators cost here.
    replan
        Whether plans are chosen by their costs, and running queries go on with cheaper ones.
    entries
        Returns the entries of all sensors.
    before_change
        Called before a query begins or ends.
    answered
        How far the engine has come, for migrations.
    rows_answered
        Returns how many rows a query has answered; called in a thread.
    put_aside
        Called when queries have been planned, or have begun or ended, with their number; see
        :class:`cluster.service.queries.long_lived.LongLived`.
    """

    def __init__(
        self,
        name: str,
        registry: Registry,
        ingest: Ingest,
        link: Link,
        names: ReservedNames,
        *,
        max_state_bytes: int = 4 * 1024**3,
        max_busy: float = math.inf,
        row_limits: RowLimits | None = None,
        relation_memory_bytes: int = MEMORY_BYTES,
        buckets: int = 4,
        history_rows: int = 500_000,
        planning_seconds: float = PLANNING_SECONDS,
        functions: FunctionRules | None = None,
        demand_reports: DemandReports | None = None,
        operators: OperatorStatistics | None = None,
        prices: OperatorPrices | None = None,
        replan: bool = True,
        entries: Callable[[], Iterable[MoteEntry]] = tuple,
        before_change: Callable[[], None] = lambda: None,
        put_aside: Callable[[int], None] = lambda _: None,
        answered: AnsweredBy = lambda _host, _streams: None,
        rows_answered: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self._rows_answered = rows_answered
        self._row_limits = row_limits or RowLimits()
        self._name = name
        self._registry = registry
        self._ingest = ingest
        self._relation_memory_bytes = relation_memory_bytes
        self._buckets = buckets
        self._history_rows = history_rows
        self._lock = asyncio.Lock()
        self._planning = Planning(planning_seconds)
        self._operators = operators or OperatorStatistics()
        self._prices = prices or OperatorPrices()
        self._entries = entries
        self._before_change = before_change
        self._put_aside = put_aside
        self._readers = RelationReaders(registry)
        self.store = names.relations
        self.waiting = WaitingQueries(registry, self.store)
        self.refresher = RelationRefresher(self.store, ingest.instants, self._readers)
        defined = FunctionStore(registry.functions, functions or FunctionRules())
        self.streams = StreamService(registry, ingest, self._lock, names, planning=self._planning, functions=defined)
        self.functions = FunctionService(defined, registry, self.streams, lock=self._lock, planning=self._planning)
        self.relations = RelationService(
            self.store, registry, self._readers, self.streams, self.refresher, lock=self._lock, planning=self._planning
        )
        self.demands = PublishedDemands()
        self.adding: Adding | None = None
        """How far the queries have come that are added together; None if there are none."""
        self.limits = QueryLimits(
            registry,
            ingest,
            self.demands,
            self._planning,
            rows=row_limits or RowLimits(),
            max_state_bytes=max_state_bytes,
            sizes=self._relation_sizes,
            entries=entries,
        )
        self.estimates = QueryEstimates(
            registry, self.limits, self._operators, self._prices, self._planning, self._context
        )
        self._migrations = Migrations(
            registry,
            self.limits,
            self._stored,
            self._publish_demands,
            self._positions,
            instants=ingest.instants,
            instants_ahead=ingest.instants_ahead,
            paused=ingest.paused,
            answered=answered,
        )
        self.sizes = AdaptedSizes(
            registry,
            self.limits,
            self._planning,
            self._context,
            lambda name, node, why: self._migrations.want(name, node, why, None),
            prices=self._prices,
            budget=Cost(max_state_bytes, max_busy),
        )
        self.replanning = Replanning(
            registry,
            limits=self.limits,
            operators=self._operators,
            prices=self._prices,
            planning=self._planning,
            context=self._context,
            migrate=self.migrate,
            on=replan,
        )
        self.alternatives = QueryAlternatives(
            registry, self.limits, self._operators, self._prices, self._planning, self._context,
            self.replanning.shares_of, self._migrations.waiting,
        )  # fmt: skip
        self._unpublished: set[str] = set()
        """Streams on which the demands may have changed since they were published."""
        self.demand_requests = DemandRequests()
        self._publication = DemandPublication(self.demands, link, self.demand_requests, self._empty_demand)
        self.demand_reports = demand_reports or DemandReports()

    async def run(self) -> None:
        """Refresh relations, start queries that wait for them, and answer requests for demands, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.refresher.run(), name="relations")
            tasks.create_task(self._publication.run(), name="requests for demands")
            tasks.create_task(self.replanning.run(), name="replanning")
            settled = False
            while True:
                if self.refresher.changed.is_set() or not settled:
                    self.refresher.changed.clear()
                    settled = await self.start_waiting()
                async with self._lock:
                    with contextlib.suppress(UnwritableError):  # it is tried again
                        await self._migrations.step()
                        await self.sizes.step()
                    if self._registry.write_plan() and self._unpublished:  # done already, unless the disk failed
                        await self._publish_demands()
                self._registry.quarantine.write()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await self.refresher.changed.wait()

    async def add(
        self, sql: str, name: str | None = None, values: Mapping[str, Value] = NO_VALUES
    ) -> tuple[RegisteredQuery | WaitingQuery, tuple[str, ...]]:
        """Start a query, with values for its parameters; return it and its warnings.

        If a relation that it reads has no version yet, it waits for one.

        Raises
        ------
        FjordSqlError
            If the text is not a query, or names what does not exist.
        UnsupportedPlanError
            If it has an operator that cannot be run yet.
        StateLimitError
            If operators would keep too much state with it.
        RowLimitError
            If it would make too many rows of a tuple, or the plan too many in a second with it.
        DemandError, TooManyDemandsError
            If proxies could not decode its demands, or there is no room for them.
        PlanningLimitError, PlanningBusyError
            If planning takes too long, or too many statements wait for it.
        QueryExistsError, TooManyQueriesError, TopicError
            See :meth:`Registry.add`.
        """
        context = self._context()
        query, node = await self._planning.run(lambda: context.planned(sql, values))
        async with self._lock:
            if self._context() != context:
                # Streams or relations have been added or dropped in the meantime; under the lock they cannot.
                context = self._context()
                query, node = await self._planning.run(lambda: context.planned(sql, values))
            (planned,) = await self.sizes.placed([PlannedText(name, query.text.strip(), query, node)])
            (planned,) = await self._cheapest([planned])
            await self.limits.check(planned.in_epoch(self._registry.epoch + 1))
            await self._refresh_built_in(node)
            warnings = (*query.warnings, *await self._publisher_warnings(node))
            if self.waiting.must_wait(node):
                waiting = self.waiting.add(name, planned.sql, node, query.reads)
                log.info("query waits", query=waiting.name, state=self.waiting.state(waiting))
                return waiting, warnings
            started = await self._start(planned)
            missing = tuple(read.warning for read in self.history(started.node) if read.warning)
            return started, (*warnings, *missing)

    async def add_many(
        self, queries: Sequence[tuple[str | None, str]], values: Sequence[Mapping[str, Value]] | None = None
    ) -> list[RegisteredQuery]:
        """Start queries, given by name and text, together: all of them, or none. Return them in the same order.

        `values` has, for each of them, those of its parameters.

        They begin with one epoch. Those that need an epoch of their own, because they read history, for example, follow
        one by one; if the disk is full then, those that have begun are dropped again.

        Raises
        ------
        OneOfManyError
            With the query, and an error as for :meth:`add`; also if it reads a relation that has no version yet.
        """
        self.adding = Adding(len(queries))
        try:
            context = self._context()
            planned = await self._planned(queries, values, context)
            async with self._lock:
                if self._context() != context:
                    planned = await self._planned(queries, values, self._context())
                with without_full_collections():
                    planned = await self._cheapest(await self.sizes.placed(planned))
                    await self._check_together(planned)
                    return await self._start_all(planned)
        finally:
            self.adding = None

    async def _planned(
        self,
        queries: Sequence[tuple[str | None, str]],
        values: Sequence[Mapping[str, Value]] | None,
        context: PlanningContext,
    ) -> list[PlannedText]:
        found: list[PlannedText] = []
        refused: list[OneOfManyError] = []
        for place, (name, sql) in enumerate(queries):
            given = NO_VALUES if values is None else values[place]
            try:
                with blamed(place):
                    query, node = await self._planning.run(partial(context.planned, sql, given), internal=True)
            except OneOfManyError as error:
                # What is wrong with a text is reported together with what is wrong with others.
                refused.append(error)
                if len(refused) == MOST_REFUSED or not isinstance(error.cause, FjordSqlError):
                    break
                continue
            found.append(PlannedText(name, query.text.strip(), query, node))
            if len(found) % PUT_ASIDE == 0 or len(found) == len(queries):
                self._put_aside(len(found) % PUT_ASIDE or PUT_ASIDE)
            self.adding = Adding(len(queries), place + 1)
        if refused:
            refused[0].others = tuple(refused[1:])
            raise refused[0]
        return found

    async def _cheapest(self, queries: Sequence[PlannedText]) -> list[PlannedText]:
        """Return queries with the plans that cost least beside all others, where these fit."""
        choosing = await self.replanning.choosing(queries)
        if not any(choosing):
            return list(queries)
        figures = await self.replanning.figures_for(list(compress(queries, choosing)))
        return [
            await self._cheaper(each, figures) if chooses else each
            for each, chooses in zip(queries, choosing, strict=True)
        ]

    async def _cheaper(self, planned: PlannedText, figures: Figures) -> PlannedText:
        try:
            chosen = await self.replanning.placed(planned, figures)
            if chosen is not planned:
                await self.limits.check(chosen.in_epoch(self._registry.epoch + 1))
        except ClusterError as error:
            # It takes too long, or does not fit: limits are bounds, and costs are averages.
            log.info("query has the plan that is made without costs", reason=error.message)
            return planned
        return chosen

    async def _check_together(self, queries: Sequence[PlannedText]) -> None:
        wanted = [each.name for each in queries]
        names = await self._planning.run(partial(self._registry.names_for, wanted), internal=True)
        read = await self._planning.each(attrgetter("relations"), [each.node for each in queries])
        for place in compress(count(), read):
            with blamed(place):
                await self._refresh_built_in(queries[place].node)
                if self.waiting.must_wait(queries[place].node):
                    raise ClusterError("it reads a relation that has not been read yet", hint=WAIT_ALONE)
        epoch = self._registry.epoch + 1
        await self.limits.check_together(
            [PlannedQuery(name, epoch, each.node, each.early) for name, each in zip(names, queries, strict=True)]
        )

    async def _start_all(self, queries: Sequence[PlannedText]) -> list[RegisteredQuery]:
        shares = await self._planning.each(begins_with_others, [each.node for each in queries])
        together = list(compress(count(), shares))
        begun = dict(zip(together, await self._start_together([queries[at] for at in together]), strict=True))
        try:
            for place, each in enumerate(queries):
                if place not in begun:
                    with blamed(place):
                        begun[place] = await self._start(each)
        except BaseException:
            for registered in begun.values():
                await self._drop(registered.name)
            raise
        return [begun[place] for place in range(len(queries))]

    async def start_waiting(self) -> bool:
        """Start the waiting queries whose relations have versions; return False if the disk was too full for one."""
        settled = True
        async with self._lock:
            for waiting in self.waiting.ready():
                try:
                    plan = partial(self._context().planned, waiting.sql, registered=True)
                    text = PlannedText(waiting.name, waiting.sql, *await self._planning.run(plan, internal=True))
                    (planned,) = await self.sizes.placed([text])
                    (planned,) = await self._cheapest([planned])
                    await self.limits.check(planned.in_epoch(self._registry.epoch + 1))
                    await self._start(planned, waited=True)
                    self.waiting.troubles.pop(waiting.name, None)
                except ClusterError as error:
                    advice = "; drop it and add it anew" if isinstance(error, FjordSqlError) else ""
                    self.waiting.troubles[waiting.name] = f"{error.message}{advice}"
                    log.warning("query cannot begin", query=waiting.name, reason=error.message)
                    settled = settled and not isinstance(error, UnwritableError)
        return settled

    async def drop(self, name: str) -> None:
        """End a query.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        """
        async with self._lock:
            if self.waiting.drop(name) or self._registry.aside.drop(name):
                log.info("query dropped", query=name)
                return
            await self._drop(name)

    async def set_aside(self, fragment: str, reason: str) -> str | None:
        """Run a query of a fragment no more, and keep its name; return that.

        Of several it is the one that takes most, as far as that is known (:func:`cluster.fjord.acceptance.share_of`),
        and of equal ones the newest.

        Parameters
        ----------
        fragment
            The fragment's identity; if there is none any more, nothing is done.
        reason
            Why, as a sentence about the query.

        Raises
        ------
        UnwritableError
            If the change cannot be written now.
        """
        async with self._lock:
            part = self._registry.physical.by_identity.get(fragment)
            if part is None:
                return None
            name = await asyncio.to_thread(self._greediest, part)
            await self._drop(name, reason)
            return name

    def _greediest(self, part: Fragment) -> str:
        now_us = time.time_ns() // 1000

        def greed(each: Subscriber) -> tuple[float, int]:
            seconds = max(1.0, (now_us - self._registry.query(each.query).created_us) / 1e6)
            rows = self._rows_answered(each.query) / seconds
            return share_of(each, rows, self._row_limits), each.visible_from

        return max(part.subscribers, key=greed).query

    async def _drop(self, name: str, aside: str = "") -> None:
        """End a query; if there is a reason to set it aside, it keeps its name."""
        query, before = self._registry.query(name), self._registry.physical
        positions = self._positions(before.streams)
        drop = partial(self._registry.drop, name, positions)
        if aside:
            drop = partial(self._registry.set_aside, name, aside, positions)
        self._migrations.forget(name)
        self.sizes.forget(name)
        await self._change(drop, before.by_query[query.identity].streams)
        changed = operators_changed(before, self._registry.physical)
        if aside:
            log.error("query set aside", query=name, reason=aside, **changed)
        else:
            log.info("query dropped", query=name, **changed)
        self._put_aside(1)

    async def migrate(
        self, name: str, node: Node, why: str = "", *, deadline_us: int | None = None, asked_for: bool = False
    ) -> MigrationState:
        """Let a query go on with another plan, rewritten: at once, or when it fits beside all others.

        Parameters
        ----------
        name
            The query.
        node
            The plan; its rows have the columns of the query's.
        why
            The reason, for people.
        deadline_us
            How long after the last tuple read the plan becomes that of the query if nothing bounds how far back it
            reaches; None refuses such plans.
        asked_for
            Whether a user has asked for it: while it waits, it gives way only to what is asked for.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        MigrationRefusedError
            If the query cannot go on with this plan; says why.
        UnwritableError
            If the change cannot be written now.
        """
        async with self._lock:
            return await self._migrations.want(name, node, why, deadline_us, asked_for=asked_for)

    async def migrate_to(self, name: str, number: int, *, deadline_us: int | None = None) -> MigrationState:
        """Let a query go on with one of its plans, by its number; otherwise as :meth:`migrate`.

        Raises
        ------
        NoAlternativeError
            If the query has no plan of this number.
        """
        node = await self.alternatives.numbered(name, number)
        why = f"plan {number:,} was asked for"
        state = await self.migrate(name, node, why, deadline_us=deadline_us, asked_for=True)
        self.replanning.rest(name)
        return state

    def migrations(self) -> list[MigrationState]:
        """Return the migrations that are under way, then those that wait."""
        return self._migrations.all()

    async def explain(self, sql: str, values: Mapping[str, Value] = NO_VALUES) -> str:
        """Return as text the plan of a query, how it would be run, and what it would share with those that run.

        Raises
        ------
        FjordSqlError
            If the text is not a query over the streams there are.
        PlanningLimitError, PlanningBusyError
            As for :meth:`add`.
        """
        context, running = self._context(), self._registry.physical
        query, rewritten = await self._planning.run(lambda: context.rewritten(sql, values))
        node = rewritten.node
        query = replace(query, warnings=(*query.warnings, *await self._publisher_warnings(node)))
        reads = self.history(begun_at(node, 0, self._positions(node.streams), self._ingest.tables()))
        memory_bytes, buckets = self._relation_memory_bytes, self._buckets
        demands = await self._planning.run(lambda: sensor_demands(PlannedQuery("", 0, node)), internal=True)
        rates = self.limits.rates_for(node.streams, demands)
        surroundings = Surroundings(
            running, context.sizes, memory_bytes, buckets, self._history_rows, rates, self._operators.rates,
            self.limits.bounds_text, self._prices.current(),
        )  # fmt: skip
        return await self._planning.run(partial(explanation, query, rewritten, reads, surroundings))

    async def _publisher_warnings(self, node: Node) -> tuple[str, ...]:
        """Return which clauses of a query do nothing where devices publish by their own rules."""
        publishers = publishers_of(self._entries(), node.streams)
        if not publishers:
            return ()
        demanded = await self._planning.run(lambda: sensor_demands(PlannedQuery("", 0, node)), internal=True)
        return tuple(publisher_warnings(dict(demanded.streams), publishers))

    def history(self, node: Node) -> tuple[HistoryRead, ...]:
        """Return the history that a query reads before it continues live, stream by stream."""
        return tuple(history_of(node, self._ingest.tables()))

    async def demands_for(
        self, sql: str, name: str, values: Mapping[str, Value] = NO_VALUES
    ) -> dict[str, tuple[QueryDemand, ...]]:
        """Return, by stream, what a query of this name and text would demand; it is not started.

        Raises
        ------
        FjordSqlError
            If the text is not a query over the streams there are.
        PlanningLimitError, PlanningBusyError
            As for :meth:`add`.
        """
        context = self._context()

        def demands() -> SensorDemands:
            return sensor_demands(PlannedQuery(name, 0, context.rewritten(sql, values)[1].node))

        return dict((await self._planning.run(demands)).streams)

    async def publish_all_demands(self) -> None:
        """Publish the demand on every stream again: a broker that was restarted may have lost it."""
        self.demands.follow(self._registry.physical.oldest_first)
        await self._publication.publish_again(self._ingest.schemas.keys() | self._registry.physical.streams)

    def _empty_demand(self, stream: str) -> StreamDemand:
        """Return the demand on a stream without those of queries."""
        declared = self._ingest.offers.declared(stream)
        schema, only_proxy = (None, None) if declared is None else (declared.schema, declared.only_proxy)
        return StreamDemand(VERSION, self._name, stream, self._registry.epoch, (), schema, only_proxy)

    def _relation_sizes(self) -> dict[str, RelationSize]:
        versions = {each.identity: each.last for each in self.store.all() if each.last is not None}
        return {identity: RelationSize(last.rows, last.bytes, last.distinct) for identity, last in versions.items()}

    def _context(self) -> PlanningContext:
        sizes = self._relation_sizes()
        return PlanningContext(self.streams.catalog(), sizes, large_relations(sizes, self._relation_memory_bytes))

    async def _refresh_built_in(self, node: Node) -> None:
        """Read the cluster's own relations that a query is the first to need."""
        identities = {each.identity for each in node.relations}
        for relation in self.store.all():
            if relation.identity in identities and relation.built_in and not self._readers.exist(relation):
                await self.refresher.refresh(relation, wanted=True)

    async def _start(self, planned: PlannedText, *, waited: bool = False) -> RegisteredQuery:
        name, sql, query, node = planned.name, planned.sql, planned.query, planned.node
        positions = self._positions(self._registry.physical.streams | node.streams)
        node = begun_at(node, self._registry.epoch + 1, positions, self._ingest.tables())
        before = self._registry.physical
        early = planned.early
        add = partial(self._registry.add, name, sql, node, positions, query.reads, early=early, waited=waited)
        registered = await self._change(add, node.streams)
        changes = operators_changed(before, self._registry.physical)
        log.info("query added", query=registered.name, epoch=registered.since_epoch, **changes)
        self._put_aside(1)
        return registered

    async def _start_together(self, queries: Sequence[PlannedText]) -> list[RegisteredQuery]:
        if not queries:
            return []
        read = frozenset[str]().union(
            *await self._planning.each(attrgetter("streams"), [each.node for each in queries])
        )
        positions = self._positions(self._registry.physical.streams | read)

        def add() -> list[RegisteredQuery]:
            added = [(each.name, each.sql, each.node, each.query.reads, each.early) for each in queries]
            registered = self._registry.add_many(added, positions)
            _ = self._registry.physical.oldest_first  # sorted here, not on the loop, which needs it next
            return registered

        registered = await self._change(add, read)
        log.info("queries added", queries=len(registered), epoch=self._registry.epoch)
        self._put_aside(len(registered))
        return registered

    async def _change(self, change: Callable[[], T], streams: Collection[str]) -> T:
        """Change what is registered, and publish what is demanded then; later if it failed, yet took effect."""
        changed = await self._stored(change, streams)
        self.sizes.note_change()
        await self._publish_demands()
        return changed

    async def _stored(self, change: Callable[[], T], streams: Collection[str]) -> T:
        """Change what is registered."""
        self._before_change()
        self._unpublished.update(streams)
        return await finished(asyncio.to_thread(change))

    def _positions(self, streams: frozenset[str]) -> Mapping[str, int]:
        return positions_between_epochs(streams, self._registry.positions, self._ingest.tables())

    async def _publish_demands(self) -> None:
        while not self.demands.follow(self._registry.physical.oldest_first, most=AT_ONCE):  # noqa: ASYNC110 - slices
            await asyncio.sleep(0)
        await self._publication.publish(self._unpublished)
        self._unpublished.clear()
