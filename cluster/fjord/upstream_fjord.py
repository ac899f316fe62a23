"""The operators next to the scans: each part of a stream is scanned once, for all queries, and looked up once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import polars as pl

from cluster.fjord.batch import Batch
from cluster.fjord.compilation import EXCEPTED, upstream_operators
from cluster.fjord.counters import Counters, counters_of
from cluster.fjord.edges import SAMPLES, Edge, stored_columns
from cluster.fjord.graph import Fjord, Placed
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.operators.lookup import Lookup, Tables
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.operators.told_aggregates import ToldAggregates, told_columns
from cluster.fjord.placement import Part
from cluster.fjord.queues import PullQueue, PushQueue
from cluster.fjord.stream_scan import StreamScan
from cluster.language.algebra import Source, TableLookup
from cluster.plan.relations_read import relations_of
from protocols.programs import Measure


class Scans(Protocol):
    """The scans of one part of a micro-batch."""

    def of(self, source: Source) -> tuple[str, StreamScan]:
        """Return a source's scan, and what tells it in names from the stream's live one; empty for that."""
        ...


@dataclass(frozen=True, slots=True)
class Emitted:
    """What left one edge of one part; no rows if there was nothing, and no watermark then."""

    part: Part
    edge: Edge
    rows: pl.DataFrame | None
    watermark_us: int | None


class UpstreamFjord:
    """What runs next to the scans in one part of a micro-batch.

    Parameters
    ----------
    parts
        Of the plan.
    scans
        Of the streams in this part of the micro-batch.
    tables
        What tuples are looked up in; None if nothing is.

    Attributes
    ----------
    failures
        By part or query: why its operators failed, or what they complain of.
    """

    def __init__(self, parts: Sequence[Part], scans: Scans, tables: Tables | None) -> None:
        self._fjord = Fjord()
        self._outlets = _build(self._fjord, parts, scans, tables)
        self.failures: dict[str, str] = {}

    @property
    def counters(self) -> Counters:
        """What the operators did."""
        return counters_of(self._fjord.operators)

    def run(self) -> list[Emitted]:
        """Run it; a part that fails emits nothing."""
        self._fjord.run()
        failures = {owner: str(error) for owner, error in self._fjord.failures.items()}
        complaints = {owner: str(error) for owner, error in self._fjord.complaints.items()}
        found = []
        for outlet in self._outlets:
            owner = outlet.edge.owner
            failures.update((owner, failures[each]) for each in outlet.behind if each in self._fjord.failures)
            complaints.update((owner, complaints[each]) for each in outlet.behind if each in complaints)
            if owner in failures:
                continue
            batches = []
            while (batch := outlet.queue.get()) is not None:
                batches.append(batch)
            failures |= {
                listener.query.identity: outlet.grouped.failures[listener.group]
                for listener in outlet.part.listeners
                if listener.group in outlet.grouped.failures
            }
            rows = pl.concat([batch.rows for batch in batches]) if batches else None
            found.append(Emitted(outlet.part, outlet.edge, rows, batches[-1].watermark_us if batches else None))
        self.failures = complaints | failures
        return found


@dataclass(frozen=True, slots=True)
class _Outlet:
    """What leaves one edge of one part; `behind` are the owners of what it shares with others."""

    part: Part
    edge: Edge
    queue: PushQueue
    grouped: GroupedFilter
    behind: tuple[str, ...] = ()


def _build(fjord: Fjord, parts: Sequence[Part], scans: Scans, tables: Tables | None) -> list[_Outlet]:
    """Build the operators; such parts of a stream are samples, events of one form, aggregates of sensors."""
    readers: dict[tuple[str, str, str], list[tuple[Part, Edge]]] = {}
    for part in parts:
        for edge in part.edges:
            readers.setdefault((edge.stream, edge.scanned, scans.of(edge.source)[0]), []).append((part, edge))
    outlets = []
    for (stream, scanned, past), edges in sorted(readers.items()):
        _, scan = scans.of(edges[0][1].source)
        columns = {column.name: column for _, edge in edges for column in stored_columns(edge.source)}
        produce = scan.samples if scanned == SAMPLES else partial(scan.events, scanned)
        excepted = scanned == SAMPLES and any(part.without_told() is not None for part, _ in edges)
        wanted = (*columns.values(), *([EXCEPTED] if excepted else []))
        name = f"scan of {stream}{past}" if scanned == SAMPLES else f"scan of {stream} events {scanned}{past}"
        queue = PullQueue(_once(partial(produce, stream, wanted)))
        owner = f"stream {stream}"
        shared = fjord.add(name, Multiplex(), [queue], owner=owner)
        looked_up: dict[tuple[TableLookup, ...], _LookedUp] = {(): _LookedUp(shared, (owner,))}
        for part, edge in edges:
            grouped = part.grouped_filter(edge)
            below = _look_up(fjord, looked_up, edge.source, tables, past)
            last = below.last
            for operator in upstream_operators(edge, grouped, part.without_told()):
                last = fjord.add(f"{edge.name} {type(operator).__name__}", operator, [last], owner=edge.owner)
            outlets.append(_Outlet(part, edge, fjord.outlet(last), grouped, below.owners))
    return outlets + _add_told(fjord, parts, scans)


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """A stream's tuples with what has been looked up for them, and the owners of the operators that did it."""

    last: Placed
    owners: tuple[str, ...] = ()


def _look_up(
    fjord: Fjord, known: dict[tuple[TableLookup, ...], _LookedUp], source: Source, tables: Tables | None, past: str
) -> _LookedUp:
    """Add the lookups of a source, as far as no other source of the stream has them already."""
    for count, lookup in enumerate(source.lookups, start=1):
        if source.lookups[:count] not in known:
            below = known[source.lookups[: count - 1]]
            names = ", ".join(dict.fromkeys(each.name for each in relations_of(lookup.table)))
            owner = f"lookup {len(known)} of {source.stream}{past} in {names}"
            operator = Lookup(lookup, frozenset({source.stream}), tables)
            placed = fjord.add(owner, operator, [below.last], owner=owner)
            known[source.lookups[:count]] = _LookedUp(placed, (*below.owners, owner))
    return known[source.lookups]


def _add_told(fjord: Fjord, parts: Sequence[Part], scans: Scans) -> list[_Outlet]:
    """Add what takes up the aggregates that sensors made, and what proxies tell of missing samples."""
    readers: dict[tuple[str, str], list[tuple[Part, str, ToldAggregates]]] = {}
    for part in parts:
        for name, operator in (("ToldAggregates", part.told_aggregates()), ("ToldCounts", part.told_counts())):
            if operator is not None:
                edge = part.edges[0]
                readers.setdefault((edge.stream, scans.of(edge.source)[0]), []).append((part, name, operator))
    outlets = []
    for (stream, past), reading in sorted(readers.items()):
        _, scan = scans.of(reading[0][0].edges[0].source)
        columns = {column.name: column for part, _, _ in reading for column in part.fixed_columns}
        measures: dict[str, tuple[Measure, ...]] = {}
        for part, _, _ in reading:
            for field, wanted in part.told_measures.items():
                measures[field] = tuple(dict.fromkeys((*measures.get(field, ()), *wanted)))
        queue = PullQueue(_once(partial(scan.aggregates, stream, tuple(columns.values()), told_columns(measures))))
        owner = f"stream {stream}"
        shared = fjord.add(f"scan of {stream} aggregates{past}", Multiplex(), [queue], owner=owner)
        for part, name, operator in reading:
            (edge,) = part.edges
            last = fjord.add(f"{edge.name} {name}", operator, [shared], owner=edge.owner)
            outlets.append(_Outlet(part, edge, fjord.outlet(last), operator.grouped, (owner,)))
    return outlets


def _once(produce: Callable[[], Batch]) -> Callable[[], Batch | None]:
    """Return what a scan's pull queue calls: one batch, then nothing."""
    pending = [produce]
    return lambda: pending.pop()() if pending else None
