"""Keeping tables readable that grow by many small commits: small files are merged, and replaced files removed later.

Compaction only rearranges rows: the rows that a version added stay the same, and its files stay on disk for a day,
and for as long as a reader needs them, so that a reader that is behind still finds them. A merged file is on disk
before a commit names it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cluster.storage.appending import AppendedTable, DiskUse, disk_use
from cluster.storage.archived_log import HOUR_SECONDS, forget_archived, hours_kept, is_local
from cluster.storage.budgets import PARTS, UNBOUNDED, Budget
from cluster.storage.commit_log import CommitLog, open_files
from cluster.storage.delta_tables import live_files
from protocols.errors import FjordError
from protocols.event_log import get_logger
from protocols.wire.batches import START_COLUMN

log = get_logger(__name__)

COMMITS_BETWEEN = 2_000
"""Commits after which a table is compacted: at ten a second, every three minutes."""
SECONDS_BETWEEN = HOUR_SECONDS
"""A table with fewer commits is compacted once in so long."""
TARGET_BYTES = 64 * 1024 * 1024
"""Files of this size are not merged any more."""
ROWS_A_GROUP = 256 * 1024
"""Rows of a merged file that are in memory at a time."""
Needed = Callable[[], int | None]
"""Returns the oldest version of a table that a reader still needs, None if none is needed; may raise."""


class Compaction:
    """Decides when a table is due for compaction, and compacts it.

    Parameters
    ----------
    commits_between
        A table is due after so many commits.
    needed
        The oldest version that readers need.
    backlog_bytes
        When replaced files take more than this, those older than a day are removed though a reader needs them;
        None for no bound. Commits are kept, so that the lost rows can be counted.
    budget
        Returns the budget of the table: merged files are small parts of it.
    clock
        Seconds since 1970.
    """

    def __init__(
        self,
        commits_between: int = COMMITS_BETWEEN,
        *,
        needed: Needed = lambda: None,
        backlog_bytes: int | None = None,
        budget: Callable[[], Budget] = lambda: UNBOUNDED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.use: DiskUse | None = None
        """The disk use of the table at its last compaction."""
        self._backlog_bytes = backlog_bytes
        self._commits_between = commits_between
        self._needed = needed
        self._budget = budget
        self._clock = clock
        self._done_at: int | None = None
        self._done_seconds = clock()

    def due(self, version: int) -> bool:
        """Return whether a table at this version should be compacted."""
        if self._done_at is None:
            self._done_at = version
        long_since = abs(self._clock() - self._done_seconds) >= SECONDS_BETWEEN
        return version - self._done_at >= self._commits_between or (long_since and version > self._done_at)

    def run(self, table: AppendedTable) -> None:
        """Compact the table. A failure is logged, and tried again after as many commits: the table stays intact."""
        self._done_at, self._done_seconds = table.version, self._clock()
        try:
            merged = [_merge(table, *files) for files in _to_merge(table, self._budget())]
            removed = self._remove_replaced(table)
            self.use = disk_use(table)
        except (DeltaError, OSError, pa.ArrowException, FjordError) as error:
            log.warning("compaction failed", table=table.root, error=str(error))
        else:
            log.info("compacted", table=table.root, merged=sum(merged), into=len(merged), removed=removed)
        self._done_at = table.version

    def _remove_replaced(self, table: AppendedTable) -> int:
        """Remove files that were replaced long ago, and commits that left the log; return how many files."""
        now, needed = self._clock(), self._needed()
        since: float | None = None
        if needed is not None and needed < table.version:
            since = CommitLog(table.root).committed_at(max(needed, 0))
        kept_bytes = disk_use(table).replaced_bytes
        if since is not None and self._backlog_bytes is not None and kept_bytes > self._backlog_bytes:
            log.error("too much waits to be read, and the oldest is given up", table=table.root, bytes=kept_bytes)
            since = None
        removed = _remove_old(table, hours_kept(now, since))
        if is_local(table.root):
            forget_archived(Path(table.root), needed=needed, now=now)
        return removed


def bins(files: Sequence[tuple[str, int]], target: int) -> Iterator[list[str]]:
    """Yield paths of files to merge, given (path, bytes): neighbours, up to a size; a single file is not merged.

    Examples
    --------
    >>> list(bins([("a", 4), ("b", 4), ("c", 4), ("d", 8)], 10))
    [['a', 'b']]
    """
    filled: list[str] = []
    size = 0
    for path, bytes_ in files:
        if filled and size + bytes_ > target:
            if len(filled) > 1:
                yield filled
            filled, size = [], 0
        filled.append(path)
        size += bytes_
    if len(filled) > 1:
        yield filled


class CompactedTable:
    """A table that is appended to and compacted: how far it is, and what it takes of the disk."""

    _appended: AppendedTable
    _compaction: Compaction

    @property
    def _table(self) -> DeltaTable:
        return self._appended.delta

    @property
    def use(self) -> DiskUse | None:
        """The disk use of the table; None if it has not been measured yet."""
        return self._compaction.use

    @property
    def version(self) -> int:
        """The newest version this handle knows."""
        return self._appended.version


def _to_merge(table: AppendedTable, budget: Budget) -> Iterator[tuple[list[str], int]]:
    """Yield paths of files to merge, and when the newest was written, in milliseconds since 1970.

    They are small, oldest first, and of one period if files are removed by age. No larger file was written between
    them: where the oldest files go first, all that are older than one have gone before it.
    """
    target = TARGET_BYTES if budget.bytes is None else max(1, min(TARGET_BYTES, budget.bytes // PARTS))
    files: list[dict[str, Any]] = live_files(table.delta).to_pylist()
    files.sort(key=lambda file: (file["modification_time"], file["path"]))
    written_ms = {file["path"]: int(file["modification_time"]) for file in files}

    def part(file: dict[str, Any]) -> int | None:
        if file["size_bytes"] >= target:
            return None
        stamp = file.get(f"max.{START_COLUMN}")
        return 0 if budget.age_us is None or stamp is None else stamp // max(1, budget.age_us // PARTS)

    for period, together in groupby(files, part):
        if period is not None:
            for paths in bins([(file["path"], file["size_bytes"]) for file in together], target):
                yield paths, written_ms[paths[-1]]


def _merge(table: AppendedTable, paths: list[str], written_ms: int) -> int:
    table.replace(paths, _groups(table, paths), written_ms)
    return len(paths)


def _remove_old(table: AppendedTable, hours: int) -> int:
    """Remove files that were replaced so long ago; return how many. Unlike Delta's own way, this makes no commits."""
    old = table.delta.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False)
    files, root = open_files(table.root)
    for path in old:
        with contextlib.suppress(FileNotFoundError):  # Delta still lists removed files
            files.delete_file(str(PurePosixPath(root, path)))
    return len(old)


def _groups(table: AppendedTable, paths: list[str]) -> Iterator[pa.Table]:
    files, root = open_files(table.root)
    waiting: list[pa.Table] = []
    for path in paths:
        with pq.ParquetFile(str(PurePosixPath(root, path)), filesystem=files) as file:
            waiting.append(table.filled(file.read()))
        if sum(rows.num_rows for rows in waiting) >= ROWS_A_GROUP:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
