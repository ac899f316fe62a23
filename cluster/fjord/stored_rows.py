"""Stored rows of a stream: in a Parquet file of its table, or in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Protocol

import polars as pl

from cluster.fjord.batch import START
from protocols.wire.batches import DEFAULT_RATE_COLUMN


class StoredRows(Protocol):
    """Rows of a stream, with their stamps (START), fields, and columns of Fjord's own."""

    @property
    def columns(self) -> frozenset[str]:
        """Names of all columns."""
        ...

    def read(
        self, columns: Sequence[str], between_us: tuple[int, int] | None = None, wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return these columns, of all rows or of those stamped between two instants for which a condition holds."""
        ...

    def rest(self, from_us: int) -> StoredRows | None:
        """Return a source of the rows stamped at or after an instant, and maybe others; None if there are none."""
        ...


class RowsInFile:
    """A Parquet file.

    Parameters
    ----------
    path
        The path.
    last_us
        Its last stamp, if it is known; otherwise the file is read for it.
    """

    def __init__(self, path: str, *, last_us: int | None = None) -> None:
        self._path = path
        self._last_us = last_us

    @property
    def path(self) -> str:
        """The path."""
        return self._path

    @cached_property
    def columns(self) -> frozenset[str]:
        """Names of all columns."""
        # `read_parquet_schema` takes a path as a pattern.
        return frozenset(pl.scan_parquet(self._path, glob=False).collect_schema())

    def read(
        self, columns: Sequence[str], between_us: tuple[int, int] | None = None, wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return these columns."""
        return _scanned([self._path], columns, _conditions(between_us, wanted))

    def rest(self, from_us: int) -> StoredRows | None:
        """Return itself, unless the last stamp lies before an instant."""
        if self._last_us is None:
            self._last_us = pl.scan_parquet(self._path, glob=False).select(pl.col(START).max()).collect().item()
        return self if self._last_us is not None and self._last_us >= from_us else None


class RowsInMemory:
    """A table in memory.

    Parameters
    ----------
    rows
        In any order. Without the column that marks samples at their motes' default rates, all rows count as such.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        if DEFAULT_RATE_COLUMN not in rows.columns:
            rows = rows.with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))
        self._rows = rows

    @property
    def columns(self) -> frozenset[str]:
        """Names of all columns."""
        return frozenset(self._rows.columns)

    def read(
        self, columns: Sequence[str], between_us: tuple[int, int] | None = None, wanted: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return these columns."""
        conditions = _conditions(between_us, wanted)
        rows = self._rows.filter(*conditions) if conditions else self._rows
        return rows.select(columns)

    def rest(self, from_us: int) -> StoredRows | None:
        """Return the rows from an instant on."""
        left = self._rows.filter(pl.col(START) >= from_us)
        return RowsInMemory(left) if left.height else None


def read_together(
    pieces: Sequence[StoredRows],
    columns: Sequence[str],
    between_us: tuple[int, int] | None = None,
    wanted: pl.Expr | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield these columns of pieces that all have them, in their order, as :meth:`StoredRows.read`.

    Files are read together: a micro-batch reads one for each commit of a stream, with a few rows.
    """
    for are_files, some in groupby(pieces, lambda piece: isinstance(piece, RowsInFile)):
        if are_files:
            paths = [piece.path for piece in some if isinstance(piece, RowsInFile)]
            yield _scanned(paths, columns, _conditions(between_us, wanted))
        else:
            yield from (piece.read(columns, between_us, wanted) for piece in some)


def _scanned(paths: list[str], columns: Sequence[str], conditions: Sequence[pl.Expr]) -> pl.DataFrame:
    """Read files; parts that lie before or after are not decoded, nor other columns of rows that are not wanted."""
    if len(paths) == 1 and not conditions:
        return pl.read_parquet(paths[0], columns=list(columns), glob=False)
    # Later files may have columns that a stream did not have before.
    rows = pl.scan_parquet(paths, glob=False, extra_columns="ignore")
    return (rows.filter(*conditions) if conditions else rows).select(columns).collect()


def _conditions(between_us: tuple[int, int] | None, wanted: pl.Expr | None) -> list[pl.Expr]:
    within = None if between_us is None else pl.col(START).is_between(*between_us, closed="left")
    return [condition for condition in (within, wanted) if condition is not None]
