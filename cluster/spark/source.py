"""The Fjord's source in Spark: reads stream tables version by version and runs the upstream Fjord where it reads.

Running the stateless operators inside `read` saves a Python stage per micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from cluster.plan.epoch import Plan, PlanFiles
from cluster.plan.relations_read import MEMORY_BYTES
from cluster.spark.catching_up import PastRead, Reached, caught_up, past_reads
from cluster.spark.envelopes import ENVELOPE_DDL
from cluster.spark.offsets import Offset, Reader, begins_between, from_spark, next_offset
from cluster.spark.upstream_task import UpstreamTask
from cluster.spark.worker_memory import WORKER_MEMORY
from cluster.storage.commit_log import Commit, CommitLog
from cluster.storage.relation_versions import RelationVersions
from cluster.storage.stored_files import StoredFiles
from cluster.storage.stream_tables import watermark_at, watermark_of

_Whose = TypeVar("_Whose", str, int)
SOURCE_NAME = "fjord"
ROWS_PER_PARTITION = 250_000
"""Fewer rows are not worth a Python task of their own (design.md section 6: about 0.2 s each)."""


class SourceOptions(msgspec.Struct, frozen=True):
    """What the source has to know, passed through Spark as text."""

    streams_folder: str
    plans_folder: str
    buckets: int
    max_partitions: int
    max_rows: int
    relations_folder: str = ""
    relation_memory_bytes: int = MEMORY_BYTES
    history_rows: int = 500_000
    """About how many rows of history a micro-batch reads, for all queries that look back together."""


class FjordSource(DataSource):
    """Spark's handle on the source; see :class:`SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SOURCE_NAME

    def schema(self) -> str:
        """Return the columns of envelopes."""
        return ENVELOPE_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        """Return the reader."""
        return FjordReader(msgspec.json.decode(self.options["fjord"], type=SourceOptions))


class _Task(InputPartition):
    def __init__(self, task: UpstreamTask) -> None:
        self.payload = msgspec.msgpack.encode(task)


class FjordReader(DataSourceStreamReader):
    """Decides what a micro-batch reads, on the driver, and reads it, on the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._plans = PlanFiles(Path(options.plans_folder))
        self._known_plans: dict[int, Plan] = {}
        self._logs: dict[str, CommitLog] = {}
        self._latest: dict[str, int] = {}
        self._commits: dict[tuple[str, int], Commit] = {}
        self._stored: dict[tuple[str, int], StoredFiles] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """Return the beginning: no plan, nothing read."""
        return Offset().to_spark()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's interface
        """Return the bound on the rows of one micro-batch."""
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """Return where the next micro-batch ends; see :func:`next_offset`."""
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._options.max_rows
        begin = from_spark(start)
        reader = Reader(
            plan=self._plan,
            latest=self._newest,
            rows=lambda stream, version: self._commit(stream, version).rows,
            relation=lambda identity: RelationVersions(Path(self._options.relations_folder, identity)).latest(),
        )
        end = next_offset(begin, reader, max_rows=max_rows)
        history = self._caught_up(begin, end, bounded=max_rows is not None)
        return msgspec.structs.replace(end, history=history).to_spark()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks that read what lies between two offsets; the first one tells the buckets of it."""
        first, last = from_spark(start), from_spark(end)
        if first == last:
            return []
        plan = self._plans.read(last.epoch)
        begins = begins_between(first, last, self._plan)
        files: list[tuple[str, str, int]] = []
        watermarks: dict[str, int] = {}
        for stream in sorted(plan.streams):
            watermark = None
            for version in range(begins[stream] + 1, last.versions[stream] + 1):
                commit = self._commit(stream, version)
                files.extend((stream, file.path, file.rows) for file in commit.files)
                found = watermark_of(commit.metadata)
                watermark = watermark if found is None else found
            if watermark is None:
                watermark = watermark_at(self._log(stream), last.versions[stream])
            if watermark is not None:
                watermarks[stream] = watermark
        parts = _spread(files, self._options.max_partitions)
        past = self._past(first, last, plan, parts=len(parts))
        parts += [[]] * (len(past) - len(parts))
        return [
            _Task(
                UpstreamTask(
                    plans_folder=self._options.plans_folder,
                    streams_folder=self._options.streams_folder,
                    epoch=last.epoch,
                    previous_epoch=first.epoch,
                    buckets=self._options.buckets,
                    origin=origin,
                    files=tuple((stream, path) for stream, path, _ in part),
                    watermarks_us=watermarks,
                    relations_folder=self._options.relations_folder,
                    relations=dict(last.relations),
                    relation_memory_bytes=self._options.relation_memory_bytes,
                    past=earlier,
                )
            )
            for origin, (part, earlier) in enumerate(zip(parts, past, strict=True))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run the upstream Fjord over one partition and yield envelopes."""
        from cluster.spark.upstream import run_upstream  # noqa: PLC0415 - the processes that plan do without operators

        assert isinstance(partition, _Task)  # noqa: S101 - made by partitions() above
        task = msgspec.msgpack.decode(partition.payload, type=UpstreamTask)
        yield from run_upstream(task)
        WORKER_MEMORY.keep((task.epoch, *sorted(task.relations.items())))

    def _caught_up(self, start: Offset, end: Offset, *, bounded: bool) -> dict[int, Reached]:
        plan = self._plan(end.epoch)
        if plan is None or (start.epoch == end.epoch and not start.history):
            return {}
        begins = begins_between(start, end, self._plan)
        live = sum(
            self._commit(stream, version).rows
            for stream in plan.streams
            for version in range(begins[stream] + 1, end.versions[stream] + 1)
        )
        # Whoever reads no faster than the stream goes on never catches up.
        rows = max(self._options.history_rows, 2 * live)
        return caught_up(start, end, plan, self._stored_at, self._watermark_at, max_rows=rows if bounded else None)

    def _past(self, start: Offset, end: Offset, plan: Plan, *, parts: int) -> list[tuple[PastRead, ...]]:
        """Return what each part of a micro-batch reads of the past; there are at least so many parts."""
        reads = past_reads(start, end, plan, self._stored_at, self._watermark_at)
        files = [(number, file.path, file.rows) for number, (_, found) in enumerate(reads) for file in found]
        spread = _spread(files, self._options.max_partitions)
        spread += [[]] * (parts - len(spread))
        return [
            tuple(
                msgspec.structs.replace(read, paths=tuple(path for place, path, _ in part if place == number))
                for number, (read, _) in enumerate(reads)
            )
            for part in spread
        ]

    def _stored_at(self, stream: str, version: int) -> StoredFiles:
        if (stream, version) not in self._stored:
            self._stored[stream, version] = StoredFiles.at(f"{self._options.streams_folder}/{stream}", version)
        return self._stored[stream, version]

    def _watermark_at(self, stream: str, version: int) -> int | None:
        return watermark_at(self._log(stream), version)

    def commit(self, end: dict[str, Any]) -> None:
        """Forget what will not be asked for again."""
        done = from_spark(end)
        self._known_plans = {epoch: plan for epoch, plan in self._known_plans.items() if epoch >= done.epoch}
        self._stored = {
            (stream, version): files
            for (stream, version), files in self._stored.items()
            if version >= done.versions.get(stream, version + 1)
        }
        self._commits = {
            (stream, version): commit
            for (stream, version), commit in self._commits.items()
            if version > done.versions.get(stream, version - 1)
        }

    def _plan(self, epoch: int) -> Plan | None:
        if epoch not in self._known_plans:
            if not self._plans.exists(epoch):
                return None
            self._known_plans[epoch] = self._plans.read(epoch)
        return self._known_plans[epoch]

    def _log(self, stream: str) -> CommitLog:
        if stream not in self._logs:
            self._logs[stream] = CommitLog(f"{self._options.streams_folder}/{stream}")
        return self._logs[stream]

    def _newest(self, stream: str, known: int) -> int:
        self._latest[stream] = self._log(stream).latest(max(known, self._latest.get(stream, known)))
        return self._latest[stream]

    def _commit(self, stream: str, version: int) -> Commit:
        if (stream, version) not in self._commits:
            self._commits[stream, version] = self._log(stream).read(version)
        return self._commits[stream, version]


def _spread(files: list[tuple[_Whose, str, int]], max_partitions: int) -> list[list[tuple[_Whose, str, int]]]:
    """Cut the files, in order, into as many parts as their rows are worth; at least one, maybe empty."""
    rows = sum(count for _, _, count in files)
    wanted = max(1, min(max_partitions, rows // ROWS_PER_PARTITION))
    parts: list[list[tuple[_Whose, str, int]]] = [[]]
    filled = 0
    for file in files:
        if filled >= rows * len(parts) / wanted and len(parts) < wanted:
            parts.append([])
        parts[-1].append(file)
        filled += file[2]
    return parts
