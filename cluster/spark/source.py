"""Fjord's source in Spark: reads stream tables version by version, and runs the operators next to the scans.

**Syncs what an offset names before Spark logs the offset.**

Each version is synced when it is committed, but it is visible a moment before. If an offset named it then, the offset
could be on disk after a power cut and the version not: another version would get its number, and would count as read.

These operators run inside `read`, which saves a Python stage per micro-batch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from cluster.fjord.overruns import WorkLimits
from cluster.functions.allowed import FunctionRules
from cluster.physical.nodes import ANSWERS_RETURNED, Host, PhysicalPlan, may_be_written_by_tasks, unbegun_streams
from cluster.physical.plan_files import PlanFiles
from cluster.plan.names_read import MEMORY_BYTES
from cluster.spark.envelopes import ENVELOPE_DDL, OUTPUT_DDL
from cluster.spark.offsets import Offset, Reader, begins_between, from_spark, name_of, next_offset
from cluster.spark.reading.backfill import Reached, backfill_reached, backfill_reads
from cluster.spark.reading.live import Beginnings, LiveReads, rows_at_once
from cluster.spark.reading.reads import TableVersions, UpstreamTask, divided
from cluster.spark.worker_memory import WORKER_MEMORY
from cluster.spark.worker_watch import NotedOverruns
from cluster.storage.archived_log import LOG, is_local
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.synced_files import sync
from cluster.storage.table_folders import folder_of, relation_folder


def sync_named(start: Offset, end: Offset, streams: str, plans: str, relations: str) -> None:
    """Sync what an offset names and the one before it did not.

    Parameters
    ----------
    start, end
        The offset before, and the one to come.
    streams, plans, relations
        Folders of stream tables, plan files, and versions of relations.

    Raises
    ------
    OSError
        If something cannot be synced.
    """
    if start == end:
        return
    sync((path for path in _commits(start, end, streams)), missing_ok=True)
    sync((path for path in _folders(start, end, streams, plans, relations)), missing_ok=True)


def _commits(start: Offset, end: Offset, streams: str) -> Iterator[Path]:
    for stream, version in end.versions.items():
        # A commit is synced before the next one is made: what is further back is on disk, in the archive even.
        first = max(start.versions.get(stream, 0) + 1, version - 1)
        if is_local(streams):
            yield from (
                Path(streams, folder_of(stream), LOG, f"{each:020d}.json") for each in range(first, version + 1)
            )


def _folders(start: Offset, end: Offset, streams: str, plans: str, relations: str) -> Iterator[Path]:
    for commit in _commits(start, end, streams):
        yield commit.parent
    if start.epoch != end.epoch:
        yield Path(plans)
    for identity, version in end.relations.items():
        if start.relations.get(identity) != version:
            yield Path(relations, relation_folder(identity))


SOURCE_NAME = "fjord"
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Java runs in the process of a source."""
AWAITED_SECONDS, LOOK_SECONDS = 0.015, 0.002
"""How long a source that has been idle waits for something to do, and how often it looks at local files: that costs a
few calls of the operating system, and being asked by Java far more. Elsewhere it costs requests: it looks once."""
RESTING_AFTER_SECONDS, RESTING_TIMES = 10.0, 6
"""After how long without anything to do it waits, and lets pass between two looks, how many times as long: otherwise a
cluster without streams would use a sixth of a processor."""


class SourceOptions(msgspec.Struct, frozen=True):
    """Settings of the source, passed through Spark as text."""

    streams_folder: str
    plans_folder: str
    buckets: int
    max_partitions: int
    max_rows: int
    relations_folder: str = ""
    relation_memory_bytes: int = MEMORY_BYTES
    host: Host = Host.STATEFUL
    """Which of the two Spark queries reads."""
    first_key: int = 0
    """The key of bucket 0 in Spark; see :mod:`cluster.spark.bucket_keys`."""
    history_rows: int = 500_000
    """About how many rows of history a micro-batch reads, for all queries together that backfill."""
    answers_folder: str = ""
    """Where tasks write their answers if there are many; empty for nowhere."""
    answers_returned: int = ANSWERS_RETURNED
    """How many answers a task returns without writing them."""
    functions: FunctionRules = FunctionRules()
    """What functions of users may be and take."""
    awaited_seconds: float = AWAITED_SECONDS
    """How long it waits for something to do once it has been idle."""
    limits: WorkLimits = WorkLimits()
    """What a query may take of a worker."""
    gone: tuple[str, ...] = ()
    """Identities of queries that are not computed any more, though plans of earlier epochs have them."""


class FjordSource(DataSource):
    """The data source as Spark knows it; see :class:`SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SOURCE_NAME

    def schema(self) -> str:
        """Return the columns of envelopes, or those of output."""
        return OUTPUT_DDL if _options_of(self.options).host is Host.STATELESS else ENVELOPE_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        """Return the reader."""
        end_quietly_without_java()
        return FjordReader(_options_of(self.options))


def end_quietly_without_java() -> None:
    """Make this process end silently once Java has ended, if it is one of Spark's processes for a source.

    PySpark tries to report to Java that there is no Java, fails, tries again, and prints three tracebacks: on every
    Ctrl-C that comes while a micro-batch is planned.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != RUNNER:
        return
    show = sys.excepthook

    def show_others(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, BrokenPipeError | ConnectionResetError):
            show(kind, error, trace)

    sys.excepthook = show_others


def _options_of(options: Mapping[str, str]) -> SourceOptions:
    return msgspec.json.decode(options["fjord"], type=SourceOptions)


class _Task(InputPartition):
    def __init__(self, task: UpstreamTask) -> None:
        self.payload = msgspec.msgpack.encode(task)


class FjordReader(DataSourceStreamReader):
    """Decides what a micro-batch reads, on the driver, and reads it, on the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._plans = PlanFiles(Path(options.plans_folder))
        self._known_plans: dict[int, PhysicalPlan] = {}
        self._unchanged_since: dict[int, int] = {}
        self._tables = TableVersions(options.streams_folder)
        self._live = LiveReads(options.host, self._tables)
        self._overruns = NotedOverruns(options.limits.folder)
        self._beginnings = Beginnings(self._tables)
        self._reader = Reader(
            plan=self._plan,
            latest=self._tables.newest,
            rows=self._tables.rows,
            relation=self._newest_relation,
        )
        self._look_seconds = LOOK_SECONDS if is_local(options.streams_folder) else options.awaited_seconds
        self._idle_at: Offset | None = None
        """Where there was nothing to do when it was asked last."""
        self._idle_since = 0.0
        """When it was asked there first, in seconds of a monotonic clock."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """Return the first position: no plan, nothing read."""
        return Offset().to_spark()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's interface
        """Return the bound on the rows of one micro-batch."""
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """Return where the next micro-batch ends; see :func:`next_offset`. Waits a little if there is nothing to do."""
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._options.max_rows
        begin = from_spark(start)
        end = self._end(begin, max_rows)
        if end == begin == self._idle_at:  # Spark has known since the last time that there is nothing to do
            times = RESTING_TIMES if time.monotonic() - self._idle_since >= RESTING_AFTER_SECONDS else 1
            until = time.monotonic() + times * self._options.awaited_seconds
            while end == begin and time.monotonic() < until:
                time.sleep(times * self._look_seconds)
                end = self._end(begin, max_rows)
        elif end == begin:
            self._idle_since = time.monotonic()
        self._idle_at = begin if end == begin else None
        return end.to_spark()

    def _end(self, begin: Offset, max_rows: int | None) -> Offset:
        end = next_offset(begin, self._reader, max_rows=max_rows)
        if max_rows is not None and end != begin:  # which plan it is does not depend on how many rows it reads
            rows = rows_at_once(self._plan(end.epoch), max_rows, self._overruns.fragments())
            end = next_offset(begin, self._reader, max_rows=rows)
        history = self._backfill_reached(begin, end, bounded=max_rows is not None)
        sync_named(begin, end, self._options.streams_folder, self._options.plans_folder, self._options.relations_folder)
        return msgspec.structs.replace(end, history=history)

    def _newest_relation(self, identity: str) -> int:
        return RelationVersions.below(self._options.relations_folder, identity).latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks that read what lies between two offsets."""
        first, last = from_spark(start), from_spark(end)
        if first == last:
            return []
        plan = self._hosted(last.epoch)
        begins = begins_between(first, last, self._plan)
        reads = [
            *self._live.between(plan, begins, last.versions),
            *backfill_reads(first, last, plan, self._tables, to_the_watermark=self._options.host is Host.STATELESS),
        ]
        if self._options.host is Host.STATELESS and not any(read.files for read in reads):
            return []  # no bucket waits for how far the streams have come
        begun_us = self._beginnings.between(unbegun_streams(plan.fragments), begins, last.versions)
        micro_batch = name_of(self._options.host, first, last)
        tasks_write = all(map(may_be_written_by_tasks, plan.fragments))
        return [
            _Task(
                UpstreamTask(
                    plans_folder=self._options.plans_folder,
                    streams_folder=self._options.streams_folder,
                    epoch=self._unchanged_since[last.epoch],
                    previous_epoch=self._unchanged_since.get(first.epoch, first.epoch),
                    buckets=self._options.buckets,
                    origin=origin,
                    reads=part,
                    relations_folder=self._options.relations_folder,
                    relations=dict(last.relations),
                    relation_memory_bytes=self._options.relation_memory_bytes,
                    host=self._options.host,
                    first_key=self._options.first_key,
                    answers_folder=self._options.answers_folder if tasks_write else "",
                    answers_returned=self._options.answers_returned,
                    functions=self._options.functions,
                    begun_us=begun_us,
                    micro_batch=micro_batch,
                    limits=self._options.limits,
                    gone=self._options.gone,
                )
            )
            for origin, part in enumerate(divided(reads, self._options.max_partitions))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run what needs no state over one partition; yield envelopes, or output if the queries need no buckets."""
        from cluster.spark import upstream  # noqa: PLC0415 - processes that only plan do not load operators
        from cluster.spark.worker_watch import is_run_again, watched  # noqa: PLC0415 - as above

        assert isinstance(partition, _Task)  # noqa: S101 - made by partitions() above
        task = msgspec.msgpack.decode(partition.payload, type=UpstreamTask)
        run = upstream.run_stateless if task.host is Host.STATELESS else upstream.run_upstream
        with watched(task.limits, task.micro_batch, again=is_run_again()) as stopped:
            yield from run(task, stopped)
        WORKER_MEMORY.keep((task.epoch, *sorted(task.relations.items())))

    def _backfill_reached(self, start: Offset, end: Offset, *, bounded: bool) -> dict[int, Reached]:
        plan = self._plan(end.epoch)
        if plan is None or (start.epoch == end.epoch and not start.history):
            return {}
        begins = begins_between(start, end, self._plan)
        live = sum(
            self._tables.rows(stream, version)
            for stream in plan.streams
            for version in range(begins[stream] + 1, end.versions[stream] + 1)
        )
        # A backfill that is no faster than the stream never ends.
        rows = max(self._options.history_rows, 2 * live)
        return backfill_reached(start, end, plan, self._tables, max_rows=rows if bounded else None)

    def commit(self, end: dict[str, Any]) -> None:
        """Forget what no later micro-batch needs."""
        done = from_spark(end)
        self._known_plans = {epoch: plan for epoch, plan in self._known_plans.items() if epoch >= done.epoch}
        self._unchanged_since = {epoch: since for epoch, since in self._unchanged_since.items() if epoch >= done.epoch}
        self._live.forget(done.versions)
        self._tables.forget(done.versions)

    def _plan(self, epoch: int) -> PhysicalPlan | None:
        return self._hosted(epoch) if epoch in self._known_plans or self._plans.exists(epoch) else None

    def _hosted(self, epoch: int) -> PhysicalPlan:
        if epoch not in self._known_plans:
            plan = self._plans.read(epoch).hosted(self._options.host).without(frozenset(self._options.gone))
            self._known_plans[epoch] = plan
            before = self._known_plans.get(epoch - 1)
            # Workers go on with what they have built for a plan until something changes for this host.
            same = before is not None and before.fragments == plan.fragments
            self._unchanged_since[epoch] = self._unchanged_since[epoch - 1] if same else epoch
        return self._known_plans[epoch]
