"""The upstream side of a Fjord that keeps state: what runs next to the scans, and envelopes to the buckets.

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from cluster.fjord.control import Control
from cluster.fjord.exchange import sent_by
from cluster.spark.envelopes import CONTROL, ENVELOPE_SCHEMA, pack_control, pack_rows
from cluster.spark.task_fjord import task_fjord
from cluster.spark.upstream_task import UpstreamTask

COUNTING_BUCKET = 0
"""The bucket that hears what the operators of every part did, and passes it on with its answers."""


def run_upstream(task: UpstreamTask) -> Iterator[pa.RecordBatch]:
    """Run the stateless part of the plan over a part of a micro-batch; yield envelopes."""
    sent = sent_by(task_fjord(task), task.buckets)
    envelopes = [(bucket, edge, pack_rows(rows)) for bucket, edge, rows in sent.pieces]
    reached_us = max(task.watermarks_us.values(), default=0)
    counted = Control(
        task.epoch, task.previous_epoch, sent.watermarks_us, sent.failures, sent.counters, task.relations, reached_us
    )
    envelopes.append((COUNTING_BUCKET, CONTROL, pack_control(counted)))
    if task.origin == 0 or sent.failures:
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
