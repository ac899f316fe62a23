"""The part of the HTTP API about energy: what a query would cost, and who pays for what is spent.

A thin shell around :mod:`cluster.service.billing.energy` and :mod:`cluster.service.billing.bill`: it knows when demands
change, and does the long computations in a thread.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from cluster.service.billing.bill import Divided, Spent, Splitter, divide, make_bill
from cluster.service.billing.energy import ASKING, Demands, explain_energy
from cluster.service.billing.energy_report import RefusedPart
from cluster.service.catalog.stream_offers import mismatches_of
from cluster.service.http.stream_routes import MAX_SQL_CHARACTERS
from protocols.wire.catalog import MoteEntry
from protocols.wire.demands import QueryDemand
from protocols.wire.streams import StreamSchema

if TYPE_CHECKING:
    from cluster.service.billing.bill_report import Bill
    from cluster.service.server import ClusterServer

MOST_WAITING = 1_000_000
"""Amounts that wait to be divided, one per mote and change of demands; of more the oldest stay undivided."""
_EXPLAIN_ENERGY = re.compile(r"\s*EXPLAIN\s+ENERGY(?=\s)", re.IGNORECASE | re.ASCII)


class Question(BaseModel):
    """A query whose energy is asked for."""

    sql: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARACTERS)]


@dataclass(frozen=True, slots=True)
class Period:
    """What motes spent while demands stayed the same."""

    demands: Demands
    schemas: dict[str, StreamSchema]
    spent: tuple[tuple[MoteEntry, float], ...]


class EnergyBooks:
    """Keeps what was spent apart by the demands it was spent for.

    Parameters
    ----------
    server
        The cluster whose motes and queries these are.
    """

    def __init__(self, server: ClusterServer) -> None:
        self._server = server
        self._splitter = Splitter()
        self._waiting: list[Period] = []
        self._divided = Divided()
        self._lock = asyncio.Lock()

    def close_period(self) -> None:
        """Put down what was spent for the demands there are: they are about to change."""
        schemas = self._server.ingest.schemas
        spent = tuple((as_declared(entry, schemas), joules) for entry, joules in self._server.sensors.ledger.take())
        if not spent:
            return
        period = Period(self._running(), dict(self._server.ingest.schemas), spent)
        last = self._waiting[-1] if self._waiting else None
        if last is not None and (last.demands, last.schemas) == (period.demands, period.schemas):
            self._waiting[-1] = Period(last.demands, last.schemas, _added(last.spent, spent))
        else:
            self._waiting.append(period)
        while len(self._waiting) > 1 and sum(len(each.spent) for each in self._waiting) > MOST_WAITING:
            self._divided.unknown += sum(joules for _, joules in self._waiting.pop(0).spent)

    async def explain(self, sql: str) -> bytes:
        """Return what a query would cost, as JSON; see :func:`cluster.service.billing.energy.explain_energy`.

        Raises
        ------
        FjordSqlError
            If the text is not a query over the streams there are.
        """
        asked = await self._server.queries.demands_for(without_explain(sql), ASKING)
        entries = self._asked()
        answer = await asyncio.to_thread(
            explain_energy,
            asked,
            self._running(),
            dict(self._server.ingest.schemas),
            entries,
            self._server.sensors.ledger.measured_mw(),
        )
        not_asked = tuple(
            RefusedPart(each["stream"], f"proxy {each['proxy']} does not feed it: {'; '.join(each['reasons'])}")
            for each in mismatches_of(self._server.ingest, asked)
        )
        return msgspec.json.encode(msgspec.structs.replace(answer, refused=(*answer.refused, *not_asked)))

    async def bill(self) -> bytes:
        """Return the bill, as JSON; see :class:`cluster.service.billing.bill_report.Bill`."""
        async with self._lock:
            self.close_period()
            waiting, self._waiting = self._waiting, []
            accounts = self._server.sensors.ledger.accounts.values()
            motes = sum(account.until_us > account.since_us for account in accounts)
            expected = sum(account.expected_joules for account in accounts)
            since_us = self._server.sensors.ledger.since_us
            implausible = self._server.sensors.ledger.implausible_reports
            entries = self._asked()
            demands, schemas = self._running(), dict(self._server.ingest.schemas)

            def compute() -> tuple[Divided, Bill]:
                divided = Divided()
                for each in waiting:
                    divided.add(divide(each.spent, each.demands, each.schemas, self._splitter))
                whole = Divided()
                whole.add(self._divided)
                whole.add(divided)
                spent = Spent(whole, since_us, motes, expected, implausible)
                return divided, make_bill(entries, demands, schemas, self._splitter, spent)

            try:
                divided, bill = await asyncio.to_thread(compute)
            except BaseException:
                self._waiting[:0] = waiting
                raise
            self._divided.add(divided)
            return msgspec.json.encode(bill)

    def _asked(self) -> tuple[MoteEntry, ...]:
        """Return the motes that queries may ask: those that offer their stream as it is declared."""
        entries, _ = self._server.sensors.snapshot()
        mismatches, schemas = self._server.ingest.offers.mismatches, self._server.ingest.schemas
        return tuple(as_declared(entry, schemas) for entry in entries if (entry.proxy, entry.stream) not in mismatches)

    def _running(self) -> Demands:
        found: dict[str, list[QueryDemand]] = {}
        for query in self._server.registry.physical.oldest_first:
            for stream, demands in query.asked.streams:
                found.setdefault(stream, []).extend(demands)
        return found


def as_declared(entry: MoteEntry, schemas: Mapping[str, StreamSchema]) -> MoteEntry:
    """Return an entry with the properties of its mote as its stream spells them."""
    schema = schemas.get(entry.stream)
    spelled = {} if schema is None else _spellings(schema)
    if all(spelled.get(name.casefold(), name) == name for name in entry.properties):
        return entry
    properties = {spelled.get(name.casefold(), name): value for name, value in entry.properties.items()}
    return msgspec.structs.replace(entry, properties=properties)


@lru_cache(maxsize=1024)
def _spellings(schema: StreamSchema) -> Mapping[str, str]:
    return {field.name.casefold(): field.name for field in schema.fixed}


def energy_routes(books: EnergyBooks) -> APIRouter:
    """Return the routes.

    Parameters
    ----------
    books
        What they ask.
    """
    api = APIRouter()

    @api.post("/v1/explain/energy")
    async def explain(question: Question) -> Response:
        """Return what a query would cost the motes it touches; it may begin with EXPLAIN ENERGY."""
        return Response(await books.explain(question.sql), media_type="application/json")

    @api.get("/v1/bill")
    async def bill() -> Response:
        """Return each running query's share of what motes draw and have spent."""
        return Response(await books.bill(), media_type="application/json")

    return api


def without_explain(sql: str) -> str:
    """Return a query without EXPLAIN ENERGY before it; all that follows stays at its place.

    >>> without_explain("Explain energy SELECT 1")
    '               SELECT 1'
    """
    found = _EXPLAIN_ENERGY.match(sql)
    if found is None:
        return sql
    return "".join(letter if letter.isspace() else " " for letter in found[0]) + sql[found.end() :]


def _added(
    one: tuple[tuple[MoteEntry, float], ...], other: tuple[tuple[MoteEntry, float], ...]
) -> tuple[tuple[MoteEntry, float], ...]:
    """Return amounts by mote, added; each with its newest entry."""
    found = {(entry.proxy, entry.mote): (entry, joules) for entry, joules in one}
    for entry, joules in other:
        key = entry.proxy, entry.mote
        found[key] = entry, joules + (found[key][1] if key in found else 0.0)
    return tuple(found.values())
