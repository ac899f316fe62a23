"""The HTTP API: queries, streams, results and metrics, for the command line and for applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from cluster.fjord.batch import instant_text
from cluster.service.http.energy_routes import energy_routes
from cluster.service.http.error_responses import RESPONSES, handle_errors
from cluster.service.http.function_routes import function_routes
from cluster.service.http.plan_routes import plan_routes
from cluster.service.http.query_routes import QueryDescriptions, query_routes
from cluster.service.http.relation_routes import relation_routes
from cluster.service.http.sensor_questions import SensorQuestions
from cluster.service.http.sensor_routes import sensor_routes
from cluster.service.http.status import status_of
from cluster.service.http.stream_routes import stream_routes

if TYPE_CHECKING:
    from cluster.service.access.admission import Admission
    from cluster.service.running.parts import ClusterParts


def make_api(
    parts: ClusterParts, metrics: CollectorRegistry, admission: Admission, questions: SensorQuestions
) -> FastAPI:
    """Return the application. :func:`cluster.service.http.guard.guarded` decides which requests get to it.

    Parameters
    ----------
    parts
        The cluster's.
    metrics
        What ``/metrics`` shows.
    admission
        What ``/v1/status`` shows of tokens and refused requests.
    questions
        Answers questions about sensors.
    """
    api = FastAPI(title="Fjord", version="1", docs_url="/docs", redoc_url=None, responses=RESPONSES)
    handle_errors(api)
    queries, registry, ingest, lags = parts.queries, parts.registry, parts.ingest, parts.lags
    descriptions = QueryDescriptions(
        queries,
        registry,
        ingest,
        parts.sensors,
        parts.results,
        lags,
        parts.engine.operators,
        parts.publishers.unpublished_commits_of,
    )
    api.include_router(query_routes(queries, registry, descriptions))
    api.include_router(
        stream_routes(
            queries.streams, ingest, parts.sensors, budgets=parts.budgets, gone_proxies=parts.gone_proxies, lags=lags
        )
    )
    api.include_router(plan_routes(registry, parts.engine, queries))
    api.include_router(relation_routes(queries.relations))
    api.include_router(function_routes(queries.functions))
    api.include_router(sensor_routes(parts.sensors, questions))
    api.include_router(energy_routes(queries, ingest, parts.billing))

    @api.get("/v1/status")
    async def status() -> dict[str, Any]:
        """Return the state of the cluster and its parts."""
        return {**status_of(parts), "api": admission.as_json()}

    @api.get("/v1/quarantine")
    async def quarantine(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[dict[str, Any]]:
        """Return the latest rejected messages and rows, newest first."""
        return [
            {
                "seen": instant_text(item.seen_us),
                "kind": item.kind,
                "reason": item.reason,
                "origin": item.origin,
                "content": item.content.hex(),
            }
            for item in registry.quarantine.newest(limit)
        ]

    @api.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return api
