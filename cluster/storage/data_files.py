"""Writing the Parquet files of a Delta table, each with the statistics by which readers select files."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from cluster.storage.archived_log import is_local
from cluster.storage.commit_log import open_files
from cluster.storage.synced_files import rename, sync_with_names

LONGEST_BOUND = 32
"""In characters; a column with longer texts has no bounds in its statistics."""
FILES_AT_ONCE = min(4, os.cpu_count() or 1)
"""Into how many files a process writes many rows at the same time: most of the work is compression."""
ROWS_OF_A_FILE = 32 * 1024
"""So few rows, and not fewer, are in each of several files."""


class Statistics:
    """The statistics of a file in Delta's format, collected while rows are added to it.

    Examples
    --------
    >>> found = Statistics()
    >>> found.add(pa.table({"at": [3, 1], "text": ["a", None]}))
    >>> found.as_json()
    '{"numRecords":2,"minValues":{"at":1,"text":"a"},"maxValues":{"at":3,"text":"a"},"nullCount":{"at":0,"text":1}}'
    """

    def __init__(self) -> None:
        self._rows = 0
        self._nulls: dict[str, int] = {}
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._unbounded: set[str] = set()

    def add(self, rows: pa.Table) -> None:
        """Add rows; all have the same columns."""
        self._rows += rows.num_rows
        for name in rows.column_names:
            column = rows.column(name)
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if column.null_count == len(column):
                continue
            found = _bounds(column)
            if found is None:
                self._unbounded.add(name)
                continue
            least, greatest = self._bounds.get(name, found)
            self._bounds[name] = min(least, found[0]), max(greatest, found[1])

    def as_json(self) -> str:
        """Return them in Delta's format."""
        bounds = {name: both for name, both in self._bounds.items() if name not in self._unbounded}
        return msgspec.json.encode(
            {
                "numRecords": self._rows,
                "minValues": {name: least for name, (least, _) in bounds.items()},
                "maxValues": {name: greatest for name, (_, greatest) in bounds.items()},
                "nullCount": self._nulls,
            }
        ).decode()


def write_data_file(
    root: str,
    schema: pa.Schema,
    groups: Iterable[pa.Table],
    *,
    data_change: bool = True,
    repeated: Sequence[str] | None = None,
    name: str | None = None,
    made_in: Path | None = None,
) -> AddAction:
    """Write rows into a new file of a table, on disk on return; return its entry for a commit.

    Parameters
    ----------
    root
        Folder (or URI) of the table.
    schema
        The schema of the rows.
    groups
        The rows, a table for each group in the file.
    data_change
        False if the rows are in the table already.
    repeated
        The columns whose values repeat; None if that is not known, and the writer tries all: half of its time.
    name
        Its name; a new one unless given.
    made_in
        A folder on the table's disk in which it is made, so that it has its name only as a whole.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    files, folder = open_files(root)
    unique, statistics = f"part-{uuid.uuid4()}.parquet", Statistics()
    named = str(PurePosixPath(folder, name or unique))
    path = named if made_in is None else str(made_in / unique)
    dictionaries = True if repeated is None else list(repeated)
    with pq.ParquetWriter(path, schema, filesystem=files, compression="snappy", use_dictionary=dictionaries) as writer:
        for rows in groups:
            statistics.add(rows)
            writer.write_table(rows)
    if made_in is not None:
        rename(Path(path), Path(named))
    elif is_local(root):
        sync_with_names([Path(path)])
    size = files.get_file_info(named).size
    return AddAction(name or unique, size, {}, time.time_ns() // 1_000_000, data_change, statistics.as_json())


def write_data_files(
    root: str, schema: pa.Schema, rows: pa.Table, *, at_once: int, repeated: Sequence[str] | None = None
) -> list[AddAction]:
    """Write rows into a new file of a table, or many into several at the same time; return the entries for a commit.

    Parameters
    ----------
    root, schema, repeated
        As for :func:`write_data_file`.
    rows
        The rows.
    at_once
        How many files there are at most.

    Returns
    -------
    list of AddAction
        In the order of the rows.

    Raises
    ------
    OSError
        If one of the files cannot be written.
    """
    count = max(1, min(at_once, rows.num_rows // ROWS_OF_A_FILE))
    if count == 1:
        return [write_data_file(root, schema, [rows], repeated=repeated)]
    ends = [rows.num_rows * number // count for number in range(count + 1)]
    pieces = [[rows.slice(begin, end - begin)] for begin, end in pairwise(ends)]
    with ThreadPoolExecutor(count, thread_name_prefix="data-file") as threads:
        return list(threads.map(partial(write_data_file, root, schema, repeated=repeated), pieces))


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column; None if it has none, or they are not to be written."""
    kind = column.type
    if pa.types.is_string(kind):
        first = column.drop_null()[0]
        if len(first.as_py()) > LONGEST_BOUND or pc.max(pc.utf8_length(column)).as_py() > LONGEST_BOUND:
            return None
    elif pa.types.is_floating(kind):
        if not pc.all(pc.is_finite(column)).as_py():
            return None
    elif not pa.types.is_integer(kind):
        return None
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]
