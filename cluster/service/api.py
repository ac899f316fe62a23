"""The HTTP API: queries, streams, results and metrics, for the command line and for applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel, Field

from cluster.errors import PlanError, StorageError, UnwritableError
from cluster.fjord.row_limits import RowLimitError
from cluster.fjord.state_size import StateLimitError
from cluster.language.catalog import CatalogError
from cluster.language.errors import FjordSqlError
from cluster.plan.demand import streams_of
from cluster.service.api_token import carries
from cluster.service.energy_routes import EnergyBooks, energy_routes
from cluster.service.lag import LagBy, lag_of_query
from cluster.service.planning import PlanningBusyError
from cluster.service.published_demands import TooManyDemandsError
from cluster.service.registry import QueryExistsError, RegisteredQuery, TooManyQueriesError, UnknownQueryError
from cluster.service.relation_registry import WaitingQuery
from cluster.service.relation_routes import relation_routes
from cluster.service.relation_service import UnknownRelationError
from cluster.service.request_bodies import MOST_BYTES, BoundedBodies, RequestTooLargeError
from cluster.service.result_messages import instant_text
from cluster.service.sensor_routes import sensor_routes
from cluster.service.stream_offers import mismatches_of
from cluster.service.stream_routes import MAX_SQL_CHARACTERS, stream_routes
from protocols import topics
from protocols.errors import FjordError, TopicError

if TYPE_CHECKING:
    from cluster.service.server import ClusterServer


class NewQuery(BaseModel):
    """A query to start."""

    sql: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARACTERS)]
    name: Annotated[str | None, Field(max_length=64)] = None


def make_api(server: ClusterServer, metrics: CollectorRegistry, token: str | None) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    server
        The cluster it speaks for.
    metrics
        What ``/metrics`` shows.
    token
        If there is one, requests must carry it; an empty one is none.
    """

    def authorise(authorization: Annotated[str | None, Header()] = None) -> None:
        if token and not carries(authorization, token):
            raise HTTPException(401, "this cluster asks for a token: set FJORD_API_TOKEN")

    api = FastAPI(title="Fjord", version="1", dependencies=[Depends(authorise)], docs_url="/docs", redoc_url=None)
    too_large = JSONResponse(error_body(RequestTooLargeError(MOST_BYTES)), status_code=413)
    api.add_middleware(BoundedBodies, most_bytes=MOST_BYTES, refusal=too_large)

    @api.exception_handler(FjordError)
    async def refuse(_: Request, error: FjordError) -> JSONResponse:
        return JSONResponse(error_body(error), status_code=_status_of(error))

    @api.exception_handler(RequestValidationError)
    async def refuse_shape(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without what was sent: it may hold a password.
        said = [{key: each[key] for key in ("type", "loc", "msg")} for each in error.errors()]
        return JSONResponse({"detail": said}, status_code=422)

    energy = EnergyBooks(server)
    server.queries.before_start = energy.close_period

    @api.post("/v1/queries", status_code=201)
    async def add_query(new: NewQuery) -> dict[str, Any]:
        """Start a query, or let it wait until the relations it reads have been read for the first time."""
        energy.close_period()
        query, warnings = await server.queries.add(new.sql, new.name)
        history = [] if isinstance(query, WaitingQuery) else server.queries.history(query.node)
        read = [each.as_json() for each in history]
        return {**_describe(query, server), "warnings": list(warnings), "history": read}

    @api.get("/v1/queries")
    async def list_queries() -> list[dict[str, Any]]:
        """List running queries, oldest first, then those that wait."""
        found: list[RegisteredQuery | WaitingQuery] = [*server.registry.queries(), *server.queries.waiting.all()]
        lags = server.lags.now()
        return [{**_describe(query, server), **_progress(query, server, lags)} for query in found]

    @api.get("/v1/queries/{name}")
    async def show_query(name: str) -> dict[str, Any]:
        """Return one query."""
        query = server.queries.waiting.find(name) or server.registry.query(name)
        return {**_describe(query, server), **_progress(query, server, server.lags.now())}

    @api.delete("/v1/queries/{name}", status_code=204)
    async def drop_query(name: str) -> None:
        """End a query."""
        energy.close_period()
        await server.queries.drop(name)

    @api.post("/v1/explain")
    async def explain(new: NewQuery) -> Response:
        """Return how a query would be run, as text."""
        return Response(await server.queries.explain(new.sql), media_type="text/plain; charset=utf-8")

    @api.get("/v1/queries/{name}/results")
    async def read_results(
        name: str,
        after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        """Return rows with a higher sequence number than `after`: what a subscriber missed."""
        return Response(await server.results_json(name, after, limit), media_type="application/json")

    api.include_router(stream_routes(server))
    api.include_router(relation_routes(server))
    api.include_router(sensor_routes(server))
    api.include_router(energy_routes(energy))

    @api.get("/v1/status")
    async def status() -> dict[str, Any]:
        """Return whether everything runs, and how fast."""
        return server.status()

    @api.get("/v1/quarantine")
    async def quarantine(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[dict[str, Any]]:
        """Return what was refused last, newest first."""
        return [
            {
                "seen": instant_text(item.seen_us),
                "kind": item.kind,
                "reason": item.reason,
                "origin": item.origin,
                "content": item.content.hex(),
            }
            for item in server.registry.quarantined(limit)
        ]

    @api.get("/metrics")
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return api


def error_body(error: FjordError) -> dict[str, Any]:
    """Return an error as the API shows it."""
    body: dict[str, Any] = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, FjordSqlError):
        body |= {"line": error.line, "column": error.column, "underlined": error.underlined()}
    return body


def _status_of(error: FjordError) -> int:
    statuses: list[tuple[type[FjordError], int]] = [
        (UnknownQueryError, 404),
        (UnknownRelationError, 404),
        (QueryExistsError, 409),
        (TooManyQueriesError, 429),
        (StateLimitError, 429),
        (RowLimitError, 429),
        (TooManyDemandsError, 429),
        (CatalogError, 409),
        (FjordSqlError, 400),
        (PlanningBusyError, 429),
        (PlanError, 400),
        (TopicError, 400),
        (UnwritableError, 507),
        (StorageError, 503),
    ]
    return next((status for kind, status in statuses if isinstance(error, kind)), 500)


def _streams_of(query: RegisteredQuery | WaitingQuery) -> frozenset[str]:
    return query.reads if isinstance(query, WaitingQuery) else streams_of(query.node)


def _refused_demands(query: RegisteredQuery | WaitingQuery, server: ClusterServer) -> list[dict[str, Any]]:
    """Return why sensors are not asked for what a query needs: by the cluster, where no proxy is named, or a proxy."""
    streams = _streams_of(query)
    left_out = server.queries.demands.left_out
    own = [
        {"stream": stream, "proxy": None, "online": True, "reason": left_out[stream][query.name]}
        for stream in sorted(streams)
        if query.name in left_out.get(stream, {})
    ]
    told = server.queries.demand_reports.of_query(query.name, streams)
    return own + [{**each, "online": server.ingest.online(each["proxy"])} for each in told]


def _progress(query: RegisteredQuery | WaitingQuery, server: ClusterServer, lags: LagBy) -> dict[str, Any]:
    """Return how many rows a query has answered, and what is stored of its streams and not yet answered."""
    lag = None if isinstance(query, WaitingQuery) else lag_of_query(query.node, lags)
    rows = server.results.last_sequence(query.name)
    return {"rows": rows, "lag": None if lag is None else lag.as_json()}


def _describe(query: RegisteredQuery | WaitingQuery, server: ClusterServer) -> dict[str, Any]:
    waiting = query if isinstance(query, WaitingQuery) else None
    return {
        "name": query.name,
        "sql": query.sql,
        "topic": topics.results(query.name),
        "errors": topics.query_errors(query.name),
        "epoch": None if isinstance(query, WaitingQuery) else query.since_epoch,
        "created": instant_text(query.created_us),
        "state": "running" if waiting is None else server.queries.waiting.state(waiting),
        "reads": sorted(query.reads),
        "mismatches": mismatches_of(server.ingest, _streams_of(query)),
        "refused_demands": _refused_demands(query, server),
    }
