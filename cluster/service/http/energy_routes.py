"""The part of the HTTP API about energy: what a query would cost, and how what is spent is divided among queries."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Response
from pydantic import Field

from cluster.language.parameter_values import NO_VALUES, Value
from cluster.service.billing.energy import THIS_QUERY, explain_energy
from cluster.service.billing.energy_report import EnergyAnswer, RefusedPart
from cluster.service.catalog.stream_offers import mismatches_of
from cluster.service.http.stream_routes import MAX_SQL_CHARACTERS, StrictBody
from cluster.service.http.strict_requests import api_router
from cluster.service.http.wanted_queries import Parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.ingest.service import Ingest
    from cluster.service.billing.periods import BillingPeriods
    from cluster.service.queries.query_service import QueryService

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
