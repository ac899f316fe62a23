"""Runs the side of a Fjord that keeps no state, without Spark: one micro-batch over everything stored so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl
import pyarrow as pa
from msgspec.structs import replace

from cluster.fjord.batch import ALWAYS
from cluster.fjord.counters import Counters
from cluster.plan.hosts import Host
from cluster.spark.envelopes import RESULT_SCHEMA
from cluster.spark.gathering import gathered
from cluster.spark.stateless import run_stateless
from cluster.spark.upstream_task import UpstreamTask
from cluster.storage.stream_tables import StreamTable


def slices(
    task: UpstreamTask, tables: Mapping[str, StreamTable], passed_us: Mapping[str, int], parts: int
) -> list[UpstreamTask]:
    """Return what the stateless side is told where the other one is told `task`.

    Parameters
    ----------
    task
        A part of the micro-batch.
    tables
        The streams.
    passed_us
        By stream: its watermark at the end of the micro-batch before.
    parts
        Into how many parts the files are dealt.
    """
    files = [
        (stream, file.path)
        for stream, table in tables.items()
        for version in range(1, table.version + 1)
        for file in table.log.read(version).files
    ]
    between = {
        stream: (passed_us.get(stream, ALWAYS), task.watermarks_us.get(stream, ALWAYS)) for stream in tables
    }  # fmt: skip
    stateless = replace(task, host=Host.STATELESS, between_us=between)
    return [replace(stateless, origin=origin, files=tuple(files[origin::parts])) for origin in range(parts)]


def answered(tasks: Iterable[UpstreamTask]) -> tuple[pl.DataFrame, Counters]:
    """Return what tasks answer, and what their operators did."""
    return gathered(pa.Table.from_batches([batch for task in tasks for batch in run_stateless(task)], RESULT_SCHEMA))
