"""The part of the HTTP API about streams, relations, functions and sensors."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cluster.fjord.batch import instant_text
from cluster.service.catalog.sensor_catalog import SensorCatalog, sensors_relation
from cluster.service.catalog.shown_streams import absences_of, offers_of, rejected_of, wait_of
from cluster.service.catalog.stream_settings import LEAST_SECONDS, LONGEST_SECONDS, GoneAfter, retention_json
from cluster.service.http.connections import caller_of
from cluster.service.http.error_responses import RequestError
from cluster.service.http.request_bodies import api_router
from cluster.service.http.sensor_questions import SensorQuestions
from cluster.service.http.sensor_sql import LONGEST_QUERY, answer
from cluster.service.publishing.lag import lag_of_stream
from cluster.storage.budgets import Budget
from protocols.wire.names import normal

if TYPE_CHECKING:
    from cluster.ingest.service import Ingest
    from cluster.service.catalog.function_service import FunctionService
    from cluster.service.catalog.relation_service import RelationService
    from cluster.service.catalog.stream_service import StreamService
    from cluster.service.catalog.stream_settings import GoneProxies, StreamBudgets
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


def function_routes(functions: FunctionService) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    functions
        Creates, drops and describes them.
    """
    api = api_router()

    @api.get("/v1/functions")
    async def list_functions() -> list[dict[str, Any]]:
        """List functions: where each comes from, its types, and what calls it."""
        return functions.all()

    @api.get("/v1/functions/{name}")
    async def show_function(name: PathName) -> dict[str, Any]:
        """Return one function."""
        return functions.describe(functions.find(name))

    @api.post("/v1/functions", status_code=201)
    async def declare_function(new: Declaration) -> dict[str, Any]:
        """Execute CREATE FUNCTION or DROP FUNCTION; return the function."""
        return await functions.execute(new.sql)

    @api.delete("/v1/functions/{name}", status_code=204)
    async def drop_function(name: PathName) -> None:
        """Drop a function that nothing calls."""
        await functions.drop(name)

    return api


def relation_routes(relations: RelationService) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    relations
        Creates, drops and describes them.
    """
    api = api_router()

    @api.get("/v1/relations")
    async def list_relations() -> list[dict[str, Any]]:
        """List relations: where each comes from, its state, and which queries read it."""
        return relations.all()

    @api.get("/v1/relations/{name}")
    async def show_relation(name: PathName) -> dict[str, Any]:
        """Return one relation."""
        return relations.describe(relations.find(name))

    @api.post("/v1/relations", status_code=201)
    async def declare_relation(new: Declaration) -> dict[str, Any]:
        """Execute CREATE RELATION or DROP RELATION; return the relation."""
        return await relations.execute(new.sql)

    @api.delete("/v1/relations/{name}", status_code=204)
    async def drop_relation(name: PathName) -> None:
        """Drop a relation that nothing reads."""
        await relations.drop(name)

    return api


def sensor_routes(catalog: SensorCatalog, questions: SensorQuestions) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    catalog
        The sensors.
    questions
        Answers questions about them.
    """
    api = api_router()

    @api.get("/v1/sensors")
    async def list_sensors(
        request: Request,
        condition: Annotated[str | None, Query(alias="where", min_length=1, max_length=LONGEST_QUERY)] = None,
        sql: Annotated[str | None, Query(min_length=1, max_length=LONGEST_QUERY)] = None,
    ) -> Response:
        """Return all sensors, those for which a condition holds, or the result of a SELECT over ``sensors``."""
        if condition is not None and sql is not None:
            raise RequestError(400, "there is a condition (where) and a whole query (sql)", hint="send one of the two")
        entries, online = catalog.snapshot()
        rows = await asyncio.to_thread(
            sensors_relation, entries, online, catalog.mismatches(), catalog.proxy_clocks(), catalog.refused_demands()
        )
        if condition is None and sql is None:
            body = await asyncio.to_thread(answer, rows, condition=None, sql=None)
        else:
            body = await questions.answer(rows, condition=condition, sql=sql, caller=caller_of(request.scope))
        return Response(body, media_type="application/json")

    return api
