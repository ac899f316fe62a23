"""Keeping the results table within its budget, and its open rows, whose end is yet to come.

**The open rows of the results table: those whose end is yet to come, so that it can name them by their numbers.**

An end comes with the query, the start and the text of its row. Rows in which these are equal can stand in for each
other; the newest one is closed, because the oldest may be that of an earlier query of the same name.

Where a query goes on with another plan, rows that last go on, too. Their ends come with the instant of that in place of
the start, and with the new plan's text, whose last digits may be others.

A query's rows are numbered from the highest number in the table on. So before files are removed, the highest numbers
are written to disk beside the table: a query without rows in the table does not begin at 1 again. So are the numbers of
open rows, which their ends will name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError

from cluster.errors import StorageError
from cluster.rounded_rows import rounded
from cluster.storage.appending import AppendedTable
from cluster.storage.archived_log import is_local
from cluster.storage.budgets import UNBOUNDED, Blocked, Budget, TableFile, dropping, wanted_from
from cluster.storage.commit_log import CommitLog
from cluster.storage.committed_results import CLOSES, OPEN
from cluster.storage.delta_tables import live_files
from cluster.storage.synced_files import write_whole
from protocols.errors import FjordError
from protocols.event_log import get_logger

OpenRow = tuple[str, int, str]
"""Query, start, text."""


class OpenRows:
    """The numbers of open rows.

    Parameters
    ----------
    known
        Open rows with their numbers.
    """

    def __init__(self, known: Iterable[tuple[OpenRow, int]] = ()) -> None:
        self._numbers: dict[OpenRow, list[int]] = {}
        for row, number in known:
            self._numbers.setdefault(row, []).append(number)

    @classmethod
    def of(cls, kept: Iterable[tuple[OpenRow, int]], rows: pl.DataFrame) -> OpenRows:
        """Return the rows that are still open, of those that were kept, and those of the table that open or close.

        Parameters
        ----------
        kept
            Open rows that may have been removed from the table.
        rows
            Columns query, start_us, row, kind, sequence, closes.
        """
        closed = set(rows.filter(kind=CLOSES).select("query", "closes").iter_rows())
        found = {(row[0], number): (row, number) for row, number in kept}
        opened = rows.filter(kind=OPEN).sort("sequence").select("query", "start_us", "row", "sequence")
        for query, start_us, text, number in opened.iter_rows():
            found[query, number] = (query, start_us, text), number
        return cls(each for key, each in found.items() if key not in closed)

    def closed_by(
        self, ends: Sequence[OpenRow], earlier: Sequence[bool] | None = None
    ) -> list[tuple[OpenRow, int] | None]:
        """Return the row that each end closes, with its number; None if there is no such row. Nothing changes yet.

        Parameters
        ----------
        ends
            Query, start and text.
        earlier
            Of each end: whether it may be that of a row with equal values that began before.
        """
        used = Counter[OpenRow]()
        found: list[tuple[OpenRow, int] | None] = []
        for end in ends:
            used[end] += 1
            numbers = self._numbers.get(end, [])
            found.append((end, numbers[-used[end]]) if used[end] <= len(numbers) else None)
        if earlier is not None and any(earlier):
            self._find_earlier(ends, earlier, found)
        return found

    def _find_earlier(
        self, ends: Sequence[OpenRow], earlier: Sequence[bool], found: list[tuple[OpenRow, int] | None]
    ) -> None:
        """Find the rows of ends that have none yet."""
        taken = {(each[0][0], each[1]) for each in found if each is not None}
        wanted = {end[0] for end, may, has in zip(ends, earlier, found, strict=True) if may and has is None}
        equal: dict[tuple[str, str], list[tuple[int, OpenRow]]] = {}
        for row, numbers in self._numbers.items():
            if row[0] in wanted:
                left = [(number, row) for number in numbers if (row[0], number) not in taken]
                equal.setdefault((row[0], rounded(row[2])), []).extend(left)
        for rows in equal.values():
            rows.sort()
        for place, (end, may) in enumerate(zip(ends, earlier, strict=True)):
            if may and found[place] is None:
                query, start_us, text = end
                rows = equal.get((query, rounded(text)), [])
                newest = next((at for at in reversed(range(len(rows))) if rows[at][1][1] < start_us), None)
                if newest is not None:
                    number, row = rows.pop(newest)
                    found[place] = row, number

    def note(self, rows: pl.DataFrame) -> None:
        """Note rows that have been stored; columns as in :meth:`of`."""
        for query, start_us, text, closes in (
            rows.filter(kind=CLOSES).select("query", "start_us", "row", "closes").iter_rows()
        ):
            numbers = self._numbers[query, start_us, text]
            if numbers[-1] == closes:  # as in most cases; a row may have very many equals
                numbers.pop()
            else:
                numbers.remove(closes)
            if not numbers:
                del self._numbers[query, start_us, text]
        for query, start_us, text, number in (
            rows.filter(kind=OPEN).select("query", "start_us", "row", "sequence").iter_rows()
        ):
            self._numbers.setdefault((query, start_us, text), []).append(number)

    def listed(self) -> list[tuple[OpenRow, int]]:
        """Return all open rows with their numbers."""
        return [(row, number) for row, numbers in self._numbers.items() for number in numbers]


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
