"""The part of the HTTP API about sensors: the catalog as it is, and one-shot queries over the relation ``sensors``."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cluster.service.catalog.sensor_catalog import SensorCatalog, sensors_relation
from cluster.service.http.connection_bounds import caller_of
from cluster.service.http.error_responses import RequestError
from cluster.service.http.sensor_questions import SensorQuestions
from cluster.service.http.sensor_sql import LONGEST_QUERY, answer
from cluster.service.http.strict_requests import api_router


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
