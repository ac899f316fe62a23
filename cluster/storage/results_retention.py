"""Keeping the results table within its budget: the oldest results are removed once they have been published.

A query's rows are numbered from the highest number in the table on. So before files are removed, the highest numbers
are written to disk beside the table: a query without rows in the table does not begin at 1 again. So are the numbers of
open rows, which their ends will name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from cluster.errors import StorageError
from cluster.storage.appending import AppendedTable
from cluster.storage.archived_log import is_local
from cluster.storage.budgets import UNBOUNDED, Blocked, Budget, TableFile, dropping, wanted_from
from cluster.storage.commit_log import CommitLog
from cluster.storage.delta_tables import live_files
from cluster.storage.open_rows import OpenRow
from cluster.storage.synced_files import write_whole
from protocols.errors import FjordError
from protocols.event_log import get_logger

log = get_logger(__name__)

NUMBERS = "_fjord_numbers.json"
"""Other readers of a Delta table ignore names with this prefix."""


class Numbers(msgspec.Struct, frozen=True):
    """The removed results: how many rows; each query's highest number, and the open rows, at the time of a removal."""

    dropped_rows: int = 0
    last: dict[str, int] = {}
    open: list[tuple[OpenRow, int]] = []


class ResultsRetention:
    """Removes results over a budget.

    Parameters
    ----------
    root
        Folder (or URI) of the table; from a table that is not on a local disk nothing is removed.
    budget
        The budget; only its bytes count.
    published
        Returns the version of the table up to which all results are published; it may raise.

    Raises
    ------
    StorageError
        If the record of removed results cannot be read.
    """

    def __init__(
        self, root: str, budget: Budget = UNBOUNDED, published: Callable[[], int | None] = lambda: None
    ) -> None:
        self.budget = budget
        self.blocked = Blocked()
        self._published = published
        self._path = Path(root, NUMBERS) if is_local(root) else None
        self.numbers = _read(self._path)

    def run(
        self,
        table: AppendedTable,
        last: Mapping[str, int],
        open_rows: Callable[[], list[tuple[OpenRow, int]]] = list,
    ) -> None:
        """Remove results from a table. A failure is logged, and the removal is tried again the next time.

        Parameters
        ----------
        table
            The table.
        last
            The highest number of each query.
        open_rows
            Returns the open rows of the table, and those kept of it.
        """
        self.blocked = Blocked()
        try:
            self._run(table, last, open_rows)
        except (DeltaError, OSError, pa.ArrowException, FjordError) as error:
            log.warning("old results could not be removed", table=table.root, error=str(error))

    def _run(
        self, table: AppendedTable, last: Mapping[str, int], open_rows: Callable[[], list[tuple[OpenRow, int]]]
    ) -> None:
        files = _files(table)
        wanted = wanted_from(files, self.budget, None)
        if wanted is None or self._path is None:
            return
        version = self._published()
        # Files written before the published commit hold only rows of earlier commits.
        passed = wanted if version is None else round(CommitLog(table.root).committed_at(version) * 1_000)
        found = dropping(files, wanted, passed)
        if found.blocked:
            self.blocked = Blocked.of(found.blocked, "it is not published yet")
            left = self.blocked
            log.warning("more is kept than there should be", table=table.root, bytes=left.bytes, reason=left.by)
        if found.files:
            rows = sum(file.rows for file in found.files)
            numbers = Numbers(self.numbers.dropped_rows + rows, dict(last), open_rows())
            write_whole(self._path, msgspec.json.encode(numbers))
            self.numbers = numbers
            table.drop([file.path for file in found.files], {})
            log.info("old results removed", table=table.root, files=len(found.files), rows=rows)


def _files(table: AppendedTable) -> list[TableFile]:
    """Return a table's files, with their modification time in milliseconds in place of stamps."""
    found = live_files(table.delta).select(["path", "num_records", "size_bytes", "modification_time"])
    written = found.column("modification_time").cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    paths, rows, sizes = (found.column(name).to_pylist() for name in ("path", "num_records", "size_bytes"))
    return [
        TableFile(path, count, size, at, at) for path, count, size, at in zip(paths, rows, sizes, written, strict=True)
    ]


def _read(path: Path | None) -> Numbers:
    try:
        return Numbers() if path is None else msgspec.json.decode(path.read_bytes(), type=Numbers)
    except FileNotFoundError:
        return Numbers()
    except (OSError, msgspec.DecodeError) as error:
        raise StorageError(f"what has gone of the results cannot be read: {path}: {error}") from error
