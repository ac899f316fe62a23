"""Reading stored rows of one query, in order, and no more of the others than lies among them.

    files     | a a b |  | b c c |  | a c c |       rows of a from number 2 on: the first file and the last

Which numbers come first is found without reading rows. These are then read in batches of some megabytes, as one row of
another query may have as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

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
