"""What the driver sends to tasks: what each reads of which versions of tables, and what the plan needs.

Nothing here imports operators: Spark's processes that only plan tasks do without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec
import polars as pl

from cluster.fjord.batch import ALWAYS, NEVER, START
from cluster.fjord.overruns import WorkLimits
from cluster.functions.allowed import FunctionRules
from cluster.physical.nodes import ANSWERS_RETURNED, Host
from cluster.plan.names_read import MEMORY_BYTES
from cluster.storage.commit_log import Commit, CommitLog
from cluster.storage.stream_retention import StoredFiles
from cluster.storage.stream_tables import watermark_at
from cluster.storage.table_folders import folder_of

_Known = TypeVar("_Known")


class TableVersions:
    """The versions of all stream tables below a folder.

    Parameters
    ----------
    folder
        Of all stream tables.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._logs: dict[str, CommitLog] = {}
        self._latest: dict[str, int] = {}
        self._commits: dict[tuple[str, int], Commit] = {}
        self._stored: dict[tuple[str, int], StoredFiles] = {}
        self._watermarks_us: dict[tuple[str, int], int | None] = {}

    def newest(self, stream: str, known: int) -> int:
        """Return the newest version of a stream's table, given one that is known to exist."""
        self._latest[stream] = self._log(stream).latest(max(known, self._latest.get(stream, known)))
        return self._latest[stream]

    def commit(self, stream: str, version: int) -> Commit:
        """Return what a version added."""
        if (stream, version) not in self._commits:
            self._commits[stream, version] = self._log(stream).read(version)
        return self._commits[stream, version]

    def committed_at(self, stream: str, version: int) -> float:
        """Return when a version was made, in seconds since 1970."""
        return self._log(stream).committed_at(max(version, 0))

    def rows(self, stream: str, version: int) -> int:
        """Return how many rows a version added."""
        return self.commit(stream, version).rows

    def stored(self, stream: str, version: int) -> StoredFiles:
        """Return what the table holds at a version."""
        if (stream, version) not in self._stored:
            self._stored[stream, version] = StoredFiles.at(self._root(stream), version)
        return self._stored[stream, version]

    def watermark_us(self, stream: str, version: int) -> int | None:
        """Return the stream's low watermark at a version; None before the first."""
        if (stream, version) not in self._watermarks_us:
            self._watermarks_us[stream, version] = watermark_at(self._log(stream), version)
        return self._watermarks_us[stream, version]

    def complete_until_us(self, stream: str, version: int) -> int:
        """Return the instant before which no row is added after a version."""
        watermark_us = self.watermark_us(stream, version)
        return ALWAYS if watermark_us is None else watermark_us

    def earliest_us(self, stream: str, path: str, from_us: int) -> int | None:
        """Return the earliest stamp in a file that is not before an instant; None if there is none."""
        stamps = pl.scan_parquet(f"{self._root(stream)}/{path}", glob=False).select(START)
        first: int | None = stamps.filter(pl.col(START) >= from_us).min().collect().item()
        return first

    def forget(self, done: Mapping[str, int]) -> None:
        """Forget what is not needed once each stream that is read has been read up to its version in `done`."""
        self._commits = _from(self._commits, {stream: version + 1 for stream, version in done.items()})
        self._stored = _from(self._stored, done)
        self._watermarks_us = _from(self._watermarks_us, done)

    def _root(self, stream: str) -> str:
        return f"{self._folder}/{folder_of(stream)}"

    def _log(self, stream: str) -> CommitLog:
        if stream not in self._logs:
            self._logs[stream] = CommitLog(self._root(stream))
        return self._logs[stream]


def _from(known: Mapping[tuple[str, int], _Known], first: Mapping[str, int]) -> dict[tuple[str, int], _Known]:
    """Return the cached contents of each stream from a version on, without other streams."""
    return {
        (stream, version): found
        for (stream, version), found in known.items()
        if stream in first and version >= first[stream]
    }


ROWS_PER_TASK = 250_000
"""Fewer rows are not worth a Python task of their own, which takes about 0.2 s."""
MOST_READ_TWICE = 1.25
"""So many times the rows of all files tasks read together at most, when each reads a slice of time."""


class StreamRead(msgspec.Struct, frozen=True):
    """What a micro-batch, or one task of it, reads of one stream.

    Parameters
    ----------
    stream
        Its name.
    files
        (path below its table, rows) of files that hold such rows, and maybe others, in the order of reading.
    watermark_us
        The stream's low watermark behind these rows; None if it has none yet.
    between_us
        Between which stamps; None for all rows of the files.
    backfill_epoch
        The epoch of the query whose history this is; None for what all other queries read live.
    stamps
        The first and last stamp of each file; empty if they are not known.
    """

    stream: str
    files: tuple[tuple[str, int], ...]
    watermark_us: int | None
    between_us: tuple[int, int] | None = None
    backfill_epoch: int | None = None
    stamps: tuple[tuple[int, int], ...] = ()


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
        Number of this part; part 0 also sends every bucket the control message of the micro-batch.
    reads
        What it reads: of each stream of the plan live, and for each query with history that is not up to date.
    relations_folder, relations, relation_memory_bytes
        Where versions of relations are; by identity, the newest one that counts; what a table of them may take of the
        memory.
    host
        Which of the two Spark queries it belongs to.
    first_key
        The key of bucket 0 in Spark.
    answers_folder, answers_returned
        Where it writes its answers if there are more than it returns; empty if it returns all.
    functions
        What functions of users may be and take.
    begun_us
        By stream: the instant at which it begins, if that may be known since this micro-batch.
    micro_batch
        The micro-batch, by a text that is the same whenever it is run.
    limits
        What a query may take.
    gone
        Identities of queries that are not computed any more, though the plan has them.
    """

    plans_folder: str
    streams_folder: str
    epoch: int
    previous_epoch: int
    buckets: int
    origin: int
    reads: tuple[StreamRead, ...]
    relations_folder: str = ""
    relations: dict[str, int] = {}
    relation_memory_bytes: int = MEMORY_BYTES
    host: Host = Host.STATEFUL
    first_key: int = 0
    answers_folder: str = ""
    answers_returned: int = ANSWERS_RETURNED
    functions: FunctionRules = FunctionRules()
    begun_us: dict[str, int] = {}
    micro_batch: str = ""
    limits: WorkLimits = WorkLimits()
    gone: tuple[str, ...] = ()

    @property
    def reached_us(self) -> int:
        """How far the streams have come; 0 if that is not known."""
        live = (read.watermark_us for read in self.reads if read.backfill_epoch is None)
        return max((watermark_us for watermark_us in live if watermark_us is not None), default=0)


def divided(reads: Sequence[StreamRead], max_parts: int) -> list[tuple[StreamRead, ...]]:
    """Divide reads into as many parts as their rows justify, at least one.

    Parts are slices of time if that is known of all files and few of them are read twice: then the answers of the parts
    follow each other. Otherwise each file is in one part. Each part has all the reads, if only with their watermarks
    and without files.

    Parameters
    ----------
    reads
        Of a micro-batch.
    max_parts
        How many parts there may be.
    """
    rows = sum(count for read in reads for _, count in read.files)
    wanted = max(1, min(max_parts, rows // ROWS_PER_TASK))
    slices = _slices(reads, wanted) if wanted > 1 and all(map(_is_stamped, reads)) else []
    read_in_all = sum(count for part in slices for read in part for _, count in read.files)
    if len(slices) == wanted and read_in_all <= MOST_READ_TWICE * rows:
        return slices
    return _of_files(reads, wanted)


def _is_stamped(read: StreamRead) -> bool:
    return read.between_us is not None and len(read.stamps) == len(read.files)


def _slices(reads: Sequence[StreamRead], wanted: int) -> list[tuple[StreamRead, ...]]:
    """Divide reads at the first stamps of files, so that each part has about as many rows."""
    files = sorted(
        (max(first_us, read.between_us[0]), count)
        for read in reads
        if read.between_us is not None
        for (_, count), (first_us, _) in zip(read.files, read.stamps, strict=True)
    )
    rows, filled, begins = sum(count for _, count in files), 0, [files[0][0]]
    for first_us, count in files:
        if filled >= rows * len(begins) / wanted and len(begins) < wanted and first_us > begins[-1]:
            begins.append(first_us)
        filled += count
    return [tuple(_between(read, *ends) for read in reads) for ends in pairwise([ALWAYS, *begins[1:], NEVER])]


def _between(read: StreamRead, from_us: int, until_us: int) -> StreamRead:
    """Return a read of what is stamped between two instants."""
    begins_us, ends_us = read.between_us or (from_us, until_us)
    begins_us, ends_us = max(begins_us, from_us), min(ends_us, until_us)
    kept = [
        (file, stamps)
        for file, stamps in zip(read.files, read.stamps, strict=True)
        if stamps[0] < ends_us and stamps[1] >= begins_us
    ]
    files, stamps = tuple(file for file, _ in kept), tuple(stamps for _, stamps in kept)
    return msgspec.structs.replace(read, files=files, stamps=stamps, between_us=(begins_us, max(begins_us, ends_us)))


def _of_files(reads: Sequence[StreamRead], wanted: int) -> list[tuple[StreamRead, ...]]:
    """Divide the files of reads, in order."""
    files = [(number, place) for number, read in enumerate(reads) for place in range(len(read.files))]
    rows = sum(count for read in reads for _, count in read.files)
    parts: list[list[tuple[int, int]]] = [[]]
    filled = 0
    for number, place in files:
        if filled >= rows * len(parts) / wanted and len(parts) < wanted:
            parts.append([])
        parts[-1].append((number, place))
        filled += reads[number].files[place][1]
    return [
        tuple(_with_files(read, [place for of, place in part if of == number]) for number, read in enumerate(reads))
        for part in parts
    ]


def _with_files(read: StreamRead, places: Sequence[int]) -> StreamRead:
    stamps = tuple(read.stamps[place] for place in places) if read.stamps else ()
    return msgspec.structs.replace(read, files=tuple(read.files[place] for place in places), stamps=stamps)
