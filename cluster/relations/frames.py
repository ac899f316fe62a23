"""Relations that Polars reads: CSV and Parquet files, and Delta tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from cluster.language.columns import Column, Schema
from cluster.language.comparisons import Comparison
from cluster.language.secrets import masked
from cluster.relations.fitting import POLARS_TYPES, matched, predicate, servable, settled
from cluster.relations.source import (
    Limits,
    RelationSourceError,
    SourceAwayError,
    SourceColumn,
    SourceSchemaError,
    SourceTooLargeError,
)
from protocols.wire.streams import FieldType


class _FrameSource(ABC):
    """The common part of all these sources."""

    def __init__(self, shown: str, limits: Limits) -> None:
        self.shown = shown
        self._limits = limits

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns."""
        with _explained(self.shown):
            return _columns(self._scan())

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows."""
        with _explained(self.shown):
            texts = tuple(column.name for column in columns if column.type is FieldType.TEXT)
            self._check(columns)
            lazy = self._scan(as_text=texts)
            types = lazy.collect_schema()
            pairs = matched(columns, _columns(lazy))
            by_name = {column.name: (column, given) for column, given in pairs}
            served = tuple(
                Comparison(given.name, each.operator, each.values)
                for each in condition
                for column, given in [by_name[each.column]]
                if servable(each, column, given) and not types[given.name].is_temporal()
            )
            if served:
                lazy = lazy.filter(predicate(served))
            frame = lazy.select(_fitted(column, given, types[given.name]) for column, given in pairs).collect()
        self._limits.check(frame.height, int(frame.estimated_size()))
        return settled(frame, columns, condition)

    def estimate(self) -> int | None:
        """Return the number of rows, if it is known without reading them."""
        return None

    @abstractmethod
    def _scan(self, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:
        """Return a scan; if the source has no types, it reads the columns in `as_text` as written."""

    def _check(self, columns: Schema) -> None:  # noqa: B027 - not every source knows its size
        """Refuse a source that is too large, before reading it, if its size is known."""


class _FileSource(_FrameSource):
    """The common part of sources that are one file.

    Parameters
    ----------
    path
        The file.
    limits
        Limits on memory and rows.
    """

    kind: str

    def __init__(self, path: Path, *, limits: Limits) -> None:
        super().__init__(f"{self.kind}:{path}", limits)
        self._path = path


class CsvSource(_FileSource):
    """A CSV file with names in its first line. Types are inferred from the values."""

    kind = "csv"

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows."""
        before = _state(self._path)
        frame = super().rows(columns, condition)
        if _state(self._path) != before:
            raise SourceAwayError(
                f"{self._path} was written to while it was read", hint="write another file and rename it"
            )
        return frame

    def _scan(self, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:
        _state(self._path)

        def scan(texts: tuple[str, ...]) -> pl.LazyFrame:
            return pl.scan_csv(
                self._path,
                glob=False,
                infer_schema_length=None,
                try_parse_dates=True,
                schema_overrides=dict.fromkeys(texts, pl.String),
            )

        found = scan(())
        folded = {name.casefold() for name in as_text}
        texts = tuple(name for name in found.collect_schema() if name.casefold() in folded)
        return scan(texts) if texts else found

    def _check(self, columns: Schema) -> None:  # noqa: ARG002 - any column may be all of it
        size = self._path.stat().st_size
        if size > 4 * self._limits.max_bytes:
            raise SourceTooLargeError(f"the file has {size:,} bytes, the limit is {self._limits.max_bytes:,} in memory")


class ParquetSource(_FileSource):
    """A Parquet file."""

    kind = "parquet"

    def estimate(self) -> int | None:
        """Return the number of rows in the file's metadata."""
        with _explained(self.shown):
            _state(self._path)
            return int(pq.read_metadata(self._path).num_rows)

    def _scan(self, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:  # noqa: ARG002 - types are in the file
        _state(self._path)
        return pl.scan_parquet(self._path, glob=False)

    def _check(self, columns: Schema) -> None:
        _state(self._path)
        metadata = pq.read_metadata(self._path)
        wanted = {column.name.casefold() for column in columns}
        size = 0
        for group in range(metadata.num_row_groups):
            described = metadata.row_group(group)
            parts = [described.column(number) for number in range(described.num_columns)]
            size += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.casefold() in wanted)
        self._limits.check(metadata.num_rows, size)


class DeltaSource(_FrameSource):
    """A Delta table, in its newest version.

    Parameters
    ----------
    location
        Folder or URI.
    limits
        Limits on memory and rows.
    """

    def __init__(self, location: str, *, limits: Limits) -> None:
        super().__init__(f"delta:{masked(location)}", limits)
        self._location = location

    def estimate(self) -> int | None:
        """Return the number of rows in the statistics of its files."""
        with _explained(self.shown):
            records = pl.DataFrame(pa.table(self._table().get_add_actions(flatten=True)))["num_records"]
            return None if records.null_count() else int(records.sum())

    def _scan(self, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:  # noqa: ARG002 - types are in the table
        return pl.scan_delta(self._table(), use_pyarrow=True)  # Polars itself finds no files below "my data"

    def _table(self) -> DeltaTable:
        return DeltaTable(self._location)


def _columns(lazy: pl.LazyFrame) -> tuple[SourceColumn, ...]:
    return tuple(_column(name, dtype) for name, dtype in lazy.collect_schema().items())


def _column(name: str, dtype: pl.DataType) -> SourceColumn:
    declared = str(dtype)
    if dtype == pl.Null:
        return SourceColumn(name, None, "always NULL")
    for type_, fits in (
        (FieldType.BOOLEAN, dtype == pl.Boolean),
        (FieldType.INTEGER, dtype.is_integer() or isinstance(dtype, pl.Date | pl.Datetime)),
        (FieldType.REAL, dtype.is_float() or dtype.is_decimal()),
        (FieldType.TEXT, isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Time)),
    ):
        if fits:
            return SourceColumn(name, type_, declared)
    return SourceColumn(name, FieldType.TEXT, declared, usable=False)


def _fitted(column: Column, given: SourceColumn, dtype: pl.DataType) -> pl.Expr:
    found = pl.col(given.name)
    if column.type is FieldType.INTEGER and isinstance(dtype, pl.Date | pl.Datetime):
        zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
        found = found.cast(pl.Datetime("us", zone)).to_physical()
    return found.cast(POLARS_TYPES[column.type]).alias(column.name)


def _state(path: Path) -> tuple[int, int, int]:
    """Return a state that changes whenever a file is written."""
    try:
        found = path.stat()
    except OSError as error:
        raise SourceAwayError(f"{path}: {error.strerror or error}") from None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def _explained(shown: str) -> Iterator[None]:
    """Convert the exceptions of the libraries into our own errors."""
    try:
        yield
    except RelationSourceError:
        raise
    except (TableNotFoundError, OSError) as error:
        raise SourceAwayError(f"{shown} cannot be read: {_first_line(error)}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, DeltaError, pa.ArrowException) as error:
        raise SourceSchemaError(f"{shown} cannot be read: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return masked(str(error).strip().partition("\n")[0][:300])
