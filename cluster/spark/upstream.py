"""The upstream side of a Fjord that keeps state: what runs next to the scans, and envelopes to the buckets.

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from cluster.spark.envelopes import CONTROL, ENVELOPE_SCHEMA, Control, pack_control, pack_rows
from cluster.spark.placement import parts_at, routed
from cluster.spark.upstream_fjord import UpstreamFjord
from cluster.spark.upstream_task import UpstreamTask

COUNTING_BUCKET = 0
"""The bucket that hears what the operators of every part did, and passes it on with its answers."""


def run_upstream(task: UpstreamTask) -> Iterator[pa.RecordBatch]:
    """Run the stateless part of the plan over a part of a micro-batch; yield envelopes."""
    fjord = UpstreamFjord(parts_at(task.plans_folder, task.epoch, task.host), task)
    watermarks: dict[str, int] = {}
    envelopes: list[tuple[int, str, bytes]] = []
    for emitted in fjord.run():
        edge = emitted.edge
        if emitted.watermark_us is not None:
            watermarks[edge.name] = emitted.watermark_us
        if emitted.rows is not None and emitted.rows.height:
            pieces = routed(edge, emitted.rows, task.buckets)
            envelopes.extend((bucket, edge.name, pack_rows(piece)) for bucket, piece in pieces.items())
    reached_us = max(task.watermarks_us.values(), default=0)
    counted = Control(
        task.epoch, task.previous_epoch, watermarks, fjord.failures, fjord.counters, task.relations, reached_us
    )
    envelopes.append((COUNTING_BUCKET, CONTROL, pack_control(counted)))
    if task.origin == 0 or fjord.failures:
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
