"""Writes the Parquet files of a Delta table, each with the statistics by which readers choose among them."""

from __future__ import annotations

import time
import uuid
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from cluster.storage.commit_log import open_files

LONGEST_BOUND = 32
"""Characters; a column with longer texts tells no least and greatest one."""


def write_data_file(root: str, rows: pa.Table, *, data_change: bool = True) -> AddAction:
    """Write rows into a new file of a table; return what a commit says of it.

    Parameters
    ----------
    root
        Folder (or URI) of the table.
    rows
        What is in the file.
    data_change
        False if the rows are in the table already.
    """
    files, folder = open_files(root)
    name = f"part-{uuid.uuid4()}.parquet"
    path = str(PurePosixPath(folder, name))
    pq.write_table(rows, path, filesystem=files, compression="snappy")
    size = files.get_file_info(path).size
    stats = msgspec.json.encode(statistics_of(rows)).decode()
    return AddAction(name, size, {}, time.time_ns() // 1_000_000, data_change, stats)


def statistics_of(rows: pa.Table) -> dict[str, Any]:
    """Return the statistics that Delta keeps of a file with these rows.

    Examples
    --------
    >>> statistics_of(pa.table({"at": [3, 1], "text": ["a", None]}))["minValues"]
    {'at': 1, 'text': 'a'}
    """
    bounds = {name: found for name in rows.column_names if (found := _bounds(rows.column(name))) is not None}
    return {
        "numRecords": rows.num_rows,
        "minValues": {name: least for name, (least, _) in bounds.items()},
        "maxValues": {name: greatest for name, (_, greatest) in bounds.items()},
        "nullCount": {name: rows.column(name).null_count for name in rows.column_names},
    }


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        return None
    if column.null_count == len(column):
        return None
    if pa.types.is_string(kind) and pc.max(pc.utf8_length(column)).as_py() > LONGEST_BOUND:
        return None
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]
