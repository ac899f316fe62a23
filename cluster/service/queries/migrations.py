"""Carries out migrations: begins them once they fit, and ends the plan before once its answers are out.

**What a migration of a query waits for, and when it has ended.**

How far queries have been answered is reported to it (:class:`Answered`); :class:`Migrations` carries out the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import cache, partial
from typing import Any

from msgspec.structs import replace

from cluster.errors import ClusterError, UnwritableError
from cluster.fjord.batch import instant_text
from cluster.operators import Node, Source
from cluster.operators.walks import rebuilt
from cluster.physical.migration import Migration, MigrationRefusedError
from cluster.physical.nodes import Host, host_of
from cluster.physical.rules.sensor_demands import sensor_demands
from cluster.plan.epoch import Handover, PlannedQuery
from cluster.plan.history import EVER_US, sources_with_history
from cluster.service.queries.query_limits import QueryLimits
from cluster.service.registry.registry import Registry
from cluster.service.registry.running_queries import NextPlan, RegisteredQuery
from protocols.event_log import get_logger
from protocols.wire.demands import QueryDemand


@dataclass(frozen=True, slots=True)
class Answered:
    """How far one of the two Spark queries has come, with what it has committed. Pure.

    Parameters
    ----------
    epoch
        The newest epoch with which it has run.
    backfilling
        The epochs of queries that still read their history.
    passed_us
        By stream: its low watermark behind what has been read; streams without one are left out.
    """

    epoch: int
    backfilling: frozenset[int]
    passed_us: Mapping[str, int]


AnsweredBy = Callable[[Host, frozenset[str]], Answered | None]
"""Returns how far a host has come with some streams; None if that is unknown."""


def planned_migration(query: RegisteredQuery, node: Node, deadline_us: int | None) -> tuple[Node, Migration]:
    """Return the plan with which a query may go on, and how. Pure.

    Parameters
    ----------
    query
        The query, as it runs.
    node
        The plan that is wanted; it reads what comes only, and no history, which the present plan has read.
    deadline_us
        As for :class:`~cluster.physical.migration.Migration`.

    Raises
    ------
    MigrationRefusedError
        If it cannot; says why.
    """
    old, new = without_history(query.node), without_history(node)
    if new == query.node:
        raise MigrationRefusedError(f"query {query.name!r} has this plan already")
    if _demands(old) != _demands(new):
        raise MigrationRefusedError(
            "the query cannot go on with this plan: it demands other samples of sensors, and it is not known from "
            "which instant on they send them"
        )
    return new, Migration(query.node, new, deadline_us=deadline_us)


def without_history(node: Node) -> Node:
    """Return a plan that reads of its streams only what comes. Pure."""
    if not any(sources_with_history(node)):
        return node
    return rebuilt(node, lambda each: replace(each, history=None) if isinstance(each, Source) else each)


def _demands(node: Node) -> dict[str, frozenset[QueryDemand]]:
    """Return what a plan demands of sensors; in which order it reads streams makes no difference to these."""
    demanded = sensor_demands(PlannedQuery("", 0, node)).streams
    return {stream: frozenset(demands) for stream, demands in demanded}


def waits_for(query: RegisteredQuery, answered: Answered | None) -> str | None:
    """Return in words what a migration of a query waits for before it may begin; None if it may. Pure.

    Parameters
    ----------
    query
        The query.
    answered
        How far its host has come.
    """
    if query.next is not None:
        return "another migration of the query to end"
    if not any(sources_with_history(query.node)):
        return None
    behind = answered is None or answered.epoch < query.since_epoch or query.since_epoch in answered.backfilling
    return "the query to have read its history" if behind else None


def has_ended(following: NextPlan, streams: frozenset[str], answered: Answered | None) -> bool:
    """Return whether a plan that hands over to another one has answered all that is its own. Pure.

    Parameters
    ----------
    following
        The plan that it hands over to.
    streams
        The streams of the query.
    answered
        How far its host has come.
    """
    if answered is None or answered.epoch < following.since_epoch:
        return False
    opens_us = following.handover.opens_us
    return all(answered.passed_us.get(stream, opens_us - 1) >= opens_us for stream in streams)


log = get_logger(__name__)

RETRY_SECONDS = 1.0
"""Between two attempts to write to a full disk."""
ROOM = "room"
"""What a migration waits for that does not fit."""
ROOM_EVERY = 10
"""Steps between two looks whether one fits now, which is costly."""
Store = Callable[[Callable[[], object], frozenset[str]], Awaitable[object]]
"""Changes what is registered, in a thread, given the streams on which demands may change."""


@dataclass(frozen=True, slots=True)
class MigrationState:
    """A migration that is under way, or waits.

    Parameters
    ----------
    query
        The query's name.
    why
        The reason for it, for people.
    waits_for
        What it waits for; empty once it has begun.
    from_epoch, to_epoch
        With which epochs the two plans began; None before.
    at_us, began_us
        The instant at which the plan changes, in application time, and when the migration began; None before.
    cut
        Whether rows are cut at the instant.
    """

    query: str
    why: str
    waits_for: str = ""
    from_epoch: int | None = None
    to_epoch: int | None = None
    at_us: int | None = None
    began_us: int | None = None
    cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        at = None if self.at_us is None or self.at_us <= EVER_US else instant_text(self.at_us)
        return {
            "query": self.query,
            "state": "waiting" if self.waits_for else "migrating",
            "why": self.why,
            "waits_for": self.waits_for,
            "from_epoch": self.from_epoch,
            "to_epoch": self.to_epoch,
            "at": at,
            "began": None if self.began_us is None else instant_text(self.began_us),
            "cut": self.cut,
        }


@dataclass(frozen=True, slots=True)
class _Wanted:
    node: Node
    why: str
    deadline_us: int | None
    asked_for: bool
    waits_for: str


class Migrations:
    """The migrations of queries; every method is called under the lock of the queries.

    Parameters
    ----------
    registry
        Keeps queries and plans.
    limits
        Whether both plans fit beside all others.
    store, publish
        Changes what is registered; publishes what is demanded then.
    positions
        Returns up to where the present epoch reads some streams.
    instants, instants_ahead
        By stream: an instant after the stamps of everything accepted; the first is never ahead of the clock.
    paused
        Lets nothing of some streams be stored meanwhile.
    answered
        How far the engine has come.
    """

    def __init__(
        self,
        registry: Registry,
        limits: QueryLimits,
        store: Store,
        publish: Callable[[], Awaitable[None]],
        positions: Callable[[frozenset[str]], Mapping[str, int]],
        *,
        instants: Callable[[], Mapping[str, int]],
        instants_ahead: Callable[[], Mapping[str, int]],
        paused: Callable[[frozenset[str]], AbstractAsyncContextManager[None]],
        answered: AnsweredBy,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._store = store
        self._publish = publish
        self._positions = positions
        self._instants = instants
        self._instants_ahead = instants_ahead
        self._paused = paused
        self._answered = answered
        self._wanted: dict[str, _Wanted] = {}
        self._steps = 0

    def all(self) -> list[MigrationState]:
        """Return the migrations that are under way, then those that wait."""
        running = [_state(each) for each in self._registry.queries() if each.next is not None]
        waiting = [MigrationState(name, each.why, each.waits_for) for name, each in self._wanted.items()]
        return running + waiting

    def waiting(self, name: str) -> tuple[Node, str] | None:
        """Return the plan that a migration of a query would bring, and what it waits for; None if there is none."""
        wanted = self._wanted.get(name)
        return None if wanted is None else (wanted.node, wanted.waits_for)

    async def want(
        self, name: str, node: Node, why: str, deadline_us: int | None, *, asked_for: bool = False
    ) -> MigrationState:
        """Let a query go on with another plan, now or when it fits; it replaces one of the query that waits.

        What a user has asked for (`asked_for`) is replaced by what another user asks for only.

        Raises
        ------
        UnknownQueryError
            If there is none of this name.
        MigrationRefusedError
            If the query cannot go on with this plan.
        """
        query, waiting = self._registry.query(name), self._wanted.get(name)
        if query.next is not None:
            if query.next_node == without_history(node):
                raise MigrationRefusedError(f"query {name!r} is going on with this plan already")
            query = query.migrated
        planned_migration(query, node, deadline_us)
        if waiting is not None and waiting.asked_for and not asked_for:
            raise MigrationRefusedError(f"query {name!r} is to go on with another one: {waiting.why}")
        self._wanted.pop(name, None)
        reason = await self._begin(name, node, why, deadline_us)
        if reason is None:
            return _state(self._registry.query(name))
        self._wanted[name] = _Wanted(node, why, deadline_us, asked_for, reason)
        log.info("migration waits", query=name, waits_for=reason)
        return MigrationState(name, why, reason)

    def forget(self, name: str) -> None:
        """Forget a migration that waits: its query is dropped."""
        self._wanted.pop(name, None)

    async def step(self) -> None:
        """End the migrations that are done, and begin those that have waited long enough."""
        answered = cache(self._answered)  # read once for all that run on one host and read the same streams
        for query in self._registry.queries():
            if query.next is not None:
                await self._end(query, answered)
        self._steps += 1
        for name, wanted in list(self._wanted.items()):
            if wanted.waits_for.startswith(ROOM) and self._steps % ROOM_EVERY:
                continue
            try:
                reason = await self._begin(name, wanted.node, wanted.why, wanted.deadline_us)
            except UnwritableError:
                raise
            except ClusterError as error:
                log.warning("migration is given up", query=name, reason=error.message)
                reason = None
            if reason is None:
                del self._wanted[name]
            elif reason != wanted.waits_for:
                self._wanted[name] = replace_fields(wanted, waits_for=reason)

    async def _begin(self, name: str, node: Node, why: str, deadline_us: int | None) -> str | None:
        """Begin a migration, unless it has to wait; return what for."""
        query = self._registry.query(name)
        answered = self._answered(host_of(query.node), query.node.streams)
        reason = waits_for(query, answered) or self._waits_for_clock(node.streams)
        if reason is not None:
            return reason
        new, migration = planned_migration(query, node, deadline_us)
        following = PlannedQuery(name, self._registry.epoch + 1, new, query.early)
        handing = Handover(EVER_US, EVER_US + migration.delay_us, migration.cut)  # as long as answers will wait
        try:
            await self._limits.check_migration(replace(query.planned, until=handing), following)
        except ClusterError as error:
            return f"{ROOM}: {error.message}"
        streams = new.streams
        # All that the present plan alone may read is stored, or has been accepted: nothing is stored until Spark can
        # see the next plan.
        async with self._paused(streams):
            instants = self._instants_ahead()
            known = [instants[each] - 1 for each in streams if each in instants]
            handover = migration.handover(max(known, default=None), query.since)
            positions = self._positions(self._registry.physical.streams | streams)
            migrate = partial(self._registry.migrate, name, new, handover, positions=positions, why=why)
            await self._store(migrate, streams)
            while not self._registry.write_plan():  # noqa: ASYNC110 - nothing else frees the disk
                await asyncio.sleep(RETRY_SECONDS)
        await self._publish()
        log.info("query migrates", query=name, epoch=self._registry.epoch, at_us=handover.at_us, cut=handover.cut)
        return None

    async def _end(self, query: RegisteredQuery, answered: AnsweredBy) -> None:
        streams = query.node.streams
        if query.next is None or not has_ended(query.next, streams, answered(host_of(query.node), streams)):
            return
        positions = self._positions(self._registry.physical.streams)
        await self._store(partial(self._registry.finish_migration, query.name, positions), streams)
        await self._publish()
        log.info("query has migrated", query=query.name, epoch=self._registry.epoch)

    def _waits_for_clock(self, streams: frozenset[str]) -> str | None:
        """Return what a migration waits for whose instant would be far off: it has to be behind the last stamp."""
        now, ahead = self._instants(), self._instants_ahead()
        last = max(((ahead[each], each) for each in streams if each in ahead and ahead[each] > now[each]), default=None)
        if last is None:
            return None
        after_us, stream = last
        return f"the clock to come to {instant_text(after_us - 1)}, up to which stream {stream} is ahead of it"


def _state(query: RegisteredQuery) -> MigrationState:
    following = query.next
    assert following is not None  # noqa: S101 - it is migrating
    return MigrationState(
        query.name,
        following.why,
        "",
        query.since_epoch,
        following.since_epoch,
        following.handover.at_us,
        following.began_us,
        following.handover.cut,
    )
