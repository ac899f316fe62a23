"""The part of the HTTP API about queries: their results, the plan that all share, and the energy that they cost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from cluster.errors import OneOfManyError
from cluster.fjord.batch import instant_text
from cluster.fjord.counters import owners_of, shed_of, work_of
from cluster.fjord.operator_statistics import OperatorStatistics, Rates
from cluster.language.parameter_values import NO_VALUES, Value
from cluster.language.window_bounds import grid_of_answers
from cluster.physical.difference import diff
from cluster.physical.text import dot, mermaid, plan_graph, plan_text
from cluster.plan.alternatives import MOST as MOST_ALTERNATIVES
from cluster.service.billing.energy import THIS_QUERY, explain_energy
from cluster.service.billing.energy_report import EnergyAnswer, RefusedPart
from cluster.service.catalog.planning import ResultReading
from cluster.service.catalog.shown_streams import mismatches_of, rejected_of, waits_of
from cluster.service.http.catalog_routes import MAX_SQL_CHARACTERS, PathName, StrictBody
from cluster.service.http.connections import caller_of
from cluster.service.http.request_bodies import api_router
from cluster.service.http.wanted_queries import (
    NewQueries,
    NewQuery,
    Parameters,
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
from cluster.service.registry.registry_tables import WaitingQuery
from cluster.service.registry.running_queries import MOST_EPOCHS, RegisteredQuery, SetAsideQuery
from cluster.storage.results_table import ResultsTable
from protocols.wire import topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.ingest.service import Ingest
    from cluster.service.billing.periods import BillingPeriods
    from cluster.service.catalog.sensor_catalog import SensorCatalog
    from cluster.service.queries.query_service import QueryService
    from cluster.service.running.engine import Engine

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


_EXPLAIN_ENERGY = re.compile(r"\s*EXPLAIN\s+ENERGY(?=\s)", re.IGNORECASE | re.ASCII)


class EnergyQuestion(StrictBody):
    """A query whose cost in energy is to be explained."""

    sql: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARACTERS)]
    parameters: Parameters = Field(default_factory=dict)


def energy_routes(queries: QueryService, ingest: Ingest, billing: BillingPeriods) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    queries
        Plans queries.
    ingest
        The streams.
    billing
        The energy that motes have spent, and its division among queries.
    """
    api = api_router()

    @api.post("/v1/explain/energy")
    async def explain(question: EnergyQuestion) -> Response:
        """Return what a query would cost the motes it touches; it may begin with EXPLAIN ENERGY."""
        answer = await energy_answer(question.sql, queries, ingest, billing, question.parameters)
        return Response(msgspec.json.encode(answer), media_type="application/json")

    @api.get("/v1/bill")
    async def bill() -> Response:
        """Return each running query's share of what motes draw and have spent."""
        return Response(msgspec.json.encode(await billing.bill()), media_type="application/json")

    return api


async def energy_answer(
    sql: str,
    queries: QueryService,
    ingest: Ingest,
    billing: BillingPeriods,
    values: Mapping[str, Value] = NO_VALUES,
) -> EnergyAnswer:
    """Return what a query would cost; see :func:`cluster.service.billing.energy.explain_energy`.

    Parameters
    ----------
    sql
        Its text.
    queries, ingest, billing
        As in :func:`energy_routes`.
    values
        Of its parameters.

    Raises
    ------
    FjordSqlError
        If the text is not a query over the streams there are.
    """
    demanded = await queries.demands_for(without_explain(sql), THIS_QUERY, values)
    entries = billing.entries()
    answer = await asyncio.to_thread(
        explain_energy, demanded, billing.demands(), ingest.schemas, entries, billing.ledger.measured_mw()
    )
    without_a_feed = tuple(
        RefusedPart(each["stream"], f"proxy {each['proxy']} does not feed it: {'; '.join(each['reasons'])}")
        for each in mismatches_of(ingest, demanded)
    )
    return msgspec.structs.replace(answer, refused=(*answer.refused, *without_a_feed))


def without_explain(sql: str) -> str:
    """Return a query without EXPLAIN ENERGY before it; all that follows stays at its place.

    >>> without_explain("Explain energy SELECT 1")
    '               SELECT 1'
    """
    found = _EXPLAIN_ENERGY.match(sql)
    if found is None:
        return sql
    return "".join(letter if letter.isspace() else " " for letter in found[0]) + sql[found.end() :]


class PlanFormat(StrEnum):
    """The forms in which a plan is shown."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


def _rates_json(rates: Rates) -> dict[str, float | None]:
    found = {
        **msgspec.structs.asdict(rates),
        "rows_out_per_row": rates.rows_out_per_row,
        "microseconds_per_row": rates.microseconds_per_row,
    }
    return {name: None if value is None else round(value, 4) for name, value in found.items()}


def plan_routes(registry: Registry, engine: Engine, queries: QueryService) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    registry
        Keeps the plans.
    engine
        Counts what operators have done.
    queries
        Has them migrate.
    """
    api = api_router()

    @api.get("/v1/plan", response_class=PlainTextResponse)
    async def show_plan(kind: Annotated[PlanFormat, Query(alias="format")] = PlanFormat.TEXT) -> Response:
        """Return the plan that all queries share: as text, or as a graph for Mermaid or Graphviz."""
        plan = registry.physical
        work = work_of(plan, engine.operators.counters)
        match kind:
            case PlanFormat.MERMAID:
                text = mermaid(plan_graph(plan, work))
            case PlanFormat.DOT:
                text = dot(plan_graph(plan, work))
            case _:
                text = plan_text(plan, work)
        return Response(text, media_type="text/plain; charset=utf-8")

    @api.get("/v1/plan/difference", response_class=PlainTextResponse)
    async def show_difference(since: Annotated[int | None, Query(ge=0)] = None) -> Response:
        """Return the changes of the plan since an epoch, by default the one before."""
        plan = registry.physical
        before = registry.physical_at(max(0, plan.epoch - 1) if since is None else since)
        return Response(f"{diff(before, plan).words}\n", media_type="text/plain; charset=utf-8")

    @api.get("/v1/plan/history")
    async def show_history(last: Annotated[int, Query(ge=1, le=MOST_EPOCHS)] = 20) -> list[dict[str, Any]]:
        """List what the last epochs changed, oldest first."""
        steps = await asyncio.to_thread(registry.plan_history, last)
        return [{**msgspec.structs.asdict(each), "words": each.words} for each in steps]

    @api.get("/v1/plan/operators")
    async def list_operators() -> list[dict[str, Any]]:
        """List the counters of the plan's operators and their queues since the cluster started, and smoothed rates."""
        alive = owners_of(registry.physical)
        counters = sorted(engine.operators.counters.items())
        return [
            {"operator": name, **msgspec.structs.asdict(totals), **_rates_json(engine.operators.rates(name))}
            for name, totals in counters
            if totals.owner in alive
        ]

    @api.get("/v1/migrations")
    async def list_migrations() -> list[dict[str, Any]]:
        """List the queries that go on with another plan, those first that have begun to."""
        return [each.as_json() for each in queries.migrations()]

    return api
