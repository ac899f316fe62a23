"""The side of a Fjord that keeps no state: whole queries next to the scans, from their tuples to their answers.

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import polars as pl
import pyarrow as pa

from cluster.fjord.stateless_host import StatelessHost
from cluster.plan.pipelines import Host
from cluster.spark.envelopes import RESULT_SCHEMA, pack_rows
from cluster.spark.running_plans import fragments_at
from cluster.spark.task_fjord import task_fjord
from cluster.spark.upstream_task import UpstreamTask


def run_stateless(task: UpstreamTask) -> Iterator[pa.RecordBatch]:
    """Answer one part of a micro-batch."""
    hosted = _hosted(task.plans_folder, task.epoch)
    found = hosted.process(task_fjord(task), max(task.watermarks_us.values(), default=0))
    if found:
        payload = pack_rows(pl.concat(found), compress=True)
        arrays = [pa.array([task.origin], pa.int32()), pa.array([payload], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, schema=RESULT_SCHEMA)


@lru_cache(maxsize=4)
def _hosted(plans_folder: str, epoch: int) -> StatelessHost:
    return StatelessHost(fragments_at(plans_folder, epoch, Host.STATELESS))
