"""The upstream Fjord: shared scan, grouped filters, stateless operators, over one part of a micro-batch.

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.batch import ALWAYS, END, START, Batch
from cluster.fjord.compilation import upstream_operators
from cluster.fjord.counters import counters_of
from cluster.fjord.edges import Edge, empty_rows, stored_columns
from cluster.fjord.graph import Fjord
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.queues import PullQueue, PushQueue
from cluster.language.algebra import Schema
from cluster.plan.epoch import PlanFiles
from cluster.spark.envelopes import CONTROL, ENVELOPE_SCHEMA, Control, pack_control, pack_rows
from cluster.spark.placement import Part, parts_of, routed
from protocols.batches import DEFAULT_RATE_COLUMN

COUNTING_BUCKET = 0
"""The bucket that hears what the operators of every part did, and passes it on with its answers."""


class UpstreamTask(msgspec.Struct, frozen=True):
    """One part of a micro-batch.

    Parameters
    ----------
    plans_folder, streams_folder
        Where plans and stream tables are.
    epoch, previous_epoch
        The plan to run, and that of the micro-batch before.
    buckets
        How many buckets there are downstream.
    origin
        Number of this part; part 0 also tells every bucket of the micro-batch.
    files
        (stream, path below its table) of the Parquet files to read, in the order of their versions.
    watermarks_us
        By stream: its low watermark at the end of the micro-batch.
    """

    plans_folder: str
    streams_folder: str
    epoch: int
    previous_epoch: int
    buckets: int
    origin: int
    files: tuple[tuple[str, str], ...]
    watermarks_us: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Outlet:
    """What leaves one edge of one part."""

    part: Part
    edge: Edge
    queue: PushQueue
    grouped: GroupedFilter


def run_upstream(task: UpstreamTask) -> Iterator[pa.RecordBatch]:
    """Run the stateless part of the plan over a part of a micro-batch; yield envelopes."""
    parts = _read_parts(task.plans_folder, task.epoch)
    fjord, outlets = _build(parts, lambda stream, schema: _scan(task, stream, schema))
    fjord.run()
    watermarks: dict[str, int] = {}
    envelopes: list[tuple[int, str, bytes]] = []
    failures = {owner: str(error) for owner, error in fjord.failures.items()}
    for outlet in outlets:
        edge = outlet.edge
        if edge.owner in fjord.failures:
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
    counted = Control(task.epoch, task.previous_epoch, watermarks, failures, counters_of(fjord.operators))
    envelopes.append((COUNTING_BUCKET, CONTROL, pack_control(counted)))
    if task.origin == 0 or failures:
        control = pack_control(Control(task.epoch, task.previous_epoch, watermarks, failures))
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


def _build(
    parts: Sequence[Part], scan: Callable[[str, Schema], Callable[[], Batch | None]]
) -> tuple[Fjord, list[_Outlet]]:
    """Build the upstream Fjord of a plan: one scan per stream, multiplexed to all edges that read it."""
    fjord = Fjord()
    readers: dict[str, list[tuple[Part, Edge]]] = {}
    for part in parts:
        for edge in part.edges:
            readers.setdefault(edge.stream, []).append((part, edge))
    outlets = []
    for stream, edges in sorted(readers.items()):
        columns = {column.name: column for _, edge in edges for column in stored_columns(edge.source)}
        shared = fjord.add(
            f"scan of {stream}",
            Multiplex(),
            [PullQueue(scan(stream, tuple(columns.values())))],
            owner=f"stream {stream}",
        )
        for part, edge in edges:
            grouped = part.grouped_filter(edge)
            last = shared
            for operator in upstream_operators(edge, grouped):
                last = fjord.add(f"{edge.name} {type(operator).__name__}", operator, [last], owner=edge.owner)
            outlets.append(_Outlet(part, edge, fjord.outlet(last), grouped))
    return fjord, outlets


def _scan(task: UpstreamTask, stream: str, schema: Schema) -> Callable[[], Batch | None]:
    """Return what the scan's pull queue calls: the part's rows of a stream as one batch, then nothing."""
    columns = [DEFAULT_RATE_COLUMN, *(column.name for column in schema)]
    none = empty_rows(schema).with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))
    pending = [f"{task.streams_folder}/{stream}/{path}" for name, path in task.files if name == stream]
    watermark_us = task.watermarks_us.get(stream, ALWAYS)
    done = False

    def produce() -> Batch | None:
        nonlocal done
        if done:
            return None
        done = True
        if not pending:
            return Batch(none, watermark_us)
        rows = pl.concat([pl.read_parquet(path, columns=[START, *columns]) for path in pending])
        rows = rows.select(START, (pl.col(START) + 1).alias(END), *columns)
        return Batch(rows if rows[START].is_sorted() else rows.sort(START, maintain_order=True), watermark_us)

    return produce


@lru_cache(maxsize=4)
def _read_parts(folder: str, epoch: int) -> tuple[Part, ...]:
    return parts_of(PlanFiles(Path(folder)).read(epoch))
