"""The side of a Fjord that keeps no state: whole queries next to the scans, from their tuples to their answers.

Runs inside Spark's tasks; needs nothing of Spark itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import polars as pl
import pyarrow as pa

from cluster.fjord.counters import Counters, Totals, added
from cluster.plan.hosts import Host
from cluster.spark.answers import COUNT_EVERY_SECONDS, Answers, said_counters
from cluster.spark.envelopes import RESULT_SCHEMA, pack_rows
from cluster.spark.placement import parts_at
from cluster.spark.upstream_fjord import Emitted, UpstreamFjord
from cluster.spark.upstream_task import UpstreamTask


@dataclass(slots=True)
class _Hosted:
    """What a worker keeps of a plan between micro-batches: nothing that an answer depends on."""

    answers: dict[str, Answers]
    """By identity of a part."""
    counted: Counters = field(default_factory=dict)
    """What operators did, not yet told."""
    told_at: float = field(default_factory=time.monotonic)

    def rows_of(self, emitted: Emitted) -> list[pl.DataFrame]:
        """Return the answers of a part."""
        if emitted.rows is None or not emitted.rows.height:
            return []
        part, rows = emitted.part.identity, emitted.rows.height
        began = time.perf_counter()
        found = list(self.answers[part].of(emitted.rows))
        did = Totals(part, transitions=1, rows_in=rows, rows_out=rows, seconds=time.perf_counter() - began)
        self.counted = added(self.counted, {f"{part}/1 Answers": did})
        return found

    def counters(self) -> list[pl.DataFrame]:
        """Say now and then what operators did."""
        if time.monotonic() - self.told_at < COUNT_EVERY_SECONDS:
            return []
        counted, self.counted, self.told_at = self.counted, {}, time.monotonic()
        return [said_counters(counted)]


def run_stateless(task: UpstreamTask) -> Iterator[pa.RecordBatch]:
    """Answer one part of a micro-batch."""
    hosted = _hosted(task.plans_folder, task.epoch)
    fjord = UpstreamFjord(parts_at(task.plans_folder, task.epoch, Host.STATELESS), task)
    found = [answer for emitted in fjord.run() for answer in hosted.rows_of(emitted)]
    hosted.counted = added(hosted.counted, fjord.counters)
    now_us = max(task.watermarks_us.values(), default=0)
    for answers in hosted.answers.values():
        found.extend(answers.errors({}, fjord.failures, bucket=0, buckets=1, at_us=now_us))
    found.extend(hosted.counters())
    if found:
        payload = pack_rows(pl.concat(found), compress=True)
        arrays = [pa.array([task.origin], pa.int32()), pa.array([payload], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, schema=RESULT_SCHEMA)


@lru_cache(maxsize=4)
def _hosted(plans_folder: str, epoch: int) -> _Hosted:
    return _Hosted({part.identity: Answers(part) for part in parts_at(plans_folder, epoch, Host.STATELESS)})
