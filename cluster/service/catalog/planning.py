"""Planning beside the event loop: statements are planned in a thread, one after the other, for a limited time.

Callers take turns (:mod:`cluster.service.catalog.planning_turns`).

The loop goes on to ingest, to publish and to answer other requests, whatever a statement contains. Planning that takes
too long ends with an error and has changed nothing; a change in a thread, once begun, is finished.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cluster.errors import PlanError
from cluster.fjord.acceptance import check_supported
from cluster.fjord.text_growth import check_text
from cluster.language.catalog import Catalog
from cluster.language.parameter_values import NO_VALUES, Value
from cluster.language.parameters import bind
from cluster.language.translation import Query, translate
from cluster.operators import Node
from cluster.operators.size_ranges import Sizes
from cluster.plan.names_read import RelationSize
from cluster.plan.rewrite import Rewritten, rewrite
from cluster.plan.sized import sized
from cluster.planning_budget import Budget, limited
from cluster.service.catalog.planning_turns import Asker, Turns, room_for
from protocols.event_log import get_logger


class TakingTurns:
    """Lets one caller at a time do something."""

    def __init__(self) -> None:
        self._turns = Turns[asyncio.Future[None]]()
        self._taken = False

    @asynccontextmanager
    async def turn_of(self, asker: Asker) -> AsyncIterator[None]:
        """Wait for the turn of a caller; it ends with the context. One that is cancelled meanwhile takes none."""
        if self._taken:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.add(asker, turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._turns.discard(asker, turn)
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        turn = self._turns.next()
        while turn is not None and turn.cancelled():
            turn = self._turns.next()
        self._taken = turn is not None
        if turn is not None:
            turn.set_result(None)


class ResultReading:
    """Makes answers with stored rows in a thread of their own, one at a time: each uses all processors."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="results")
        self._turns = TakingTurns()

    async def read(self, caller: str, make: Callable[[], bytes]) -> bytes:
        """Return what `make` returns, once it is the turn of a token; `caller` is its name, empty without one."""
        async with self._turns.turn_of(Asker(caller, admin=False)):
            return await asyncio.get_running_loop().run_in_executor(self._thread, make)


T = TypeVar("T")
V = TypeVar("V")

log = get_logger(__name__)

PLANNING_SECONDS = 10.0
"""How long the planning of one statement may take, unless another limit is given."""
AT_ONCE = 256
"""Queries for which something is done at once, within the time for planning one statement."""
FEW = 16
"""For so many it is done on the loop, which takes less time than to hand it to a thread."""


_CLUSTER = Asker()
_ASKER: ContextVar[Asker] = ContextVar("asker", default=_CLUSTER)


@contextmanager
def asked_by(asker: Asker) -> Iterator[None]:
    """Let statements that are planned in the context be those of a caller."""
    before = _ASKER.set(asker)
    try:
        yield
    finally:
        _ASKER.reset(before)


class PlanningBusyError(PlanError):
    """Too many statements wait to be planned, of all callers or of this one."""


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """The context in which queries are planned; immutable, so that a thread can use it.

    Parameters
    ----------
    catalog
        What queries may name.
    sizes
        Sizes of relations, by identity.
    large
        Identities of relations that are too large for the memory of a worker.
    """

    catalog: Catalog
    sizes: Mapping[str, RelationSize]
    large: frozenset[str]

    def rewritten(
        self, sql: str, values: Mapping[str, Value] = NO_VALUES, *, registered: bool = False
    ) -> tuple[Query, Rewritten]:
        """Return a query, with values for its parameters, and its rewritten plan.

        Parameters
        ----------
        sql
            Its text.
        values
            By parameter; see :func:`cluster.language.parameters.bind`.
        registered
            That of :func:`translate`.
        """
        if registered:
            query = translate(sql, self.catalog, registered=True)
            if query.warnings:
                log.warning("query added before", query=sql, warnings=query.warnings)
        else:
            bound = bind(sql, values)
            with bound.placed():
                query = translate(bound.text, self.catalog)
                check_text(query.node)
        return query, rewrite(sized(query.node), large=self.large, sizes=self.sizes)

    def ranged(self, sql: str) -> Node:
        """Return the plan of a query that was added, as it was translated, with its ranges."""
        return translate(sql, self.catalog, registered=True).node

    def at(self, node: Node, chosen: Sizes) -> Node:
        """Return a translated plan with a choice of its ranges, rewritten."""
        return rewrite(sized(node, chosen), large=self.large, sizes=self.sizes).node

    def planned(
        self, sql: str, values: Mapping[str, Value] = NO_VALUES, *, registered: bool = False
    ) -> tuple[Query, Node]:
        """Return a query and its plan, which the engine can run; the parameters are those of :meth:`rewritten`."""
        query, rewritten = self.rewritten(sql, values, registered=registered)
        check_supported(rewritten.node)
        return query, rewritten.node


class Planning:
    """Plans statements, one at a time.

    Parameters
    ----------
    seconds
        How long the planning of each may take.
    """

    def __init__(self, seconds: float = PLANNING_SECONDS) -> None:
        self._seconds = seconds
        self._turns = TakingTurns()
        self._asked: Counter[Asker] = Counter()
        """Statements that are planned or wait, by whose they are."""

    async def run(self, work: Callable[[], T], *, internal: bool = False) -> T:
        """Return the result of `work`, which must only read immutable values.

        Parameters
        ----------
        work
            Called in a thread.
        internal
            True for work of the cluster itself, which is not refused while statements wait.

        Raises
        ------
        PlanningBusyError
            If too many wait already.
        PlanningLimitError
            If it takes too long.
        """
        asker = _ASKER.get()
        own, total = self._asked[asker], self._asked.total()
        if not internal and not room_for(asker, own, total):
            raise PlanningBusyError(
                f"{own} statements of yours wait to be planned, of {total} in all", hint="try again in a moment"
            )
        self._asked[asker] += 1
        try:
            async with self._turns.turn_of(asker):
                budget = Budget(self._seconds)
                try:
                    return await asyncio.to_thread(_within, budget, work)
                finally:
                    # Work ends when its caller is cancelled, for instance because the cluster stops.
                    budget.cancel()
        finally:
            self._asked[asker] -= 1
            if not self._asked[asker]:
                del self._asked[asker]

    async def each(self, work: Callable[[V], T], values: Sequence[V]) -> list[T]:
        """Return the results of work for each of some queries, which takes microseconds: many are not for the loop.

        Parameters
        ----------
        work
            As for :meth:`run`.
        values
            Of each query what it is called with.

        Raises
        ------
        PlanningLimitError
            If it takes too long.
        """
        if len(values) <= FEW:
            return [work(each) for each in values]
        found: list[T] = []
        for first in range(0, len(values), AT_ONCE):
            found += await self.run(partial(list, map(work, values[first : first + AT_ONCE])), internal=True)
        return found


def _within(budget: Budget, work: Callable[[], T]) -> T:
    with limited(budget):
        return work()


async def finished(work: Coroutine[None, None, T]) -> T:
    """Return the result of work in a thread, which goes on if its caller is cancelled: then only after it has ended."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
