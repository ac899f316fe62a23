"""The HTTP API: queries, streams, results and metrics, for the command line and for applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel, Field

from cluster.fjord.batch import instant_text
from cluster.plan.demand import streams_of
from cluster.service.catalog.stream_offers import mismatches_of
from cluster.service.http.api_token import carries
from cluster.service.http.energy_routes import EnergyBooks, energy_routes
from cluster.service.http.error_answers import RequestError, answer_errors, error_answer
from cluster.service.http.relation_routes import relation_routes
from cluster.service.http.request_bodies import MOST_BYTES, BoundedBodies, RequestTooLargeError
from cluster.service.http.sensor_routes import sensor_routes
from cluster.service.http.stream_routes import MAX_SQL_CHARACTERS, stream_routes
from cluster.service.lag import LagBy, lag_of_fragment
from cluster.service.registry.registry import RegisteredQuery
from cluster.service.registry.relation_registry import WaitingQuery
from protocols.wire import topics

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
            raise RequestError(401, "this cluster asks for a token", hint="set FJORD_API_TOKEN")

    api = FastAPI(title="Fjord", version="1", dependencies=[Depends(authorise)], docs_url="/docs", redoc_url=None)
    too_large = error_answer(RequestTooLargeError(MOST_BYTES))
    api.add_middleware(BoundedBodies, most_bytes=MOST_BYTES, refusal=too_large)
    answer_errors(api)
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
    runs = None if isinstance(query, WaitingQuery) else server.registry.physical.by_query.get(query.identity)
    lag = None if runs is None else lag_of_fragment(runs, lags)
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
