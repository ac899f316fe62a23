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
from cluster.service.billing.energy import Demands, MoteKey, kind_of, spent_joules
from protocols.acquisition.program_reports import has_energy_model
from protocols.power.costs import energy, most_mw
from protocols.wire.catalog import MoteEntry
from protocols.wire.demands import QueryDemand
from protocols.wire.packets import Health
from protocols.wire.programs import SLEEP, SamplingProgram, program_number
from protocols.wire.streams import StreamSchema

if TYPE_CHECKING:
    from cluster.ingest.service import Ingest
    from cluster.service.billing.bill import Bill
    from cluster.service.catalog.sensor_catalog import SensorCatalog
    from cluster.service.registry.registry import Registry
    from cluster.service.registry.running_queries import Subscribers

MOST_MOTES = 100_000
"""Motes in the ledger; further ones are ignored."""


@dataclass(slots=True)
class Account:
    """One mote.

    Parameters
    ----------
    entry
        With its last report of health.
    health
        That report.
    since_us, until_us
        Real time of its first and its last report.
    joules
        What it has spent in between.
    expected_joules
        What it should have spent, by its proxy's estimate.
    unbilled_joules
        What was spent and not collected yet.
    """

    entry: MoteEntry
    health: Health
    since_us: int
    until_us: int
    joules: float = 0.0
    expected_joules: float = 0.0
    unbilled_joules: float = 0.0


class Ledger:
    """Adds up what motes spend; a core without I/O.

    A report of health is dated by the last packet that the proxy had received when it published the entry, which may be
    some packets after the report; over many reports that evens out.
    """

    def __init__(self, *, most_motes: int = MOST_MOTES) -> None:
        self._most_motes = most_motes
        self.accounts: dict[MoteKey, Account] = {}
        self.implausible_reports = 0
        """Reports by which a mote has spent more than it can; they count as the most it can."""

    def note(self, entry: MoteEntry) -> None:
        """Note a mote's newest entry."""
        health = entry.health
        if health is None or not has_energy_model(entry):
            return
        key = entry.proxy, entry.mote
        account = self.accounts.get(key)
        if account is None:
            if len(self.accounts) < self._most_motes:
                self.accounts[key] = Account(entry, health, entry.heard_us, entry.heard_us)
            return
        elapsed_us = entry.heard_us - account.until_us
        if elapsed_us <= 0 or health == account.health:
            return
        before = account.entry
        profile = kind_of(before, {}).traits.profile
        joules = spent_joules(profile, _program_of(before), account.health, health, elapsed_us)
        most_joules = energy(most_mw(profile), elapsed_us)
        if joules > most_joules:
            joules = most_joules
            self.implausible_reports += 1
        account.joules += joules
        account.unbilled_joules += joules
        account.expected_joules += before.milliwatts * elapsed_us * 1e-9
        account.entry, account.health, account.until_us = entry, health, entry.heard_us

    def collect(self) -> tuple[tuple[MoteEntry, float], ...]:
        """Return what was spent since the last call, by mote."""
        collected = []
        for account in self.accounts.values():
            if account.unbilled_joules:
                collected.append((account.entry, account.unbilled_joules))
                account.unbilled_joules = 0.0
        return tuple(collected)

    @property
    def since_us(self) -> int | None:
        """Real time of the first report of health; None if there is none."""
        return min((account.since_us for account in self.accounts.values()), default=None)

    def measured_mw(self) -> Mapping[MoteKey, float]:
        """Return what motes have drawn on average, in milliwatts, where it is known."""
        return {
            key: account.joules * 1e9 / (account.until_us - account.since_us)
            for key, account in self.accounts.items()
            if account.until_us > account.since_us
        }


def _program_of(entry: MoteEntry) -> SamplingProgram:
    """Return the program of a mote by its entry; it may not have begun the one that it should run."""
    wanted = entry.wanted
    if wanted is None or entry.program == 0:
        return SLEEP
    if program_number(wanted) == entry.program or not entry.period_us:
        return wanted
    # An older program, of which only the period is known.
    return SamplingProgram(wanted.fields or ("unknown",), entry.period_us)


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
