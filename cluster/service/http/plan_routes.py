"""The part of the HTTP API about the plan that all queries share."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from cluster.fjord.counters import owners_of, work_of
from cluster.fjord.operator_statistics import Rates
from cluster.physical.difference import diff
from cluster.physical.graph import dot, mermaid, plan_graph
from cluster.physical.text import plan_text
from cluster.service.http.strict_requests import api_router
from cluster.service.registry.running_queries import MOST_EPOCHS

if TYPE_CHECKING:
    from cluster.service.queries.query_service import QueryService
    from cluster.service.registry.registry import Registry
    from cluster.service.running.engine import Engine


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
