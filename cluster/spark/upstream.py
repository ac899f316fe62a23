"""What a task of a micro-batch runs: scans of its part of the streams, and the operators next to the scans.

    stateless   scans -> operators -> answers
    stateful    scans -> operators -> envelopes to the buckets

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from cluster.fjord.at_work import NOW
from cluster.fjord.exchange import MicroBatchControl, Sent, sent_by
from cluster.fjord.relation_tables import RelationTables
from cluster.fjord.stream_scan import RowsInFile, StreamScan
from cluster.fjord.upstream_dataflow import StatelessHost, UpstreamDataflow
from cluster.functions.calling import CALLS
from cluster.operators.source import History
from cluster.physical.nodes import Host
from cluster.spark.envelopes import (
    CONTROL,
    COUNTERS,
    COUNTING_BUCKET,
    ENVELOPE_SCHEMA,
    OUTPUT_SCHEMA,
    pack_control,
    pack_counters,
    pack_output,
    pack_rows,
    written_by_task,
)
from cluster.spark.reading.reads import StreamRead, UpstreamTask
from cluster.spark.worker_memory import end_unused_functions, fragments_at
from cluster.spark.worker_watch import note_too_large
from cluster.storage.table_folders import folder_of
from protocols.text.quantities import format_byte_size

NOTHING_STOPPED: Final[Mapping[str, str]] = MappingProxyType({})


def run_upstream(task: UpstreamTask, stopped: Mapping[str, str] = NOTHING_STOPPED) -> Iterator[pa.RecordBatch]:
    """Run the stateless part of the plan over a part of a micro-batch; yield envelopes.

    `stopped` says of owners of operators why they are not to be run.
    """
    sent = sent_by(_dataflow(task, stopped), task.buckets)
    NOW.rest()  # what follows is for all of them
    envelopes = [(bucket, edge, pack_rows(rows)) for bucket, edge, rows in sent.pieces]
    too_large = _too_large(sent, envelopes, task.limits.sent_bytes)
    if too_large:
        note_too_large(task.limits, too_large)
        envelopes = [each for each in envelopes if sent.owners[each[1]] not in too_large]
        watermarks = {edge: at for edge, at in sent.watermarks_us.items() if sent.owners[edge] not in too_large}
        lost_us = sent.lost_us | {owner: span for owner, span in sent.read_us.items() if owner in too_large}
        sent = replace(sent, watermarks_us=watermarks, failures={**sent.failures, **too_large}, lost_us=lost_us)
    envelopes.append((COUNTING_BUCKET, COUNTERS, pack_counters(sent.counters)))
    if task.origin == 0 or sent.failures:
        control = pack_control(
            MicroBatchControl(
                task.epoch,
                task.previous_epoch,
                sent.watermarks_us,
                sent.failures,
                task.relations,
                task.reached_us,
                task.begun_us,
                _passed_us(task),
                task.micro_batch,
                sent.lost_us,
            )
        )
        envelopes.extend((bucket, CONTROL, control) for bucket in range(task.buckets))
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([task.first_key + bucket for bucket, _, _ in envelopes], pa.int32()),
            pa.array([edge for _, edge, _ in envelopes], pa.string()),
            pa.array([task.origin] * len(envelopes), pa.int32()),
            pa.array([payload for _, _, payload in envelopes], pa.binary()),
        ],
        schema=ENVELOPE_SCHEMA,
    )


def _too_large(sent: Sent, envelopes: Iterable[tuple[int, str, bytes]], most: int) -> dict[str, str]:
    """Return the fragments that send more than a number of bytes to the buckets, and why they may not."""
    sizes: dict[str, int] = {}
    for _, edge, payload in envelopes:
        sizes[sent.owners[edge]] = sizes.get(sent.owners[edge], 0) + len(payload)
    return {
        fragment: f"its rows of one part of a micro-batch take {format_byte_size(size)}, and the limit is "
        f"{format_byte_size(most)} (filter first, or make its values shorter)"
        for fragment, size in sizes.items()
        if 0 < most < size
    }


def run_stateless(task: UpstreamTask, stopped: Mapping[str, str] = NOTHING_STOPPED) -> Iterator[pa.RecordBatch]:
    """Run queries without state over a part of a micro-batch; yield its output. `stopped` is as above."""
    host = _stateless_host(task.plans_folder, task.epoch, task.gone)
    output = host.process(_dataflow(task, stopped), task.reached_us)
    NOW.rest()  # what follows is for all of them
    packed = pack_output(output, written_by_task(output, task.answers_folder, task.answers_returned))
    if packed is not None:
        row = {"bucket": task.origin, **asdict(packed)}
        yield pa.RecordBatch.from_pylist([row], schema=OUTPUT_SCHEMA)


def _passed_us(task: UpstreamTask) -> dict[str, int]:
    """Return the low watermarks of the streams that are read live."""
    live = (read for read in task.reads if read.backfill_epoch is None)
    return {read.stream: read.watermark_us for read in live if read.watermark_us is not None}


@lru_cache(maxsize=4)
def _stateless_host(plans_folder: str, epoch: int, gone: tuple[str, ...]) -> StatelessHost:
    return StatelessHost(fragments_at(plans_folder, epoch, Host.STATELESS, gone))


def _dataflow(task: UpstreamTask, stopped: Mapping[str, str]) -> UpstreamDataflow:
    """Return the dataflow next to the scans in one part of a micro-batch."""
    CALLS.use(task.functions)
    end_unused_functions(task.plans_folder, task.epoch)
    tables = RelationTables(
        task.relations_folder, task.relations, buckets=task.buckets, memory_bytes=task.relation_memory_bytes
    )
    fragments = fragments_at(task.plans_folder, task.epoch, task.host, task.gone)
    return UpstreamDataflow(fragments, _Scans(task).scan, tables, stopped)


class _Scans:
    """The scans of one part of a micro-batch; equal ones are made once."""

    def __init__(self, task: UpstreamTask) -> None:
        self._folder = task.streams_folder
        self._reads = {(read.backfill_epoch, read.stream): read for read in task.reads}
        self._made: dict[tuple[int | None, str, int | None], StreamScan] = {}

    def scan(self, stream: str, history: History | None) -> StreamScan:
        """Return the scan of a stream: of what is new, or of history while a query with history reads that."""
        read = None if history is None else self._reads.get((history.epoch, stream))
        if read is None or history is None or read.between_us is None:
            return self._once(self._reads[None, stream], None)
        return self._once(read, read.between_us[0] if history.begins_us is None else history.begins_us)

    def _once(self, read: StreamRead, begins_us: int | None) -> StreamScan:
        key = (read.backfill_epoch, read.stream, begins_us)
        if key not in self._made:
            self._made[key] = self._new(read, begins_us)
        return self._made[key]

    def _new(self, read: StreamRead, begins_us: int | None) -> StreamScan:
        rows = [RowsInFile(f"{self._folder}/{folder_of(read.stream)}/{path}") for path, _ in read.files]
        if begins_us is None or read.between_us is None:
            return StreamScan(rows, read.watermark_us, between_us=read.between_us)
        # A query may read one stream twice, and a shorter history the second time.
        between_us = max(read.between_us[0], begins_us), read.between_us[1]
        suffix = f" since {begins_us} for epoch {read.backfill_epoch}"
        return StreamScan(rows, read.watermark_us, between_us=between_us, begins_us=begins_us, suffix=suffix)
