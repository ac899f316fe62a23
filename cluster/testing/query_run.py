"""Runs queries on scripted streams, micro-batch by micro-batch, through crashes, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.errors import ClusterError
from cluster.expressions.user_functions import UserFunction
from cluster.fjord.acceptance import check_supported
from cluster.fjord.answer_kinds import ERROR
from cluster.fjord.answers import Answered
from cluster.fjord.batch import NEVER
from cluster.fjord.stream_scan import RowsInMemory
from cluster.functions.allowed import FunctionRules
from cluster.functions.calling import CALLS
from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.local.declared_functions import declared_function, declared_functions
from cluster.local.engine import Arrival, LocalEngine, MemoryTables
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import sources_with_history, with_history_starts
from cluster.plan.rewrite import rewrite
from cluster.plan.sized import sized
from cluster.testing.sources import ScriptedRelation, ScriptedSource, Taken
from protocols.text.quantities import parse_duration_us

QUERY = "query"
"""The name of a query that is given without one."""


class QueryFailedError(ClusterError):
    """A query answered with an error instead of rows.

    Parameters
    ----------
    query
        Its name.
    reason
        The error.
    """

    def __init__(self, query: str, reason: str) -> None:
        super().__init__(f"query {query} failed: {reason}")
        self.query = query
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of an answer.

    Parameters
    ----------
    query
        Name of the query.
    start, end
        The row is part of the answer at every instant in [start, end), in microseconds since 1970; None for never.
    row
        Values by name.
    """

    query: str
    start: int
    end: int | None
    row: dict[str, Any]


class QueryRun:
    """Queries over scripted streams.

    Parameters
    ----------
    queries
        By name, or one query, which is then called "query".
    streams
        By name. A script is run once: take new ones for another run.
    relations
        By name.
    clock
        The clock; one that stands still unless given.
    buckets
        Into how many parts state is divided; answers are the same with any number.
    functions
        CREATE FUNCTION statements. Their modules are imported in processes of their own, and are allowed in this one.

    Raises
    ------
    FjordSqlError
        If a query cannot be read; the place is underlined.
    """

    def __init__(
        self,
        queries: str | Mapping[str, str],
        streams: Mapping[str, ScriptedSource],
        relations: Mapping[str, ScriptedRelation] | None = None,
        *,
        clock: FakeClock | None = None,
        buckets: int = 1,
        functions: Sequence[str] = (),
    ) -> None:
        self.clock = clock or FakeClock()
        self.answers: list[Answer] = []
        """All that has been answered."""
        self.late: list[tuple[str, int, Mapping[str, Any]]] = []
        """Tuples that came too late to be answered: stream, stamp, values."""
        self._streams = dict(streams)
        known = relations or {}
        self._catalog = Catalog.of(
            [
                *(BaseStream(source.stream(name)) for name, source in streams.items()),
                *(StaticRelation(name, f"{name}@1", each.columns) for name, each in known.items()),
            ]
        ).with_functions(_functions(functions))
        tables = MemoryTables({f"{name}@1": each.versions(streams) for name, each in known.items()})
        named = {QUERY: queries} if isinstance(queries, str) else queries
        # An epoch for each, as if they were added one by one: it keeps their tuples apart.
        planned = [PlannedQuery(name, epoch, self._planned(sql)) for epoch, (name, sql) in enumerate(named.items(), 1)]
        self._plan = Plan(max(len(planned), 1), tuple(planned))
        self._engine = LocalEngine(self._plan, buckets=buckets, tables=lambda: tables, clock=self.clock)

    def add(self, name: str, sql: str) -> None:
        """Add a query, which begins with the next micro-batch.

        Raises
        ------
        ClusterError
            If it cannot be read, or has history: tuples of the past are not kept here.
        """
        epoch = self._plan.epoch + 1
        node = self._planned(sql)
        if any(sources_with_history(node)):
            raise ClusterError(
                f"query {name} has history, and tuples of the past are not kept here",
                hint="give it to QueryRun at once",
            )
        node = with_history_starts(node, epoch, {each: source.watermark_us for each, source in self._streams.items()})
        self._plan = Plan(epoch, (*self._plan.queries, PlannedQuery(name, epoch, node)))

    def drop(self, name: str) -> None:
        """Drop a query, which ends before the next micro-batch.

        Raises
        ------
        ClusterError
            If there is none of this name.
        """
        left = tuple(query for query in self._plan.queries if query.name != name)
        if len(left) == len(self._plan.queries):
            raise ClusterError(f"there is no query {name!r} to drop")
        self._plan = Plan(self._plan.epoch + 1, left)

    @property
    def pending(self) -> bool:
        """True if a stream has an item now."""
        return any(source.pending(self.clock()) for source in self._streams.values())

    def step(self) -> list[Answer]:
        """Run one micro-batch and return what it answers. If the process dies in it, it is run again.

        Raises
        ------
        QueryFailedError
            If a query fails.
        """
        before = self._engine.checkpoint()
        positions = {name: source.position for name, source in self._streams.items()}
        while True:
            taken = {name: source.take(self.clock()) for name, source in self._streams.items()}
            answered = self._engine.run(
                {name: _arrival(each) for name, each in taken.items()}, plan=self._plan
            )  # fmt: skip
            if not any(each.aborts for each in taken.values()):
                break
            for name, source in self._streams.items():
                source.position = positions[name]
            self._engine.restore(before)
            self._engine.forget()
        self.late += [(name, *tuple_) for name, each in taken.items() for tuple_ in each.late]
        found = _answers(answered)
        self.answers += found
        return found

    def run(self) -> list[Answer]:
        """Run until every stream has ended, pauses or has no more items; return all answers.

        Raises
        ------
        QueryFailedError
            If a query fails.
        """
        found = []
        while self.pending:
            found += self.step()
        return found

    def _planned(self, sql: str) -> Any:
        try:
            node = rewrite(sized(translate(sql, self._catalog).node)).node
        except FjordSqlError as error:
            error.add_note(error.underlined())
            raise
        check_supported(node)
        return node


def _functions(statements: Sequence[str]) -> tuple[UserFunction, ...]:
    """Return the functions that statements create; a test may name any."""
    try:
        paths = [declared_function(each).function.path for each in statements]
        CALLS.allow(paths)
        return declared_functions(statements, FunctionRules(tuple(paths)))
    except FjordSqlError as error:
        error.add_note(error.underlined())
        raise


def answers(
    sql: str,
    streams: Mapping[str, ScriptedSource],
    relations: Mapping[str, ScriptedRelation] | None = None,
    functions: Sequence[str] = (),
) -> Sequence[Answer]:
    """Return what a query answers while scripts run as far as they go without the clock.

    Parameters
    ----------
    sql
        The query.
    streams, relations
        By name.
    functions
        CREATE FUNCTION statements.

    Raises
    ------
    FjordSqlError
        If it cannot be read; the place is underlined.
    QueryFailedError
        If it fails.
    """
    return QueryRun(sql, streams, relations, functions=functions).run()


def _arrival(taken: Taken) -> Arrival:
    return Arrival((RowsInMemory(taken.rows),) if taken.rows.height else (), taken.watermark_us)


def _answers(answered: Answered) -> list[Answer]:
    found = []
    for query, start_us, end_us, kind, row in answered.rows.iter_rows():
        if kind == ERROR:
            raise QueryFailedError(query, msgspec.json.decode(row))
        found.append(Answer(query, start_us, None if end_us >= NEVER else end_us, msgspec.json.decode(row)))
    return found


class FakeClock:
    """Seconds since the test began.

    >>> clock = FakeClock()
    >>> clock.advance("1m")
    >>> clock()
    60.0
    """

    def __init__(self) -> None:
        self._now_us = 0

    def __call__(self) -> float:
        """Return the time."""
        return self._now_us / 1e6

    def advance(self, duration: str) -> None:
        """Let time pass: ``10s``, ``500ms``.

        Raises
        ------
        DurationError
            If the text is no duration.
        """
        self._now_us += parse_duration_us(duration)
