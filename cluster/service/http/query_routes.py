"""The part of the HTTP API about queries and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from cluster.errors import OneOfManyError
from cluster.fjord.batch import instant_text
from cluster.fjord.counters import shed_of
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.language.window_bounds import grid_of_answers
from cluster.plan.alternatives import MOST as MOST_ALTERNATIVES
from cluster.service.catalog.stream_offers import mismatches_of, rejected_of
from cluster.service.catalog.stream_waits import waits_of
from cluster.service.catalog.taking_turns import ResultReading
from cluster.service.http.connection_bounds import caller_of
from cluster.service.http.stream_routes import PathName
from cluster.service.http.strict_requests import api_router
from cluster.service.http.wanted_queries import (
    NewQueries,
    NewQuery,
    WantedPlan,
    begun_as_json,
    refusal_of,
    wanted_queries,
)
from cluster.service.publishing.lag import LagBy, Lags, lag_of_fragment
from cluster.service.publishing.result_messages import stored_results
from cluster.service.queries.query_alternatives import SHOWN
from cluster.service.registry.query_names import UnknownQueryError
from cluster.service.registry.registry import Registry
from cluster.service.registry.relation_registry import WaitingQuery
from cluster.service.registry.running_queries import RegisteredQuery
from cluster.service.registry.set_aside import SetAsideQuery
from cluster.storage.results_table import ResultsTable
from protocols.wire import topics

if TYPE_CHECKING:
    from cluster.ingest.service import Ingest
    from cluster.service.catalog.sensor_catalog import SensorCatalog
    from cluster.service.queries.query_service import QueryService


AnyQuery = RegisteredQuery | WaitingQuery | SetAsideQuery
"""A query that has a name, whether it runs or not."""
TOGETHER = "/v1/queries/together"
"""Where many queries are added, all or none."""
LOOK_SECONDS = 1.0
"""Between two looks at whether the client still waits."""


@dataclass(frozen=True, slots=True)
class QueryDescriptions:
    """Describes queries as the API shows them.

    Parameters
    ----------
    queries
        Queries that wait, and demands that are left out.
    registry
        Queries that run.
    ingest
        The proxies that feed streams.
    sensors
        The devices that do.
    results
        Their rows.
    lags
        How far they are behind.
    operators
        What was dropped for lack of room.
    unpublished_commits
        Returns how many commits the publication of a query is behind; None if that is not known.
    """

    queries: QueryService
    registry: Registry
    ingest: Ingest
    sensors: SensorCatalog
    results: ResultsTable
    lags: Lags
    operators: OperatorStatistics
    unpublished_commits: Callable[[str], int | None]

    def of(self, query: AnyQuery) -> dict[str, Any]:
        """Return the description of a query."""
        streams = _streams_of(query)
        sizes = self.queries.sizes.history(query) if isinstance(query, RegisteredQuery) else None
        return {
            "name": query.name,
            "sql": query.sql,
            "topic": topics.results(query.name),
            "errors": topics.query_errors(query.name),
            "epoch": query.since_epoch if isinstance(query, RegisteredQuery) else None,
            "created": instant_text(query.created_us),
            "emit": self._emit(query),
            "state": self._state(query),
            "reads": sorted(query.reads),
            "mismatches": mismatches_of(self.ingest, streams),
            "waits_for": waits_of(self.ingest, streams),
            "troubles": [asdict(each) for each in self.sensors.troubles(streams)],
            "rejected": [
                {"stream": stream, **rejected}
                for stream in sorted(streams & self.ingest.writers.keys())
                if (rejected := rejected_of(self.ingest, stream))["batches"]
            ],
            "refused_demands": self._refused_demands(query),
            "sizes": sizes,
            "windows": self._windows(query) if sizes is None else None,
        }

    @staticmethod
    def _windows(query: AnyQuery) -> dict[str, Any] | None:
        """Return where the windows begin and end that the rows are of; None if there are none that do."""
        grid = grid_of_answers(query.node) if isinstance(query, RegisteredQuery) else None
        return None if grid is None else msgspec.to_builtins(grid)

    def with_progress(self, query: AnyQuery, lags: LagBy) -> dict[str, Any]:
        """Return the description of a query, with its rows so far and its lag."""
        runs = self.registry.physical.by_query.get(query.identity) if isinstance(query, RegisteredQuery) else None
        lag = None if runs is None else lag_of_fragment(runs, lags)
        rows = self.results.last_sequence(query.name)
        shed = None if runs is None else shed_of(runs, self.operators.counters)
        kept = None
        if shed is not None:
            kept = {"dropped": shed.tuples, "accuracy": shed.accuracy, "words": shed.words}
        return {
            **self.of(query),
            "rows": rows,
            "lag": None if lag is None else lag.as_json(),
            "unpublished_commits": self.unpublished_commits(query.name),
            "kept": kept,
        }

    def check_known(self, name: str) -> None:
        """Check that there is a query of a name, or that there are results of one.

        Raises
        ------
        UnknownQueryError
            If there are neither.
        """
        try:
            self.find(name)
        except UnknownQueryError:
            if not self.results.last_sequence(name):
                raise

    def find(self, name: str) -> AnyQuery:
        """Return the query of a name.

        Raises
        ------
        UnknownQueryError
            If there is none.
        """
        return self.queries.waiting.find(name) or self.registry.aside.find(name) or self.registry.query(name)

    def all(self) -> list[AnyQuery]:
        """Return running queries, oldest first, then those that wait, then those that are set aside."""
        return [*self.registry.queries(), *self.queries.waiting.all(), *self.registry.aside.all()]

    def _state(self, query: AnyQuery) -> str:
        match query:
            case RegisteredQuery():
                return "running"
            case WaitingQuery():
                return self.queries.waiting.state(query)
            case SetAsideQuery():
                since = instant_text(query.since_us)
                return f"set aside since {since}: {query.reason}. Drop it, and add it again in a form that takes less"

    def _emit(self, query: AnyQuery) -> str | None:
        """Return whether a query's rows are published early; None if it has not begun."""
        subscribers = self.registry.physical.subscribers
        running = subscribers.get(query.identity) if isinstance(query, RegisteredQuery) else None
        return None if running is None else "early" if running.early else "final"

    def _refused_demands(self, query: AnyQuery) -> list[dict[str, Any]]:
        """Return why demands of a query do not reach sensors: by the cluster, if no proxy is named, or by a proxy."""
        streams = _streams_of(query)
        left_out = self.queries.demands.left_out
        own = [
            {"stream": stream, "proxy": None, "online": True, "reason": left_out[stream][query.name]}
            for stream in sorted(streams)
            if query.name in left_out.get(stream, {})
        ]
        reported = self.queries.demand_reports.of_query(query.name, streams)
        return own + [{**each, "online": self.ingest.online(each["proxy"])} for each in reported]


def query_routes(queries: QueryService, registry: Registry, descriptions: QueryDescriptions) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    queries
        Adds, drops and explains queries.
    registry
        Queries that run.
    descriptions
        Describes them.
    """
    api = api_router()
    reading = ResultReading()

    @api.post("/v1/queries", status_code=201)
    async def add_query(new: NewQuery) -> dict[str, Any]:
        """Start a query, or let it wait until the relations it reads have been read for the first time."""
        query, warnings = await queries.add(new.sql, new.name, new.parameters)
        history = [] if isinstance(query, WaitingQuery) else queries.history(query.node)
        read = [each.as_json() for each in history]
        return {**descriptions.of(query), "warnings": list(warnings), "history": read}

    @api.post(TOGETHER, status_code=201)
    async def add_queries(new: NewQueries, request: Request) -> Response:
        """Start all queries of a text, or none: each ends with a semicolon, and `-- name: NAME` before it names it.

        With `rows`, the text is one statement, and there is a query for each row of values.
        """
        wanted = await asyncio.to_thread(wanted_queries, new)
        texts = [(each.name, each.statement.text) for each in wanted]
        adding = asyncio.create_task(queries.add_many(texts, [each.values for each in wanted]))
        while not (await asyncio.wait([adding], timeout=LOOK_SECONDS))[0]:
            if await request.is_disconnected():
                adding.cancel()
        try:
            started = await adding
        except OneOfManyError as error:
            raise refusal_of(new.sql, wanted, error) from error
        answer = await asyncio.to_thread(begun_as_json, wanted, started)
        return Response(answer, 201, media_type="application/json")

    @api.get("/v1/queries")
    async def list_queries() -> list[dict[str, Any]]:
        """List running queries, oldest first, then those that wait, then those that are set aside."""
        lags = descriptions.lags.now()
        return [descriptions.with_progress(query, lags) for query in descriptions.all()]

    @api.get("/v1/queries/{name}")
    async def show_query(name: PathName) -> dict[str, Any]:
        """Return one query."""
        return descriptions.with_progress(descriptions.find(name), descriptions.lags.now())

    @api.get("/v1/queries/{name}/plan", response_class=PlainTextResponse)
    async def show_running(name: PathName) -> Response:
        """Return the plan of a running query as text: what is expected of each operator, and what it does."""
        return Response(await queries.estimates.running(name), media_type="text/plain; charset=utf-8")

    @api.get("/v1/queries/{name}/alternatives")
    async def list_alternatives(
        name: PathName, most: Annotated[int, Query(ge=1, le=MOST_ALTERNATIVES)] = SHOWN
    ) -> list[dict[str, Any]]:
        """List the plans with which a query could go on, the cheapest and the one that runs."""
        return [each.as_json() for each in await queries.alternatives.of(name, most=most)]

    @api.post("/v1/queries/{name}/migrate", status_code=202)
    async def migrate(name: PathName, wanted: WantedPlan) -> dict[str, Any]:
        """Let a query go on with one of its plans: now, or when it fits."""
        deadline = None if wanted.deadline_seconds is None else round(wanted.deadline_seconds * 1_000_000)
        return (await queries.migrate_to(name, wanted.to, deadline_us=deadline)).as_json()

    @api.delete("/v1/queries/{name}", status_code=204)
    async def drop_query(name: PathName) -> None:
        """End a query."""
        await queries.drop(name)

    @api.post("/v1/explain", response_class=PlainTextResponse)
    async def explain(new: NewQuery) -> Response:
        """Return how a query would be run, as text."""
        return Response(await queries.explain(new.sql, new.parameters), media_type="text/plain; charset=utf-8")

    @api.get("/v1/queries/{name}/results")
    async def read_results(
        request: Request,
        name: PathName,
        after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Return rows with a higher sequence number than `after`, also of a query that has been dropped."""
        descriptions.check_known(name)
        root, fjord = descriptions.results.root, registry.engine_id

        def read() -> bytes:
            return stored_results(ResultsTable(root, fjord, appends=False), name, after, limit)

        return Response(await reading.read(caller_of(request.scope), read), media_type="application/json")

    return api


def _streams_of(query: AnyQuery) -> frozenset[str]:
    return query.node.streams if isinstance(query, RegisteredQuery) else query.reads
