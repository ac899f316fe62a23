"""The files of a stream table by time, and its budget: rows over it are removed once all readers have read them.

**The files of a stream table at one of its versions, by time, and estimates of rows between two instants.**

A version of a Delta table is the same set of rows for ever, though compaction may have moved them to other files. The
log has, for every file, the number of its rows and their first and last stamp, so that only matching files are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError

from cluster.errors import StorageError
from cluster.storage.appending import AppendedTable
from cluster.storage.archived_log import ARCHIVE, is_local, log_at
from cluster.storage.budgets import UNBOUNDED, Blocked, Budget, Passed, TableFile, dropping, wanted_from
from cluster.storage.commit_log import Commit
from cluster.storage.delta_tables import live_files, opened
from protocols.errors import FjordError
from protocols.event_log import get_logger
from protocols.wire.batches import START_COLUMN

_FIRST, _LAST = f"min.{START_COLUMN}", f"max.{START_COLUMN}"
Instants = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file: its path below the table, its rows, and its first and last stamp."""

    path: str
    rows: int
    first_us: int
    last_us: int


class StoredFiles:
    """The files of one version of a stream table.

    Parameters
    ----------
    files
        In any order.
    """

    def __init__(self, files: Iterable[StoredFile]) -> None:
        self.files: Sequence[StoredFile] = sorted(files, key=lambda file: (file.first_us, file.path))
        self._rows: npt.NDArray[np.float64] = np.array([file.rows for file in self.files], np.float64)
        self._firsts: Instants = np.array([file.first_us for file in self.files], np.int64)
        self._ends: Instants = np.array([file.last_us + 1 for file in self.files], np.int64)

    @classmethod
    def at(cls, root: str, version: int) -> StoredFiles:
        """Return the files of the table at a path or URI, at a version.

        Raises
        ------
        StorageError
            If the version cannot be read.
        """
        if version < 0:
            return cls(())
        try:
            found = _added(root, version)
        except (DeltaError, OSError) as error:
            raise StorageError(
                f"version {version} of table {root} cannot be read: {error}",
                hint="commits are kept for a day: did the engine stand still for longer?",
            ) from error
        if _FIRST not in found.columns:
            return cls(())
        rows = found.select("path", "num_records", _FIRST, _LAST).drop_nulls().iter_rows()
        return cls(StoredFile(*row) for row in rows)

    @property
    def first_us(self) -> int | None:
        """The earliest stamp; None if nothing is stored."""
        return int(self._firsts.min()) if self.files else None

    @property
    def end_us(self) -> int | None:
        """The instant after the latest stamp; None if nothing is stored."""
        return int(self._ends.max()) if self.files else None

    def rows_between(self, from_us: int, until_us: int | None) -> float:
        """Return about how many rows are stamped at or after an instant and before another; None is the end.

        The rows of one file are assumed to be spread evenly over its time.
        """
        if not self.files or (until_us is not None and until_us <= from_us):
            return 0.0
        low = np.clip(from_us, self._firsts, self._ends)
        high = self._ends if until_us is None else np.clip(until_us, self._firsts, self._ends)
        return float((self._rows * ((high - low) / (self._ends - self._firsts))).sum())

    def between(self, from_us: int, until_us: int | None) -> tuple[StoredFile, ...]:
        """Return the files that may hold rows stamped at or after an instant and before another, in order of time."""
        return tuple(
            file for file in self.files if file.last_us >= from_us and (until_us is None or file.first_us < until_us)
        )


def stamped(commit: Commit) -> Iterator[StoredFile]:
    """Yield the files that a commit added, with their stamps; files without rows are left out.

    Raises
    ------
    StorageError
        If the log lacks the stamps of a file.
    """
    for file in commit.files:
        if not file.rows:
            continue
        if file.first_us is None or file.last_us is None:
            raise StorageError(
                f"file {file.path} does not say between which stamps its rows are",
                hint="was it written by something else than the ingest? Streams are read by their files' statistics",
            )
        yield StoredFile(file.path, file.rows, file.first_us, file.last_us)


def _added(root: str, version: int) -> pl.DataFrame:
    """Return the entries of a version's files in its log."""
    try:
        table = opened(root, version)
    except DeltaError:
        if not is_local(root) or not (Path(root) / ARCHIVE).exists():
            raise
        with log_at(Path(root), version) as folder:
            return _added(str(folder), version)
    return pl.DataFrame(pl.from_arrow(live_files(table)))


log = get_logger(__name__)


class Dropped(msgspec.Struct, frozen=True):
    """The rows removed from a table: their number, and the instant from which on all rows are kept."""

    rows: int = 0
    from_us: int | None = None


class StreamRetention:
    """Removes rows over the budget from one table.

    Parameters
    ----------
    budget
        Returns the budget of the table.
    passed
        Returns the instant before which all readers have read; None if there are no readers. It may raise.
    """

    def __init__(
        self, budget: Callable[[], Budget] = lambda: UNBOUNDED, passed: Callable[[], Passed | None] = lambda: None
    ) -> None:
        self._budget = budget
        self._passed = passed
        self.dropped = Dropped()
        self.blocked = Blocked()
        self._announced_us: int | None = None

    @property
    def budget(self) -> Budget:
        """The budget of the table."""
        return self._budget()

    @property
    def kept_from_us(self) -> int | None:
        """The instant from which all stored rows are kept, also for readers that begin now; None for all rows."""
        known = [each for each in (self.dropped.from_us, self._announced_us) if each is not None]
        return max(known, default=None)

    def run(
        self, table: AppendedTable, watermark_us: int | None, metadata: Callable[[Dropped], dict[str, str]]
    ) -> None:
        """Remove rows from a table. A failure is logged, and the removal is tried again the next time.

        Parameters
        ----------
        table
            The table.
        watermark_us
            The stream's low watermark; None before the first, and then nothing is removed.
        metadata
            Returns the commit's metadata, given the removed rows.
        """
        self.blocked = Blocked()
        try:
            self._run(table, watermark_us, metadata)
        except (DeltaError, OSError, pa.ArrowException, FjordError) as error:
            log.warning("old rows could not be removed", table=table.root, error=str(error))
        finally:
            self._announced_us = None

    def _run(
        self, table: AppendedTable, watermark_us: int | None, metadata: Callable[[Dropped], dict[str, str]]
    ) -> None:
        files = _files(table)
        wanted_us = wanted_from(files, self.budget, watermark_us)
        if wanted_us is None or watermark_us is None:
            return
        # A new query with history either is among the readers of `passed`, or sees the limit announced before.
        self._announced_us = wanted_us
        passed = self._passed() or Passed(watermark_us)
        found = dropping(files, wanted_us, min(passed.instant_us, watermark_us))
        if found.blocked:
            self.blocked = Blocked.of(found.blocked, passed.by or "the stream's low watermark has not passed it")
            left = self.blocked
            log.warning("more is kept than there should be", table=table.root, bytes=left.bytes, reason=left.by)
        if found.files:
            rows = sum(file.rows for file in found.files)
            from_us = max(found.from_us, self.dropped.from_us or found.from_us)
            dropped = Dropped(self.dropped.rows + rows, from_us)
            table.drop([file.path for file in found.files], metadata(dropped))
            self.dropped = dropped
            log.info("old rows removed", table=table.root, files=len(found.files), rows=rows)


def _files(table: AppendedTable) -> list[TableFile]:
    """Return a table's files; those without known stamps are never removed."""
    found: list[dict[str, Any]] = live_files(table.delta).to_pylist()
    first, last = f"min.{START_COLUMN}", f"max.{START_COLUMN}"
    return [
        TableFile(file["path"], file["num_records"], file["size_bytes"], file[first], file[last])
        for file in found
        if file.get(first) is not None and file.get(last) is not None
    ]
