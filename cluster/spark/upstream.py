"""The upstream Fjord: shared scan, then every query's stateless operators, over one part of a micro-batch.

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa

from cluster.fjord.batch import ALWAYS, END, START, Batch
from cluster.fjord.compilation import upstream_operators
from cluster.fjord.edges import Edge, edges_of, empty_rows, stored_columns
from cluster.fjord.graph import Fjord
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.queues import PullQueue, PushQueue
from cluster.language.algebra import Schema
from cluster.plan.epoch import Plan, PlanFiles
from cluster.spark.envelopes import (
    CONTROL,
    ENVELOPE_SCHEMA,
    Control,
    bucket_of,
    pack_control,
    pack_rows,
    split_by_bucket,
)
from protocols.batches import DEFAULT_RATE_COLUMN


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


def run_upstream(task: UpstreamTask) -> Iterator[pa.RecordBatch]:
    """Run the stateless part of the plan over a part of a micro-batch; yield envelopes."""
    plan = _read_plan(task.plans_folder, task.epoch)
    fjord, outlets = _build(plan, lambda stream, schema: _scan(task, stream, schema))
    fjord.run()
    watermarks: dict[str, int] = {}
    envelopes: list[tuple[int, str, bytes]] = []
    for edge, outlet in outlets:
        if edge.owner in fjord.failures:
            continue
        pieces = []
        while (batch := outlet.get()) is not None:
            pieces.append(batch.rows)
            watermarks[edge.name] = batch.watermark_us
        rows = pl.concat(pieces) if pieces else None
        if rows is None or rows.height == 0:
            continue
        if edge.partition_by:
            parts = split_by_bucket(rows, edge.partition_by, task.buckets)
            envelopes.extend((bucket, edge.name, pack_rows(part)) for bucket, part in parts.items())
        else:
            envelopes.append((bucket_of(edge.owner, task.buckets), edge.name, pack_rows(rows)))
    failures = {owner: str(error) for owner, error in fjord.failures.items()}
    if task.origin == 0 or failures:
        control = pack_control(Control(task.epoch, task.previous_epoch, watermarks, failures))
        envelopes.extend((bucket, CONTROL, control) for bucket in range(task.buckets))
    if envelopes:
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
    plan: Plan, scan: Callable[[str, Schema], Callable[[], Batch | None]]
) -> tuple[Fjord, list[tuple[Edge, PushQueue]]]:
    """Build the upstream Fjord of a plan: one scan per stream, multiplexed to all edges that read it."""
    fjord = Fjord()
    edges = [edge for query in plan.queries for edge in edges_of(query)]
    outlets = []
    for stream in sorted({edge.stream for edge in edges}):
        readers = [edge for edge in edges if edge.stream == stream]
        columns = {column.name: column for edge in readers for column in stored_columns(edge.source)}
        shared = fjord.add(
            f"scan of {stream}",
            Multiplex(),
            [PullQueue(scan(stream, tuple(columns.values())))],
            owner=f"stream {stream}",
        )
        for edge in readers:
            last = shared
            for operator in upstream_operators(edge):
                last = fjord.add(f"{edge.name} {type(operator).__name__}", operator, [last], owner=edge.owner)
            outlets.append((edge, fjord.outlet(last)))
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
        rows = rows.select(START, (pl.col(START) + 1).alias(END), *columns).sort(START, maintain_order=True)
        return Batch(rows, watermark_us)

    return produce


@lru_cache(maxsize=4)
def _read_plan(folder: str, epoch: int) -> Plan:
    return PlanFiles(Path(folder)).read(epoch)
