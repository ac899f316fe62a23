"""Tables beyond memory: cut by the hash of a key into slices on disk, of which one is in memory at a time.

Slices are numbered like buckets (their number is a multiple of that of buckets), so a bucket that receives rows by the
same key needs only its own slices.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cluster.fjord.buckets import bucket_numbers
from cluster.fjord.lookup_tables import LookupTable

ROWS_AT_ONCE = 100_000
"""Rows of a snapshot that are in memory while it is cut."""


class SlicedTable:
    """A table in slices.

    Parameters
    ----------
    count
        How many slices there are.
    kind
        Type of the key.
    load
        Returns one slice.
    """

    def __init__(self, count: int, kind: pl.DataType, load: Callable[[int], LookupTable]) -> None:
        self._count = count
        self._kind = kind
        self._load = load

    def parts(self, probes: pl.Series | None) -> Iterator[tuple[NDArray[np.int64] | None, LookupTable]]:
        """Yield places of values, and the slice with the rows of these values."""
        assert probes is not None  # noqa: S101 - a sliced table is never read without a key
        # Values that no key of this type can equal may go to any slice.
        numbers = _slices(probes.cast(self._kind, strict=False), self._count)
        for number in np.unique(numbers):
            yield np.flatnonzero(numbers == number).astype(np.int64), self._load(int(number))


def _slices(values: pl.Series, count: int) -> NDArray[np.int32]:
    """Return the slices of values; integers that equal one real in comparisons are in one slice."""
    if values.dtype == pl.Int64:
        as_reals = values.cast(pl.Float64).cast(pl.Int64, strict=False)
        values = pl.select(pl.coalesce(as_reals, values)).to_series()
    return bucket_numbers(values, count)


def slice_file(folder: Path, number: int) -> Path:
    """Return the file of a slice."""
    return folder / f"{number:06d}.parquet"


def cut(snapshot: Path, folder: Path, count: int, key: str, table: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Write a table in slices, unless that has been done.

    Parameters
    ----------
    snapshot
        The Parquet file of a relation.
    folder
        The folder of the slices; it exists either completely or not at all.
    count
        How many slices.
    key
        The column of the table by which it is cut; rows with NULL there are in no slice.
    table
        Computes rows of the table from some rows of the relation.
    """
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    unfinished.mkdir(parents=True)
    writers: list[pq.ParquetWriter] = []
    for batch in pq.ParquetFile(snapshot).iter_batches(batch_size=ROWS_AT_ONCE):
        rows = pl.DataFrame(pa.Table.from_batches([batch]))
        piece = table(rows).drop_nulls(key)
        if not writers:
            schema = piece.to_arrow().schema
            writers = [pq.ParquetWriter(slice_file(unfinished, number), schema) for number in range(count)]
        numbers = pl.Series("fjord_slice", _slices(piece[key], count))
        for (number,), part in piece.with_columns(numbers).partition_by("fjord_slice", as_dict=True).items():
            writers[int(number)].write_table(part.drop("fjord_slice").to_arrow())
    for writer in writers:
        writer.close()
    try:
        unfinished.rename(folder)
    except OSError:  # another worker was faster
        shutil.rmtree(unfinished)
