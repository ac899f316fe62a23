"""Keeps tables that grow by many small commits readable: merges small files, removes those long replaced.

Compaction only rearranges: what a version added stays what it was, and the files it names stay on disk for a day, so a
reader that is behind still finds them. A merged file is on disk before a commit names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from deltalake.exceptions import DeltaError

from cluster.errors import StorageError
from cluster.storage.appending import NO_HOOKS, AppendedTable
from cluster.storage.archived_log import KEEP_HOURS
from cluster.storage.commit_log import open_files

log = structlog.get_logger(__name__)

COMMITS_BETWEEN = 2_000
"""Commits after which a table is compacted: at ten a second, every three minutes."""
TARGET_BYTES = 64 * 1024 * 1024
"""Files of this size are left alone from then on."""
ROWS_A_GROUP = 256 * 1024
"""Rows of a merged file that are in memory at a time."""


class Compaction:
    """Decides when a table is due, and compacts it.

    Parameters
    ----------
    commits_between
        A table is due after so many commits.
    """

    def __init__(self, commits_between: int = COMMITS_BETWEEN) -> None:
        self._commits_between = commits_between
        self._done_at: int | None = None

    def due(self, version: int) -> bool:
        """Return whether a table at this version should be compacted."""
        if self._done_at is None:
            self._done_at = version
        return version - self._done_at >= self._commits_between

    def run(self, table: AppendedTable) -> None:
        """Compact; a failure is logged and tried again after as many commits more: the table is whole either way."""
        self._done_at = table.version
        try:
            merged = [_merge(table, files) for files in bins(_small_files(table), TARGET_BYTES)]
            removed = table.delta.vacuum(
                retention_hours=KEEP_HOURS,
                dry_run=False,
                enforce_retention_duration=False,
                post_commithook_properties=NO_HOOKS,
            )
            table.settle()
        except (DeltaError, OSError, pa.ArrowException, StorageError) as error:
            log.warning("compaction failed", table=table.root, error=str(error))
        else:
            log.info("compacted", table=table.root, merged=sum(merged), into=len(merged), removed=len(removed))
        self._done_at = table.version


def bins(files: Sequence[tuple[str, int]], target: int) -> Iterator[list[str]]:
    """Yield paths of files to merge, given (path, bytes): neighbours, up to a size; a lone file is left alone.

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


def _small_files(table: AppendedTable) -> list[tuple[str, int]]:
    """Return path and size of the files that are not large yet, oldest first."""
    found: list[dict[str, Any]] = pa.table(table.delta.get_add_actions(flatten=True)).to_pylist()
    found.sort(key=lambda file: (file["modification_time"], file["path"]))
    return [(file["path"], file["size_bytes"]) for file in found if file["size_bytes"] < TARGET_BYTES]


def _merge(table: AppendedTable, paths: list[str]) -> int:
    table.replace(paths, _groups(table, paths))
    return len(paths)


def _groups(table: AppendedTable, paths: list[str]) -> Iterator[pa.Table]:
    files, root = open_files(table.root)
    waiting: list[pa.Table] = []
    for path in paths:
        waiting.append(table.filled(pq.read_table(str(PurePosixPath(root, path)), filesystem=files)))
        if sum(rows.num_rows for rows in waiting) >= ROWS_A_GROUP:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
