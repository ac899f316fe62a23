"""Appends to a Delta table, by its only writer: Parquet files with statistics, then a commit that names them.

    data files, synced ──> commit that names them ──> commit synced ──> it counts ──> checkpoint, at times
                           │ an error from here on, of any kind: was the commit made? Its transactions show it

An append either is made or not, and the caller learns which. Only if the table cannot be read either is this
unknown; then nothing more is appended until it is known. An append that is made is on disk.
"""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from cluster.errors import StorageError
from cluster.storage.archived_log import is_local
from cluster.storage.commit_log import LINES, open_files
from cluster.storage.delta_tables import checkpointed, due_for_checkpoint, live_files, opened, sync_commits
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


NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Steps after a commit run separately, so that their failures are not failures of the commit."""


class OutcomeUnknownError(StorageError):
    """An append that may have been made or not; the table cannot be read to check it."""


class WrittenFiles(NamedTuple):
    """Rows that are on disk already: the schema of their files, and the entries of these, in the order of the rows."""

    schema: pa.Schema
    entries: Sequence[AddAction]


class AppendedTable:
    """A Delta table that only this process appends to.

    Parameters
    ----------
    root
        Folder (or URI) of the table.
    delta
        The table, open.
    repeated
        The columns whose values repeat; None if that is not known.
    files_at_once
        How many files many rows are written into.
    """

    def __init__(
        self, root: str, delta: DeltaTable, *, repeated: Sequence[str] | None = None, files_at_once: int = 1
    ) -> None:
        self.root = root
        self.delta = delta
        self._write_files = partial(write_data_files, root, at_once=files_at_once, repeated=repeated)
        self._checkpoint_seen = self._synced = delta.version()
        self._in_doubt = False
        self._known: pa.Schema | None = None

    @property
    def version(self) -> int:
        """The newest version that survives a power cut, as far as this handle knows."""
        return self._synced

    def stored(self, application: str) -> int | None:
        """Return the version of an application's newest transaction; None if there is none.

        Raises
        ------
        OutcomeUnknownError
            If the table cannot be read.
        """
        try:
            self._look_again()
            return self.delta.transaction_version(application)
        except (DeltaError, OSError) as error:
            raise self._unknown(error) from error

    def made(self, transactions: Mapping[str, int]) -> bool:
        """Return whether all these transactions are stored; errors are those of :meth:`stored`."""
        return all(_reached(self.stored(name), version) for name, version in transactions.items())

    def append(
        self,
        rows: pa.Table | WrittenFiles | None,
        transactions: Mapping[str, int],
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Append rows in one commit, with columns that are new to the table; return the new version.

        Parameters
        ----------
        rows
            None to append only transactions or metadata.
        transactions
            By application: its version after this append.
        metadata
            The commit's own metadata.

        Raises
        ------
        OutcomeUnknownError
            If it may have been made or not.
        StorageError
            If it fails; then nothing of it is stored.
        """
        try:
            self._look_again()
        except (DeltaError, OSError) as error:
            raise self._unknown(error) from error
        try:
            self._commit(rows, transactions, metadata or {})
            self.settle()
        except Exception as error:  # the commit may have been made before the error, whatever it was
            self._in_doubt = True
            if not (transactions and self.made(transactions)):
                raise StorageError(f"could not append to table {self.root}: {error}") from error
        version = self.version
        self._keep_quick()
        return version

    def replace(self, paths: Sequence[str], groups: Iterable[pa.Table], written_ms: int) -> None:
        """Replace some files by one with the same rows, in one commit.

        Parameters
        ----------
        paths
            The files, below the table.
        groups
            The rows, a table for each group in the file.
        written_ms
            When the newest of these files was written, in milliseconds since 1970: so old is the new one, too.

        Raises
        ------
        DeltaError, OSError
            If it fails; then the table holds the same rows, in these files or in one.
        """
        schema = self._schema()
        now_ms = time.time_ns() // 1_000_000
        removed = [RemoveAction(path, data_change=False, deletion_timestamp=now_ms) for path in paths]
        self._in_doubt = True
        entry = write_data_file(self.root, schema, groups, data_change=False)
        self._write([dataclasses.replace(entry, modification_time=written_ms), *removed], {}, {})
        self._in_doubt = False
        self.settle()

    def drop(self, paths: Sequence[str], metadata: Mapping[str, str]) -> None:
        """Remove files from the table, in one commit; they stay on disk until the readers that have them open are done.

        Parameters
        ----------
        paths
            The files, below the table.
        metadata
            The commit's own metadata.

        Raises
        ------
        DeltaError, OSError
            If it fails; then the table may still have them or not.
        """
        now_ms = time.time_ns() // 1_000_000
        self._in_doubt = True
        self._write([RemoveAction(path, data_change=True, deletion_timestamp=now_ms) for path in paths], {}, metadata)
        self._in_doubt = False
        self.settle()

    def filled(self, rows: pa.Table) -> pa.Table:
        """Return rows with all of the table's columns, in its order; unknown values are NULL."""
        known = self._schema()
        if rows.schema.equals(known, check_metadata=True):
            return rows
        for field in known:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(known.names).cast(known)

    def settle(self) -> None:
        """Sync the commits made since the last time, so that they count.

        Raises
        ------
        OSError
            If they cannot be synced.
        """
        newest = self.delta.version()
        if newest > self._synced and is_local(self.root):
            sync_commits(self.root, self._synced + 1, newest)
        self._synced = newest

    def _commit(
        self, rows: pa.Table | WrittenFiles | None, transactions: Mapping[str, int], metadata: Mapping[str, str]
    ) -> None:
        added: list[AddAction | RemoveAction] = []
        if rows is not None:
            self._widen(rows.schema)
        if isinstance(rows, WrittenFiles):
            added.extend(rows.entries)
        elif rows is not None:
            added.extend(self._write_files(self._schema(), self.filled(rows)))
        self._write(added, transactions, metadata)

    def _write(
        self,
        actions: list[AddAction | RemoveAction],
        transactions: Mapping[str, int],
        metadata: Mapping[str, str],
    ) -> None:
        lines = 1 + len(actions) + len(transactions)
        properties = CommitProperties(
            custom_metadata={**metadata, LINES: str(lines)},
            app_transactions=[Transaction(name, version) for name, version in transactions.items()],
        )
        self.delta.create_write_transaction(
            actions,
            "append",
            self.delta.schema(),
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )
        self.delta.update_incremental()

    def _schema(self) -> pa.Schema:
        if self._known is None:
            self._known = pa.schema(self.delta.schema().to_arrow())
        return self._known

    def _widen(self, schema: pa.Schema) -> None:
        """Add to the table the columns of rows that it lacks."""
        known = set(self._schema().names)
        new = [field.with_nullable(nullable=True) for field in schema if field.name not in known]
        if new:
            fields = Schema.from_arrow(pa.schema(new)).fields
            self._known = None
            self.delta.alter.add_columns(fields, post_commithook_properties=NO_HOOKS)
            self.settle()

    def _look_again(self) -> None:
        """Open the table anew if an append may have been made or not; its caller then checks for it."""
        if self._in_doubt:
            self._known = None
            self.delta = opened(self.root)
            self.settle()
            self._in_doubt = False

    def _unknown(self, error: Exception) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"what is stored in table {self.root} cannot be seen: {error}",
            hint="nothing more is appended before the table can be read",
        )

    def _keep_quick(self) -> None:
        if due_for_checkpoint(self._checkpoint_seen, self.version):
            self._checkpoint_seen = self.version
            self.delta = checkpointed(self.delta, self.root)


def _reached(stored: int | None, version: int) -> bool:
    return stored is not None and stored >= version


class DiskUse(NamedTuple):
    """Bytes of a table's data files."""

    live_bytes: int
    replaced_bytes: int


def disk_use(table: AppendedTable) -> DiskUse:
    """Return the bytes of a table's files; replaced files are counted only if the table is on a local disk.

    Raises
    ------
    DeltaError, OSError
        If they cannot be measured.
    """
    files = live_files(table.delta)
    live = sum(files.column("size_bytes").to_pylist())
    there = sum(path.stat().st_size for path in Path(table.root).glob("*.parquet")) if is_local(table.root) else live
    return DiskUse(live, max(0, there - live))
