"""The part of the HTTP API about streams."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cluster.fjord.batch import instant_text
from cluster.service.catalog.gone_proxies import LEAST_SECONDS, LONGEST_SECONDS, GoneAfter
from cluster.service.catalog.stream_budgets import retention_json
from cluster.service.catalog.stream_offers import offers_of, rejected_of
from cluster.service.catalog.stream_waits import absences_of, wait_of
from cluster.service.http.strict_requests import api_router
from cluster.service.publishing.lag import lag_of_stream
from cluster.storage.budgets import Budget
from protocols.wire.names import normal

if TYPE_CHECKING:
    from cluster.ingest.service import Ingest
    from cluster.service.catalog.gone_proxies import GoneProxies
    from cluster.service.catalog.sensor_catalog import SensorCatalog
    from cluster.service.catalog.stream_budgets import StreamBudgets
    from cluster.service.catalog.stream_service import StreamService
    from cluster.service.publishing.lag import Lags

MAX_SQL_CHARACTERS = 100_000
LONGEST_AGE_SECONDS = 1e12
"""A longer age is no bound."""
MOST_UNKNOWN: Final = 100
"""Fields that a body does not have, of which each is an error of its own: the others are not looked at."""


PathName = Annotated[str, AfterValidator(normal)]
"""A name in an address: what looks alike is the same."""


class StrictBody(BaseModel):
    """The body of a request: a field that it does not have is refused, as one that is misspelt would be ignored."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _bound_unknown(cls, body: Any) -> Any:
        """Leave out most of very many unknown fields: a million errors would hold up the cluster for half a minute."""
        if not isinstance(body, dict) or len(body) <= len(cls.model_fields) + MOST_UNKNOWN:
            return body
        unknown = islice((name for name in body if name not in cls.model_fields), MOST_UNKNOWN)
        return {name: body[name] for name in (*(cls.model_fields.keys() & body.keys()), *unknown)}


class Declaration(StrictBody):
    """A stream to create or drop."""

    sql: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARACTERS)]


class NewBudget(StrictBody):
    """The budget of a stream; null means no bound."""

    age_seconds: Annotated[float, Field(ge=1e-6, le=LONGEST_AGE_SECONDS)] | None = None
    bytes: Annotated[int, Field(gt=0, le=2**62)] | None = None


class NewPatience(StrictBody):
    """After how long a stream goes on without a proxy that is gone; null means never."""

    seconds: Annotated[float, Field(ge=LEAST_SECONDS, le=LONGEST_SECONDS)] | None = None


def stream_routes(
    streams: StreamService,
    ingest: Ingest,
    sensors: SensorCatalog,
    *,
    budgets: StreamBudgets,
    gone_proxies: GoneProxies,
    lags: Lags,
) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    streams
        Creates and drops them.
    ingest
        Stores them.
    sensors
        What feeds them.
    budgets
        What may be kept of each.
    gone_proxies
        After how long each goes on without a proxy.
    lags
        How far queries are behind them.
    """
    api = api_router()

    @api.get("/v1/streams")
    async def list_streams() -> list[dict[str, Any]]:
        """List streams with their fields: base streams with their low watermarks, derived ones with their text.

        Streams that an earlier version created and this one cannot read have an error.
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
            for stream in streams.derived
        ]
        errors = {each.name: each.reason for each in streams.unreadable.all()}
        unreadable = [
            {"name": each.name, "kind": "unreadable", "fields": [], "text": each.text, "error": each.reason}
            for each in streams.unreadable.all()
            if each.name not in ingest.writers
        ]
        behind = lags.now()
        damages = {name: str(damage) for name, damage in ingest.damages.items()}
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
                "lag": None if (lag := lag_of_stream(writer.stream, behind)) is None else lag.as_json(),
                "offers": offers_of(ingest, writer.stream),
                "troubles": [asdict(each) for each in sensors.troubles([writer.stream])],
                "lost": {
                    "batches": writer.admission.counters.lost_batches,
                    "versions": writer.admission.counters.lost_versions,
                },
                "retention": retention_json(writer.table.retention),
                "rejected": rejected_of(ingest, writer.stream),
                "waits_for": wait_of(ingest, writer.stream),
                "gone_after_seconds": gone_proxies.after(writer.stream),
                "gone": absences_of(ingest, writer.stream),
                "error": errors.get(writer.stream),
                "damage": damages.get(writer.stream),
            }
            for writer in ingest.writers.values()
        ]
        return [*derived, *unreadable, *base]

    @api.post("/v1/streams", status_code=201)
    async def declare_stream(new: Declaration) -> dict[str, str]:
        """Execute CREATE STREAM or DROP STREAM; return the stream's name."""
        return {"name": await streams.execute(new.sql)}

    @api.delete("/v1/streams/{name}", status_code=204)
    async def drop_stream(name: PathName) -> None:
        """Drop a stream that nothing uses, and its table."""
        await streams.drop(name)

    @api.put("/v1/streams/{name}/budget", status_code=204)
    async def set_budget(name: PathName, new: NewBudget) -> None:
        """Set the budget of a stream."""
        age_us = None if new.age_seconds is None else round(new.age_seconds * 1e6)
        budgets.set(name, Budget(age_us, new.bytes), ingest.writers)

    @api.delete("/v1/streams/{name}/budget", status_code=204)
    async def reset_budget(name: PathName) -> None:
        """Give a stream the cluster's default budget."""
        budgets.set(name, None, ingest.writers)

    @api.put("/v1/streams/{name}/gone-after", status_code=204)
    async def set_gone_after(name: PathName, new: NewPatience) -> None:
        """Set after how long a stream goes on without a proxy that is gone."""
        gone_proxies.set(name, GoneAfter(new.seconds), ingest.writers)

    @api.delete("/v1/streams/{name}/gone-after", status_code=204)
    async def reset_gone_after(name: PathName) -> None:
        """Let a stream go on without proxies that are gone as the cluster's settings say."""
        gone_proxies.set(name, None, ingest.writers)

    return api
