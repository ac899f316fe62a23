"""Disk space of a table: of the files it is made of now, and of files replaced that readers behind still need."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cluster.storage.appending import AppendedTable
from cluster.storage.archived_log import is_local


class DiskUse(NamedTuple):
    """Bytes of a table's data files."""

    live_bytes: int
    replaced_bytes: int


def disk_use(table: AppendedTable) -> DiskUse:
    """Return the bytes of a table's files; replaced files are counted only where the table is on a local disk.

    Raises
    ------
    DeltaError, OSError
        If it cannot be seen.
    """
    files = pa.table(table.delta.get_add_actions(flatten=True))
    live = sum(files.column("size_bytes").to_pylist())
    there = sum(path.stat().st_size for path in Path(table.root).glob("*.parquet")) if is_local(table.root) else live
    return DiskUse(live, max(0, there - live))
