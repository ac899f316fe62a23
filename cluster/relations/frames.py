"""Relations that Polars reads: CSV files, whose types come from all rows, Parquet files, and Delta tables.

**The types of a CSV file's columns: those that Polars infers from all of its rows, piece by piece.**

Polars looks at all rows together, which takes fifty bytes for each besides the file: twenty times the file, if rows are
short. A piece ends where a row ends: behind a line that has, together with those before, both quotes of each text::

    id,note          header, before each piece
    1,short          piece 1:  INTEGER, TEXT
    2,"two
    lines"           still piece 1
    3.5,              piece 2:  REAL, NULL           together:  REAL, TEXT

Each is read at the place where it really is, which is looked up anew every time. Errors do not pass on the words of the
libraries, which quote lines and values; they name a column only if the relation declares it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from cluster.language.comparisons import Comparison
from cluster.language.errors import masked
from cluster.operators.columns import Column, Schema
from cluster.relations.allowed_files import AllowedFiles, may_be_of_elsewhere
from cluster.relations.fitting import POLARS_TYPES, matched, predicate, servable, settled
from cluster.relations.source import (
    Limits,
    RelationSourceError,
    SourceAwayError,
    SourceColumn,
    SourceRefusedError,
    SourceSchemaError,
    SourceTooLargeError,
)
from protocols.wire.streams import FieldType

PIECE_BYTES: Final = 1024**2
_WIDER: Final[Mapping[frozenset[pl.DataType], pl.DataType]] = {
    frozenset((pl.Int64(), pl.Float64())): pl.Float64(),
    frozenset((pl.Int64(), pl.Int128())): pl.Int128(),
}
"""The types of columns with values of two types; with values of any others, they are texts."""


def types_in(place: Path, *, piece_bytes: int = PIECE_BYTES) -> dict[str, pl.DataType]:
    """Return the types of the columns of a file, by their names.

    Parameters
    ----------
    place
        The file.
    piece_bytes
        About how long pieces are.

    Raises
    ------
    OSError
        If it cannot be read.
    pl.exceptions.PolarsError
        If its content is none.
    """
    types: dict[str, pl.DataType | None] = {}
    """None as long as all values are NULL."""
    with place.open("rb") as file:
        header = _header(file, piece_bytes)
        for piece in _pieces(file, piece_bytes):
            for name, found in _inferred(header + piece, types).items():
                types[name] = _of_both(types.get(name), found)
    return {name: pl.String() if found is None else found for name, found in (types or _inferred(header, {})).items()}


def scanned(source: Path | bytes, types: dict[str, pl.DataType] | None = None) -> pl.LazyFrame:
    """Return a scan of a file, or of its content, with types of its columns; None to infer them from all rows."""
    return pl.scan_csv(
        source,
        glob=False,
        infer_schema=types is None,
        infer_schema_length=None,
        try_parse_dates=True,
        schema_overrides=types,
    )


def _inferred(content: bytes, known: Mapping[str, pl.DataType | None]) -> dict[str, pl.DataType | None]:
    """Return the types of columns, None where all values are NULL, which Polars takes for texts.

    Whether they are is not looked at where it makes no difference to what is known.
    """
    rows = scanned(content)
    types: dict[str, pl.DataType | None] = dict(rows.collect_schema())
    unsure = [name for name, found in types.items() if found == pl.String and known.get(name) != pl.String]
    if unsure:
        empty = rows.select(pl.col(unsure).is_null().all()).collect()
        types |= dict.fromkeys(name for name in unsure if empty[name].all())
    return types


def _of_both(one: pl.DataType | None, other: pl.DataType | None) -> pl.DataType | None:
    """Return the type of a column of which some values are of one type, and some of another."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    return _WIDER.get(frozenset((one, other)), pl.String())


def _header(file: BinaryIO, piece_bytes: int) -> bytes:
    """Return a file's first row, and stand behind it."""
    content = b""
    while read := file.read(max(piece_bytes, len(content))):
        content += read
        end = quotes = 0
        while end < (line := content.find(b"\n", end) + 1):
            quotes += content.count(b'"', end, line)
            end = line
            if quotes % 2 == 0:
                file.seek(end)
                return content[:end]
    return content


def _pieces(file: BinaryIO, piece_bytes: int) -> Iterator[bytes]:
    """Yield what is left of a file in pieces that end where rows end."""
    kept, wanted = b"", piece_bytes
    while read := file.read(wanted):
        piece, kept = _cut(kept + read)
        if piece:
            yield piece
        # A row that is longer than a piece, or a quote too many: what is read again and again is as long each time.
        wanted = piece_bytes if piece else len(kept)
    if kept:
        yield kept


def _cut(content: bytes) -> tuple[bytes, bytes]:
    """Return content up to where its last whole row ends, and the rest."""
    end = content.rfind(b"\n") + 1
    quotes = content.count(b'"', 0, end)
    while quotes % 2:
        before = content.rfind(b"\n", 0, end - 1) + 1
        quotes -= content.count(b'"', before, end)
        end = before
    return content[:end], content[end:]


_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f]")
"""What the library of Delta tables reads as another character, in paths."""
_COLUMN: Final = re.compile(r"column '([^']*)'")
"""How Polars names a column in its errors."""
LOG: Final = "_delta_log"
_TEXT_BYTES, _WITHIN = 16, 12
"""A text takes so many bytes, and those that are longer than so many bytes their length besides."""
_MOST_PER_LETTER: Final = _TEXT_BYTES + 1
"""A letter of a file takes no more bytes in memory: an empty text between two commas."""


class _FrameSource(ABC):
    """The common part of all these sources.

    Parameters
    ----------
    path
        The file or folder.
    limits
        Limits on memory and rows.
    files
        Which files may be read.
    """

    kind: str
    has_named_columns = True
    """False if what names the columns may be anything."""

    def __init__(self, path: Path, *, limits: Limits, files: AllowedFiles) -> None:
        self.shown = f"{self.kind}:{masked(str(path))}"
        self._path = path
        self._limits = limits
        self._files = files

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns."""
        with self._explained(), self._reading() as place:
            return self._columns(self._scan(place))

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows."""
        with self._explained(columns), self._reading() as place:
            texts = tuple(column.name for column in columns if column.type is FieldType.TEXT)
            self._check(place, columns)
            lazy = self._scan(place, as_text=texts)
            types = lazy.collect_schema()
            pairs = matched(columns, self._columns(lazy))
            by_name = {column.name: (column, given) for column, given in pairs}
            served = tuple(
                Comparison(given.name, each.operator, each.values)
                for each in condition
                for column, given in [by_name[each.column]]
                if servable(each, column, given) and not types[given.name].is_temporal()
            )
            if served:
                lazy = lazy.filter(predicate(served))
            lazy = lazy.select(_fitted(column, given, types[given.name]) for column, given in pairs)
            self._check_rows(place, lazy)
            frame = lazy.collect()
        self._limits.check(frame.height, int(frame.estimated_size()))
        return settled(frame, columns, condition)

    def estimate(self) -> int | None:
        """Return the number of rows, if it is known without reading them."""
        return None

    def _reading(self) -> AbstractContextManager[Path]:
        """Give the place of what is read."""
        return self._files.reading(self._path)

    @abstractmethod
    def _scan(self, place: Path, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:
        """Return a scan; if the source has no types, it reads the columns in `as_text` as written."""

    def _check(self, place: Path, columns: Schema) -> None:  # noqa: B027 - not every source knows its size
        """Refuse a source that is too large, before reading it, if its size is known."""

    def _check_rows(self, place: Path, rows: pl.LazyFrame) -> None:  # noqa: B027 - not every source can be read twice
        """Refuse rows that would take too much memory, before they are there."""

    def _columns(self, lazy: pl.LazyFrame) -> tuple[SourceColumn, ...]:
        return tuple(
            _column(name, dtype, None if self.has_named_columns else number)
            for number, (name, dtype) in enumerate(lazy.collect_schema().items(), start=1)
        )

    @contextmanager
    def _explained(self, columns: Schema = ()) -> Iterator[None]:
        """Convert the exceptions of the libraries into our own errors."""
        try:
            yield
        except RelationSourceError:
            raise
        except TableNotFoundError:
            raise SourceAwayError(f"{self.shown} cannot be read: there is no Delta table") from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SourceAwayError(f"{self.shown} cannot be read: {reason}") from None
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, DeltaError, pa.ArrowException) as error:
            column = _column_of(error, columns)
            what = (
                f"its content is not that of a {self.kind} source"
                if column is None
                else f"the conversion of a value of column {column!r} fails"
            )
            reason = f"{self.shown} cannot be read: {what} ({type(error).__name__})"
            raise SourceSchemaError(reason, column=column) from None


class CsvSource(_FrameSource):
    """A CSV file with names in its first line. Types are inferred from the values."""

    kind = "csv"
    has_named_columns = False

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns."""
        with self._explained(), self._reading() as place:
            self._check(place, ())
        return super().columns()

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows."""
        before = self._state()
        frame = super().rows(columns, condition)
        if self._state() != before:
            raise SourceAwayError(
                f"{self._path} was written to while it was read", hint="write another file and rename it"
            )
        return frame

    def _state(self) -> tuple[int, int, int]:
        return _state(self._files.file(self._path))

    def _scan(self, place: Path, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:
        _state(place)
        types = types_in(place)
        folded = {name.casefold() for name in as_text}
        return scanned(place, types | {name: pl.String() for name in types if name.casefold() in folded})

    def _check(self, place: Path, columns: Schema) -> None:  # noqa: ARG002 - any column may be all of it
        size = place.stat().st_size
        if size > 4 * self._limits.max_bytes:
            raise SourceTooLargeError(f"the file has {size:,} bytes, the limit is {self._limits.max_bytes:,} in memory")

    def _check_rows(self, place: Path, rows: pl.LazyFrame) -> None:
        """Count a file that may be too large: piece by piece, as no more of it than that is in memory at a time."""
        letters = place.stat().st_size
        if letters <= self._limits.max_rows and letters * _MOST_PER_LETTER <= self._limits.max_bytes:
            return
        sizes = [_bytes_of(name, dtype) for name, dtype in rows.collect_schema().items()]
        count, size = rows.select(pl.len(), pl.sum_horizontal(sizes).alias("bytes")).collect(engine="streaming").row(0)
        self._limits.check(count, int(size))


class ParquetSource(_FrameSource):
    """A Parquet file."""

    kind = "parquet"

    def estimate(self) -> int | None:
        """Return the number of rows in the file's metadata."""
        with self._explained(), self._reading() as place:
            _state(place)
            return int(pq.read_metadata(place).num_rows)

    def _scan(self, place: Path, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:  # noqa: ARG002 - types are in the file
        _state(place)
        return pl.scan_parquet(place, glob=False)

    def _check(self, place: Path, columns: Schema) -> None:
        _state(place)
        metadata = pq.read_metadata(place)
        wanted = {column.name.casefold() for column in columns}
        size = 0
        for group in range(metadata.num_row_groups):
            described = metadata.row_group(group)
            parts = [described.column(number) for number in range(described.num_columns)]
            size += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.casefold() in wanted)
        self._limits.check(metadata.num_rows, size)


class DeltaSource(_FrameSource):
    """A Delta table, in its newest version. Its log and its files have to be where relations may read."""

    kind = "delta"

    def estimate(self) -> int | None:
        """Return the number of rows in the statistics of its files."""
        with self._explained(), self._reading() as place:
            records = pl.DataFrame(pa.table(self._table(place).get_add_actions(flatten=True)))["num_records"]
            return None if records.null_count() else int(records.sum())

    @contextmanager
    def _reading(self) -> Iterator[Path]:
        place = self._files.folder(self._path)
        if _MISREAD.search(str(place)):
            raise SourceRefusedError(f"{self.shown} has a character in its path that Delta tables read as another")
        if (log := place / LOG).is_dir():
            self._files.folder(log)
            for entry in log.rglob("*"):
                if entry.is_symlink() or may_be_of_elsewhere(entry):
                    self._files.file(entry)
        yield place

    def _scan(self, place: Path, *, as_text: tuple[str, ...] = ()) -> pl.LazyFrame:  # noqa: ARG002 - types are in the table
        table = self._table(place)
        for path in pl.DataFrame(pa.table(table.get_add_actions(flatten=True)))["path"]:
            for written in {path, unquote(path)}:
                if "://" in written or Path(written).is_absolute() or ".." in Path(written).parts:
                    raise SourceRefusedError(f"the log of {self.shown} names a file outside of the table")
                self._files.file(place / written)
        return pl.scan_delta(table, use_pyarrow=True)  # Polars itself finds no files below "my data"

    def _table(self, place: Path) -> DeltaTable:
        return DeltaTable(str(place))


def _column(name: str, dtype: pl.DataType, place: int | None) -> SourceColumn:
    declared = str(dtype)
    if dtype == pl.Null:
        return SourceColumn(name, None, "always NULL", place=place)
    for type_, fits in (
        (FieldType.BOOLEAN, dtype == pl.Boolean),
        (FieldType.INTEGER, dtype.is_integer() or isinstance(dtype, pl.Date | pl.Datetime)),
        (FieldType.REAL, dtype.is_float() or dtype.is_decimal()),
        (FieldType.TEXT, isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Time)),
    ):
        if fits:
            return SourceColumn(name, type_, declared, place=place)
    return SourceColumn(name, FieldType.TEXT, declared, usable=False, place=place)


def _fitted(column: Column, given: SourceColumn, dtype: pl.DataType) -> pl.Expr:
    found = pl.col(given.name)
    if column.type is FieldType.INTEGER and isinstance(dtype, pl.Date | pl.Datetime):
        zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
        found = found.cast(pl.Datetime("us", zone)).to_physical()
    return found.cast(POLARS_TYPES[column.type]).alias(column.name)


def _bytes_of(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return how many bytes the values of a column take, without those that say which are NULL."""
    if isinstance(dtype, pl.String):
        length = pl.col(name).str.len_bytes()
        return pl.len() * _TEXT_BYTES + pl.when(length > _WITHIN).then(length).otherwise(0).sum()
    return pl.len() / 8 if isinstance(dtype, pl.Boolean) else pl.len() * 8


def _state(path: Path) -> tuple[int, int, int]:
    """Return a state that changes whenever a file is written."""
    try:
        found = path.stat()
    except OSError as error:
        raise SourceAwayError(f"{path}: {error.strerror or error}") from None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _column_of(error: Exception, columns: Schema) -> str | None:
    """Return the column of a relation that an error of a library names, if it does."""
    found = _COLUMN.search(str(error))
    names = {column.name.casefold(): column.name for column in columns}
    return None if found is None else names.get(found[1].casefold())
