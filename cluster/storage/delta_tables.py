"""The common behaviour of Fjord's Delta tables: many small commits, from one process that keeps the table open.

Each commit makes an open table slower by about 0.1 ms, until it is opened again; and opening is quick only after a
recent checkpoint. So there is a checkpoint every hundred commits, after which the table is opened again.

Fjord's own tables are opened and made only here: a simulation of a whole cluster replaces :class:`DeltaTable` here, and
nothing else (tests/simulation/delta_log.py).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cluster.errors import UnwritableError
from cluster.storage.archived_log import KEEP_HOURS, LOG, archive, is_local
from cluster.storage.commit_log import LAST_CHECKPOINT
from cluster.storage.synced_files import make_folder, sync_with_names

COMMITS_BETWEEN_CHECKPOINTS = 100

CONFIGURATION: dict[str, str | None] = {
    # For logs that are not archived.
    "delta.logRetentionDuration": f"interval {KEEP_HOURS} hours",
    # As long as compaction keeps replaced files.
    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS} hours",
    "delta.checkpointInterval": str(COMMITS_BETWEEN_CHECKPOINTS),
}


def created(root: str, schema: pa.Schema, name: str) -> DeltaTable:
    """Return a new table; it is on disk.

    Raises
    ------
    UnwritableError
        If it cannot be made now; a part of it that remains does not prevent a later attempt.
    """
    try:
        if is_local(root):
            make_folder(Path(root, LOG))
        table = DeltaTable.create(root, schema=schema, name=name, configuration=CONFIGURATION)
        if is_local(root):
            sync_commits(root, 0, table.version())
    except (DeltaError, OSError) as error:
        raise UnwritableError(f"table {root}", error) from error
    return table


def opened(root: str, version: int | None = None) -> DeltaTable:
    """Return a table, open at a version; None for the newest.

    Raises
    ------
    TableNotFoundError
        If there is none.
    DeltaError, OSError
        If it cannot be read.
    """
    return DeltaTable(root, version=version)


def stored_rows(table: DeltaTable) -> pl.LazyFrame:
    """Return the rows of a table. Polars itself finds no files below "my data".

    Raises
    ------
    DeltaError
        If its files cannot be listed.
    """
    return pl.scan_pyarrow_dataset(table.to_pyarrow_dataset())


def live_files(table: DeltaTable) -> pa.Table:
    """Return the files of a table with their statistics. `pyarrow.table` would load pandas first, for a second.

    Raises
    ------
    DeltaError
        If they cannot be read.
    """
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def due_for_checkpoint(before: int, version: int) -> bool:
    """Return whether a table at `version` needs a checkpoint, if it was last checked at the version `before`."""
    made, needed = (commits // COMMITS_BETWEEN_CHECKPOINTS for commits in (before + 1, version + 1))
    return needed > made  # version 0 is a commit, too


def checkpointed(table: DeltaTable, root: str) -> DeltaTable:
    """Return a table opened anew, with a checkpoint and a shorter log; without them if they cannot be made."""
    with contextlib.suppress(DeltaError, OSError):
        table.create_checkpoint()
        if is_local(root):
            log = Path(root, LOG)
            sync_with_names([log / f"{table.version():020d}.checkpoint.parquet", log / LAST_CHECKPOINT])
            archive(Path(root), table.version())
        return opened(root)
    return table


def sync_commits(root: str, first: int, last: int) -> None:
    """Sync the commits of a table on a disk, from a version to another; on return they are on disk.

    Raises
    ------
    OSError
        If they cannot be synced.
    """
    log = Path(root, LOG)
    sync_with_names([log / f"{version:020d}.json" for version in range(first, last + 1)])
