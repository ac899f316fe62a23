"""Reading the results table commit by commit, as its publisher does: the rows that a version added, and only those.

A process that reads needs neither Delta nor Polars: commits name their files, and Arrow reads these. What it does not
need of a commit it passes over, group by group of a file, and reads at most the names of queries there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.errors import StorageError
from cluster.storage.commit_log import CommitLog, open_files

RESULT_SCHEMA = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("start_us", pa.int64(), nullable=False),
        pa.field("end_us", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("row", pa.string(), nullable=False),
        pa.field("closes", pa.int64()),
    ]
)
"""`kind` is ``row``, ``error``, ``open`` or ``closes``; `row` is the row as a JSON object, or the error's message as a
JSON string. An open row lasts at least until `end_us`; a row that closes it repeats start and row, has its end, and in
`closes` its number. Files of earlier versions have no such column."""

REPEATED = ("query", "kind")
"""The columns whose values repeat in a file."""

ROW, ERROR, OPEN, CLOSES = "row", "error", "open", "closes"
CLOSES_EARLIER = "closes_earlier"
"""Only before it is stored, as ``closes``: the end of an open row that may have begun before the given start."""
ROWS_AT_ONCE = 8_192
"""So many rows of a file are in memory at a time."""
NAMES_AT_ONCE = 65_536
"""So many, if only the names of their queries are read."""

PassesOver = Callable[[int, int, Callable[[], Collection[str]]], bool]
"""Returns whether rows that lie together are passed over, given how many rows of the commit are before them, how many
they are, and what reads the names of their queries."""


class ResultsGoneError(StorageError):
    """The results that a version added can no longer be read.

    Parameters
    ----------
    version
        The version.
    next_version
        The oldest later version that may still exist.
    rows
        The number of its rows; None if that is not known.
    """

    def __init__(self, version: int, next_version: int, rows: int | None) -> None:
        super().__init__(
            f"results of version {version} up to {next_version} are gone",
            hint="their rows are in the table, unless they were removed: GET /v1/queries/<query>/results?after=...",
        )
        self.version = version
        self.next_version = next_version
        self.rows = rows


class CommittedResults:
    """The commits of a results table.

    Parameters
    ----------
    root
        Folder (or URI) of the table.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.log = CommitLog(root)
        self._files, self._folder = open_files(root)

    def read(
        self, version: int, newest: int, passes_over: PassesOver = lambda *_: False
    ) -> Iterator[pa.RecordBatch | int]:
        """Yield the rows that one version added, in the order in which they were stored.

        Parameters
        ----------
        version
            The version.
        newest
            The newest version of the table.
        passes_over
            Which rows need not be read.

        Yields
        ------
        pyarrow.RecordBatch or int
            Rows, or how many are passed over in their place.

        Raises
        ------
        ResultsGoneError
            If they have been removed.
        StorageError
            If they cannot be read now.
        """
        if not self.log.exists(version):
            first = self.log.first_from(version + 1)
            raise ResultsGoneError(version, newest + 1 if first is None else first, None)
        commit, first = self.log.read(version), 0
        try:
            for each in commit.files:
                with pq.ParquetFile(f"{self._folder}/{each.path}", filesystem=self._files) as file:
                    columns = [name for name in RESULT_SCHEMA.names if name in file.schema_arrow.names]
                    for group in range(file.num_row_groups):
                        rows = file.metadata.row_group(group).num_rows
                        if passes_over(first, rows, partial(_queries, file, group)):
                            yield rows
                        else:
                            yield from map(
                                _filled, file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=columns)
                            )
                        first += rows
        except FileNotFoundError as error:
            raise ResultsGoneError(version, version + 1, commit.rows) from error
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"version {version} of table {self.root} cannot be read: {error}") from error

    def commit(self, version: int, newest: int) -> pa.Table:
        """Return the rows that one version added as a whole; errors are those of :meth:`read`."""
        batches = (rows for rows in self.read(version, newest) if not isinstance(rows, int))
        return pa.Table.from_batches(batches, RESULT_SCHEMA)


def _queries(file: pq.ParquetFile, group: int) -> frozenset[str]:
    """Return the names of the queries in a group of a file: as its statistics say, if it has rows of one only."""
    column = file.metadata.row_group(group).column(file.schema_arrow.names.index("query"))
    bounds = column.statistics if column.is_stats_set else None
    if bounds is not None and bounds.has_min_max and bounds.min == bounds.max:
        return frozenset([bounds.min])
    batches = file.iter_batches(NAMES_AT_ONCE, row_groups=[group], columns=["query"])
    return frozenset(name for batch in batches for name in pc.unique(batch.column("query")).to_pylist())


def _filled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the column that files of earlier versions lack."""
    if rows.num_columns == len(RESULT_SCHEMA):
        return rows
    return rows.append_column(RESULT_SCHEMA.field("closes"), pa.nulls(rows.num_rows, pa.int64()))
