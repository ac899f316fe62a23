"""The upstream Fjord: shared scan, grouped filters, stateless operators, over one part of a micro-batch.

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.batch import Batch
from cluster.fjord.compilation import EXCEPTED, upstream_operators
from cluster.fjord.counters import counters_of
from cluster.fjord.edges import SAMPLES, Edge, stored_columns
from cluster.fjord.graph import Fjord, Placed
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.operators.lookup import Lookup
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.operators.told_aggregates import ToldAggregates, told_columns
from cluster.fjord.queues import PullQueue, PushQueue
from cluster.fjord.relation_tables import RelationTables
from cluster.language.algebra import Source, TableLookup
from cluster.plan.epoch import PlanFiles
from cluster.plan.relations_read import relations_of
from cluster.spark.envelopes import CONTROL, ENVELOPE_SCHEMA, Control, pack_control, pack_rows
from cluster.spark.placement import Part, parts_of, routed
from cluster.spark.scans import Scans
from cluster.spark.upstream_task import UpstreamTask
from protocols.programs import Measure

COUNTING_BUCKET = 0
"""The bucket that hears what the operators of every part did, and passes it on with its answers."""


@dataclass(frozen=True, slots=True)
class _Outlet:
    """What leaves one edge of one part; `behind` are the owners of what it shares with others."""

    part: Part
    edge: Edge
    queue: PushQueue
    grouped: GroupedFilter
    behind: tuple[str, ...] = ()


def run_upstream(task: UpstreamTask) -> Iterator[pa.RecordBatch]:
    """Run the stateless part of the plan over a part of a micro-batch; yield envelopes."""
    parts = _read_parts(task.plans_folder, task.epoch)
    tables = RelationTables(
        task.relations_folder, task.relations, buckets=task.buckets, memory_bytes=task.relation_memory_bytes
    )
    scans = Scans(task.streams_folder, task.files, task.watermarks_us, task.past)
    fjord, outlets = _build(parts, scans, tables)
    fjord.run()
    watermarks: dict[str, int] = {}
    envelopes: list[tuple[int, str, bytes]] = []
    failures = {owner: str(error) for owner, error in fjord.failures.items()}
    complaints = {owner: str(error) for owner, error in fjord.complaints.items()}
    for outlet in outlets:
        edge = outlet.edge
        failures.update((edge.owner, str(fjord.failures[each])) for each in outlet.behind if each in fjord.failures)
        complaints.update((edge.owner, complaints[each]) for each in outlet.behind if each in complaints)
        if edge.owner in failures:
            continue
        pieces = []
        while (batch := outlet.queue.get()) is not None:
            pieces.append(batch.rows)
            watermarks[edge.name] = batch.watermark_us
        failures |= {
            listener.query.identity: outlet.grouped.failures[listener.group]
            for listener in outlet.part.listeners
            if listener.group in outlet.grouped.failures
        }
        rows = pl.concat(pieces) if pieces else None
        if rows is not None and rows.height:
            pieces_by_bucket = routed(edge, rows, task.buckets)
            envelopes.extend((bucket, edge.name, pack_rows(piece)) for bucket, piece in pieces_by_bucket.items())
    failures = complaints | failures
    reached_us = max(task.watermarks_us.values(), default=0)
    counted = Control(
        task.epoch, task.previous_epoch, watermarks, failures, counters_of(fjord.operators), task.relations, reached_us
    )
    envelopes.append((COUNTING_BUCKET, CONTROL, pack_control(counted)))
    if task.origin == 0 or failures:
        quiet = msgspec.structs.replace(counted, counters={})
        control = pack_control(quiet)
        envelopes.extend((bucket, CONTROL, control) for bucket in range(task.buckets) if bucket != COUNTING_BUCKET)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([bucket for bucket, _, _ in envelopes], pa.int32()),
            pa.array([edge for _, edge, _ in envelopes], pa.string()),
            pa.array([task.origin] * len(envelopes), pa.int32()),
            pa.array([payload for _, _, payload in envelopes], pa.binary()),
        ],
        schema=ENVELOPE_SCHEMA,
    )


def _build(parts: Sequence[Part], scans: Scans, tables: RelationTables) -> tuple[Fjord, list[_Outlet]]:
    """Build the upstream Fjord of a plan: each part of a stream is scanned once, multiplexed to all edges that read it.

    Edges with the same lookups share these too. Such parts are samples, events of one form, aggregates of sensors.
    """
    fjord = Fjord()
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
        shared = fjord.add(name, Multiplex(), [queue], owner=f"stream {stream}")
        looked_up: dict[tuple[TableLookup, ...], _LookedUp] = {(): _LookedUp(shared)}
        for part, edge in edges:
            grouped = part.grouped_filter(edge)
            below = _look_up(fjord, looked_up, edge.source, tables, past)
            last = below.last
            for operator in upstream_operators(edge, grouped, part.without_told()):
                last = fjord.add(f"{edge.name} {type(operator).__name__}", operator, [last], owner=edge.owner)
            outlets.append(_Outlet(part, edge, fjord.outlet(last), grouped, below.owners))
    outlets += _add_told(fjord, parts, scans)
    return fjord, outlets


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """A stream's tuples with what has been looked up for them, and the owners of the operators that did it."""

    last: Placed
    owners: tuple[str, ...] = ()


def _look_up(
    fjord: Fjord, known: dict[tuple[TableLookup, ...], _LookedUp], source: Source, tables: RelationTables, past: str
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
        shared = fjord.add(f"scan of {stream} aggregates{past}", Multiplex(), [queue], owner=f"stream {stream}")
        for part, name, operator in reading:
            (edge,) = part.edges
            last = fjord.add(f"{edge.name} {name}", operator, [shared], owner=edge.owner)
            outlets.append(_Outlet(part, edge, fjord.outlet(last), operator.grouped))
    return outlets


def _once(produce: Callable[[], Batch]) -> Callable[[], Batch | None]:
    """Return what a scan's pull queue calls: one batch, then nothing."""
    pending = [produce]
    return lambda: pending.pop()() if pending else None


@lru_cache(maxsize=4)
def _read_parts(folder: str, epoch: int) -> tuple[Part, ...]:
    return parts_of(PlanFiles(Path(folder)).read(epoch))
