"""The part of the HTTP API about streams and the plan over them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from cluster.fjord.batch import instant_text
from cluster.fjord.counters import work_of
from cluster.physical.difference import diff
from cluster.physical.graph import dot, mermaid, plan_graph
from cluster.physical.text import plan_text
from cluster.service.catalog.stream_budgets import retention_json
from cluster.service.catalog.stream_offers import offers_of, rejected_of
from cluster.service.lag import lag_of_stream
from cluster.storage.budgets import Budget

if TYPE_CHECKING:
    from cluster.service.server import ClusterServer

MAX_SQL_CHARACTERS = 100_000
LONGEST_AGE_SECONDS = 1e12
"""More than that is for ever."""


class Declaration(BaseModel):
    """A stream to create or drop."""

    sql: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARACTERS)]


class NewBudget(BaseModel):
    """What may be kept of a stream; null is no bound."""

    age_seconds: Annotated[float, Field(ge=1e-6, le=LONGEST_AGE_SECONDS)] | None = None
    bytes: Annotated[int, Field(gt=0, le=2**62)] | None = None


class PlanFormat(StrEnum):
    """How a plan is shown."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


def stream_routes(server: ClusterServer) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    server
        The cluster they speak for.
    """
    api = APIRouter()

    @api.get("/v1/streams")
    async def list_streams() -> list[dict[str, Any]]:
        """List streams with their fields: base streams with how far they have come, derived ones with their text.

        Those that an earlier version created, and that cannot be read any more, have an error.
        """
        derived = [
            {
                "name": stream.name,
                "kind": "derived",
                "fields": [
                    {"name": column.name, "type": column.type.value, "unit": column.unit, "fixed": False}
                    for column in stream.columns
                ],
                "text": stream.text,
            }
            for stream in server.queries.streams.derived
        ]
        errors = {each.name: each.reason for each in server.queries.streams.unreadable.all()}
        unreadable = [
            {"name": each.name, "kind": "unreadable", "fields": [], "text": each.text, "error": each.reason}
            for each in server.queries.streams.unreadable.all()
            if each.name not in server.ingest.writers
        ]
        behind = server.lags.now()
        lags = {name: lag_of_stream(name, behind) for name in server.ingest.writers}
        damages = {name: str(damage) for name, damage in server.ingest.damages.items()}
        base = [
            {
                "name": writer.stream,
                "kind": "base",
                "fields": [
                    {"name": field.name, "type": field.type.value, "unit": field.unit, "fixed": field.fixed}
                    for field in writer.table.schema.fields
                ],
                "version": writer.table.version,
                "watermark": None
                if writer.admission.watermark_us is None
                else instant_text(writer.admission.watermark_us),
                "lag": None if (lag := lags[writer.stream]) is None else lag.as_json(),
                "offers": offers_of(server.ingest, writer.stream),
                "lost": {
                    "batches": writer.admission.counters.lost_batches,
                    "versions": writer.admission.counters.lost_versions,
                },
                "retention": retention_json(writer.table.retention),
                "rejected": rejected_of(server.ingest, writer.stream),
                "error": errors.get(writer.stream),
                "damage": damages.get(writer.stream),
            }
            for writer in server.ingest.writers.values()
        ]
        return [*derived, *unreadable, *base]

    @api.post("/v1/streams", status_code=201)
    async def declare_stream(new: Declaration) -> dict[str, str]:
        """Execute CREATE STREAM or DROP STREAM; return the stream's name."""
        return {"name": await server.queries.streams.execute(new.sql)}

    @api.delete("/v1/streams/{name}", status_code=204)
    async def drop_stream(name: str) -> None:
        """Forget a stream that nothing uses, and what is stored of it."""
        await server.queries.streams.drop(name)

    @api.put("/v1/streams/{name}/budget", status_code=204)
    async def set_budget(name: str, new: NewBudget) -> None:
        """Say what may be kept of a stream."""
        age_us = None if new.age_seconds is None else round(new.age_seconds * 1e6)
        server.budgets.set(name, Budget(age_us, new.bytes), server.ingest.writers)

    @api.delete("/v1/streams/{name}/budget", status_code=204)
    async def reset_budget(name: str) -> None:
        """Let a stream be kept as all others are."""
        server.budgets.set(name, None, server.ingest.writers)

    @api.get("/v1/plan")
    async def show_plan(kind: Annotated[PlanFormat, Query(alias="format")] = PlanFormat.TEXT) -> Response:
        """Return the plan that all queries share: as text, or as a graph for Mermaid or Graphviz."""
        plan = server.registry.physical
        work = work_of(plan, server.counters)
        match kind:
            case PlanFormat.MERMAID:
                text = mermaid(plan_graph(plan, work))
            case PlanFormat.DOT:
                text = dot(plan_graph(plan, work))
            case _:
                text = plan_text(plan, work)
        return Response(text, media_type="text/plain; charset=utf-8")

    @api.get("/v1/plan/difference")
    async def show_difference(since: Annotated[int | None, Query(ge=0)] = None) -> Response:
        """Return what has changed of the plan since an epoch, by default the one before: what stays, comes and goes."""
        plan = server.registry.physical
        before = server.registry.physical_at(max(0, plan.epoch - 1) if since is None else since)
        return Response(f"{diff(before, plan).words}\n", media_type="text/plain; charset=utf-8")

    @api.get("/v1/plan/operators")
    async def list_operators() -> list[dict[str, Any]]:
        """List what the operators of the plan and their queues have done since the cluster was started."""
        alive = server.registry.physical.by_identity
        counters = sorted(server.counters.items())
        return [
            {"operator": name, **msgspec.structs.asdict(totals)}
            for name, totals in counters
            if totals.owner in alive or totals.owner.startswith("stream ")
        ]

    return api
