"""Reading the results table commit by commit, as its publisher does: the rows that a version added, and only those.

A process that reads needs neither Delta nor Polars: commits name their files, and Arrow reads these.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
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

    def read(self, version: int, newest: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that one version added, in the order in which they were stored.

        Parameters
        ----------
        version
            The version.
        newest
            The newest version of the table.

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
        commit = self.log.read(version)
        try:
            for each in commit.files:
                with pq.ParquetFile(f"{self._folder}/{each.path}", filesystem=self._files) as file:
                    columns = [name for name in RESULT_SCHEMA.names if name in file.schema_arrow.names]
                    yield from map(_filled, file.iter_batches(ROWS_AT_ONCE, columns=columns))
        except FileNotFoundError as error:
            raise ResultsGoneError(version, version + 1, commit.rows) from error
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"version {version} of table {self.root} cannot be read: {error}") from error

    def commit(self, version: int, newest: int) -> pa.Table:
        """Return the rows that one version added as a whole; errors are those of :meth:`read`."""
        return pa.Table.from_batches(self.read(version, newest), RESULT_SCHEMA)


def _filled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the column that files of earlier versions lack."""
    if rows.num_columns == len(RESULT_SCHEMA):
        return rows
    return rows.append_column(RESULT_SCHEMA.field("closes"), pa.nulls(rows.num_rows, pa.int64()))
