"""The HTTP API: queries, streams, results, status and metrics, for the command line and for applications."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from cluster.fjord.batch import instant_text
from cluster.service.http.catalog_routes import function_routes, relation_routes, sensor_routes, stream_routes
from cluster.service.http.error_responses import RESPONSES, handle_errors
from cluster.service.http.query_routes import QueryDescriptions, energy_routes, plan_routes, query_routes
from cluster.service.http.sensor_questions import SensorQuestions
from cluster.service.publishing.lag import greatest

if TYPE_CHECKING:
    from cluster.service.access.admission import Admission
    from cluster.service.running.parts import ClusterParts
    from cluster.storage.budgets import Blocked


def status_of(parts: ClusterParts) -> dict[str, Any]:
    """Return the state of a cluster."""
    ingest, registry, sensors = parts.ingest, parts.registry, parts.sensors
    counters = [writer.admission.counters for writer in ingest.writers.values()]
    lag = greatest(parts.lags.now().values())
    return {
        "name": parts.settings.name,
        "broker": _broker(parts),
        "fjord": {
            **parts.engine.as_json(),
            "overruns": parts.overruns.counts.total(),
            "epoch": registry.epoch,
            "lost": _lost_epochs(parts),
        },
        "queries": len(registry),
        "adding": _adding(parts),
        "lag": None if lag is None else lag.as_json(),
        "streams": sorted(ingest.schemas),
        "rows_stored": sum(each.rows for each in counters),
        "rows_rejected": sum(each.rejected_rows for each in counters),
        "rows_late": sum(each.late_rows for each in counters),
        "rows_published": parts.publishers.published_rows,
        "results": {**parts.publishers.status(), "dropped_rows": parts.results.retention.numbers.dropped_rows},
        "refused": dict(ingest.rejected),
        "contested": dict(sum((Counter(each.admission.contested_of) for each in ingest.writers.values()), Counter())),
        "storage": _storage(parts),
        "mismatches": len(ingest.offers.mismatches),
        "sensors": {
            "known": len(sensors),
            "refused": dict(sensors.rejected),
            "wrong_clocks": dict(sensors.clock_faults()),
            "samples_rejected": dict(sensors.samples_rejected()),
        },
        "proxy_clocks": {
            proxy: {"behind_seconds": behind_us / 1e6, "fault": ingest.proxy_clocks.faults.get(proxy)}
            for proxy, behind_us in ingest.proxy_clocks.behind_us.items()
        },
        "proxy_spools": {
            proxy: {
                "online": ingest.online(proxy),
                "batches": spool.report.batches,
                "bytes": spool.report.bytes,
                "file_bytes": spool.report.file_bytes,
                "waits_seconds": spool.waits_seconds,
                "heard": instant_text(spool.received_us),
            }
            for proxy, spool in ingest.proxy_spools.all().items()
        },
    }


def _adding(parts: ClusterParts) -> dict[str, int] | None:
    """Return how far the addition of several queries has come; None if there is none."""
    adding = parts.queries.adding
    return None if adding is None else {"queries": adding.queries, "planned": adding.planned}


def _broker(parts: ClusterParts) -> dict[str, Any]:
    return {
        "address": str(parts.settings.broker),
        "connected": parts.link.connected.is_set() and parts.publishers.connected,
        "trouble": parts.link.trouble or parts.publishers.trouble,
        "connects": parts.link.connects_total,
        "hangs": parts.link.hangs_total,
    }


def _lost_epochs(parts: ClusterParts) -> dict[str, Any]:
    lost = parts.registry.lost_epochs()
    return {"epochs": lost.epochs, "last": None if lost.seen_us is None else instant_text(lost.seen_us)}


def _storage(parts: ClusterParts) -> dict[str, Any]:
    damages = parts.ingest.damages
    return {
        **parts.registry.troubles.as_json(),
        "over_budget": {
            table: f"{blocked.bytes} bytes: {blocked.by}"
            for table, blocked in _over_budget(parts).items()
            if blocked.bytes
        },
        "damaged": {stream: str(damage) for stream, damage in damages.items()},
        "lost_commits": sum(damage.lost_commits for damage in damages.values()),
    }


def _over_budget(parts: ClusterParts) -> dict[str, Blocked]:
    """Return, by table, what is over its budget, as it still has to be read."""
    streams = {f"streams/{name}": each.retention.blocked for name, each in parts.ingest.tables().items()}
    return {"results": parts.results.retention.blocked, **streams}


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
