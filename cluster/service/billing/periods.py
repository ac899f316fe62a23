"""What motes have spent, period by period: a period is a time in which the demands on motes stay the same.

A thin shell around :mod:`cluster.service.billing.bill`: it keeps the periods that are not divided yet, and does the
long computations in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from cluster.service.billing.bill import Divided, Spent, Splitter, divide, make_bill
from cluster.service.billing.energy import Demands
from protocols.wire.catalog import MoteEntry
from protocols.wire.demands import QueryDemand
from protocols.wire.streams import StreamSchema

if TYPE_CHECKING:
    from cluster.ingest.service import Ingest
    from cluster.service.billing.bill_report import Bill
    from cluster.service.billing.energy_ledger import Ledger
    from cluster.service.catalog.sensor_catalog import SensorCatalog
    from cluster.service.registry.registry import Registry
    from cluster.service.registry.running_queries import Subscribers

MOST_WAITING = 1_000_000
"""Amounts that wait to be divided, one per mote and period; of more the oldest stay undivided."""


@dataclass(frozen=True, slots=True)
class Period:
    """What motes spent while the same queries ran."""

    queries: Subscribers
    schemas: dict[str, StreamSchema]
    spent: tuple[tuple[MoteEntry, float], ...]


class BillingPeriods:
    """Divides the energy spent among the demands for which it was spent.

    Parameters
    ----------
    registry
        The queries that run, and their demands.
    ingest
        The streams, and the proxies that offer them.
    sensors
        The motes.
    ledger
        What they have spent.
    """

    def __init__(self, registry: Registry, ingest: Ingest, sensors: SensorCatalog, ledger: Ledger) -> None:
        self._registry = registry
        self._ingest = ingest
        self._sensors = sensors
        self.ledger = ledger
        self._splitter = Splitter()
        self._waiting: list[Period] = []
        self._divided = Divided()
        self._lock = asyncio.Lock()

    def close(self) -> None:
        """End the present period: the demands are about to change."""
        schemas = self._ingest.schemas
        spent = tuple((as_declared(entry, schemas), joules) for entry, joules in self.ledger.collect())
        if not spent:
            return
        period = Period(self._registry.physical.oldest_first, schemas, spent)
        last = self._waiting[-1] if self._waiting else None
        if last is not None and (last.queries, last.schemas) == (period.queries, period.schemas):
            self._waiting[-1] = Period(last.queries, last.schemas, _added(last.spent, spent))
        else:
            self._waiting.append(period)
        while len(self._waiting) > 1 and sum(len(each.spent) for each in self._waiting) > MOST_WAITING:
            self._divided.unknown += sum(joules for _, joules in self._waiting.pop(0).spent)

    def demands(self) -> Demands:
        """Return the demands of the running queries, by stream."""
        return _demands_of(self._registry.physical.oldest_first)

    def entries(self) -> tuple[MoteEntry, ...]:
        """Return the motes that queries can use: their proxies are online, and offer their stream as it is declared."""
        entries, online = self._sensors.snapshot()
        mismatches, schemas = self._ingest.offers.mismatches, self._ingest.schemas
        return tuple(
            as_declared(entry, schemas)
            for entry in entries
            if entry.proxy in online and (entry.proxy, entry.stream) not in mismatches
        )

    async def bill(self) -> Bill:
        """Return the bill."""
        async with self._lock:
            self.close()
            waiting, self._waiting = self._waiting, []
            ledger = self.ledger
            accounts = ledger.accounts.values()
            motes = sum(account.until_us > account.since_us for account in accounts)
            expected = sum(account.expected_joules for account in accounts)
            since_us, implausible = ledger.since_us, ledger.implausible_reports
            entries, demands, schemas = self.entries(), self.demands(), self._ingest.schemas

            def compute() -> tuple[Divided, Bill]:
                divided = Divided()
                for each in waiting:
                    divided.add(divide(each.spent, _demands_of(each.queries), each.schemas, self._splitter))
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
            return bill


def _demands_of(queries: Subscribers) -> Demands:
    found: dict[str, list[QueryDemand]] = {}
    for query in queries:
        for stream, demands in query.demands.streams:
            found.setdefault(stream, []).extend(demands)
    return found


def as_declared(entry: MoteEntry, schemas: Mapping[str, StreamSchema]) -> MoteEntry:
    """Return an entry with its mote's properties spelled as in the declaration of its stream."""
    schema = schemas.get(entry.stream)
    spelled = {} if schema is None else _spellings(schema)
    if all(spelled.get(name.casefold(), name) == name for name in entry.properties):
        return entry
    properties = {spelled.get(name.casefold(), name): value for name, value in entry.properties.items()}
    return msgspec.structs.replace(entry, properties=properties)


@lru_cache(maxsize=1024)
def _spellings(schema: StreamSchema) -> Mapping[str, str]:
    return {field.name.casefold(): field.name for field in schema.fixed}


def _added(
    one: tuple[tuple[MoteEntry, float], ...], other: tuple[tuple[MoteEntry, float], ...]
) -> tuple[tuple[MoteEntry, float], ...]:
    """Return amounts by mote, added; each with its newest entry."""
    found = {(entry.proxy, entry.mote): (entry, joules) for entry, joules in one}
    for entry, joules in other:
        key = entry.proxy, entry.mote
        found[key] = entry, joules + (found[key][1] if key in found else 0.0)
    return tuple(found.values())
