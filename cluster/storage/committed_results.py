"""Reading the results table: the rows of one commit, as its publisher does, or of one query, in order.

**Reading stored rows of one query, in order, and no more of the others than lies among them.**

    files     | a a b |  | b c c |  | a c c |       rows of a from number 2 on: the first file and the last

Which numbers come first is found without reading rows. These are then read in batches of some megabytes, as one row of
another query may have as many.

**Reading the results table commit by commit, as its publisher does: the rows that a version added, and only those.**

A process that reads needs neither Delta nor Polars: commits name their files, and Arrow reads these. What it does not
need of a commit it passes over, group by group of a file, and reads at most the names of queries there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from cluster.errors import StorageError
from cluster.storage.commit_log import CommitLog, open_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_BYTES = 8 * 1024**2
"""So much of a group is in memory at a time, as rows of average size."""
FIRST_ROWS = 16
"""So many are read first, where their length together is bounded."""


def rows_of_query(
    dataset: ds.Dataset,
    query: str,
    after: int,
    limit: int,
    *,
    most_bytes: int | None = None,
    memory: pa.MemoryPool | None = None,
) -> pa.Table:
    """Return the first rows of a query with higher numbers, in the order of these.

    Parameters
    ----------
    dataset
        The table.
    query
        Its name.
    after
        Only rows with a higher sequence number.
    limit
        At most so many.
    most_bytes
        None are read behind those whose texts are as long as this together; None for any length.
    memory
        Where rows are read to; must be kept when they have been read, as threads of Arrow free buffers of it later.

    Raises
    ------
    OSError, pyarrow.ArrowException
        If they cannot be read.
    """
    wanted = (ds.field("query") == query) & (ds.field("sequence") > after)
    files = _files(dataset, wanted, limit)
    numbers = np.sort(np.concatenate([each.numbers for each in files] or [np.empty(0, np.int64)]))
    found, size, place = [dataset.schema.empty_table()], 0, 0
    while place < len(numbers) and (place == 0 or most_bytes is None or size < most_bytes):
        first = numbers[place]
        # How long rows are, the first ones tell.
        rows = len(numbers) if most_bytes is None else max(FIRST_ROWS, place * (most_bytes - size) // max(1, size))
        last = numbers[min(place + rows, len(numbers)) - 1]
        between = wanted & (ds.field("sequence") >= int(first)) & (ds.field("sequence") <= int(last))
        batches = [
            batch for each in files if each.has(first, last) for batch in each.read(between, dataset.schema, memory)
        ]
        found.append(pa.Table.from_batches(batches, dataset.schema).sort_by("sequence"))
        size += pc.sum(pc.binary_length(found[-1].column("row"))).as_py() or 0
        place += rows
    return pa.concat_tables(found)


@dataclass(frozen=True, slots=True)
class _File:
    """A file, and the wanted numbers in it in order, at least one."""

    rows: ds.ParquetFileFragment
    numbers: NDArray[np.int64]

    def has(self, first: int, last: int) -> bool:
        """Return whether it may have numbers from the first to the last."""
        return bool(self.numbers[0] <= last and self.numbers[-1] >= first)

    def read(self, wanted: ds.Expression, schema: pa.Schema, memory: pa.MemoryPool | None) -> Iterator[pa.RecordBatch]:
        """Yield its wanted rows, reading some megabytes at a time."""
        size: int = sum(each.total_byte_size for each in self.rows.row_groups)
        rows: int = sum(each.num_rows for each in self.rows.row_groups)
        at_once = max(1, BATCH_BYTES * rows // max(1, size))
        batches = self.rows.to_batches(
            schema, filter=wanted, batch_size=at_once, batch_readahead=0, use_threads=False, memory_pool=memory
        )
        return (batch for batch in batches if batch.num_rows)


def _files(dataset: ds.Dataset, wanted: ds.Expression, limit: int) -> list[_File]:
    """Return the files with the lowest wanted numbers; rows are not read."""
    scanned = dataset.scanner(columns=["sequence"], filter=wanted).scan_batches()
    read = [(each.fragment, each.record_batch.column("sequence").to_numpy()) for each in scanned]
    counts = [len(numbers) for _, numbers in read]
    numbers = np.concatenate([numbers for _, numbers in read] or [np.empty(0, np.int64)])
    of_file = np.repeat(np.arange(len(read)), counts)
    lowest = np.argsort(numbers, kind="stable")[:limit]
    paths = np.array([fragment.path for fragment, _ in read], np.object_)[of_file[lowest]]
    fragments = {fragment.path: fragment for fragment, _ in read}
    return [_File(fragments[path], numbers[lowest[paths == path]]) for path in dict.fromkeys(paths)]


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
