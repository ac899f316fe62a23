"""Files with a table in them: CSV, Parquet, JSON lines. Their columns as FjordSQL has them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

from cluster.errors import ClusterError
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.algebra import Column, Schema
from protocols.streams import RESERVED_PREFIX, FieldType

SUFFIXES = {".csv": "CSV", ".parquet": "Parquet", ".jsonl": "JSON lines", ".ndjson": "JSON lines"}

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")


class TableFileError(ClusterError):
    """A file that cannot be read as a table, or lacks what is asked of it."""


@dataclass(frozen=True, slots=True, eq=False)
class TableFile:
    """A file with a table.

    Parameters
    ----------
    path
        Where it is.
    kind
        CSV, Parquet or JSON lines.
    rows
        A scan of it.
    columns
        Those that FjordSQL can read; integers of any width are INTEGER, dates and times are microseconds since 1970.
    unusable
        Names of the others.
    """

    path: Path
    kind: str
    rows: pl.LazyFrame
    columns: Schema
    unusable: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return str(self.path)

    def column(self, name: str) -> Column | None:
        """Return a column; names have no case."""
        return next((each for each in self.columns if each.name.casefold() == name.casefold()), None)

    def fitted(self, names: Collection[str]) -> list[pl.Expr]:
        """Return these columns with the types of FjordSQL."""
        types = self.rows.collect_schema()
        return [_fitted(each, types[each.name]) for each in self.columns if each.name in names]

    def read(self) -> pl.DataFrame:
        """Return all of it.

        Raises
        ------
        TableFileError
            If it cannot be read.
        """
        with explained(self.name):
            return self.rows.select(self.fitted({each.name for each in self.columns})).collect()


def open_table(path: Path, *, texts: Collection[str] = (), instants: str | None = None) -> TableFile:
    """Return a file's table. Types are those of the file, in a CSV file those of the values.

    Parameters
    ----------
    path
        A name that ends with .csv, .parquet, .jsonl or .ndjson.
    texts
        Names of columns that are read as texts, without regard to case.
    instants
        Name of a column that stays as it is written in a CSV file: whoever reads instants can say which it cannot.

    Raises
    ------
    TableFileError
        If it cannot be read.
    """
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise TableFileError(
            f"{path} is no file that can be read as a table", hint=f"its name ends with {', '.join(SUFFIXES)}"
        )
    wanted = {name.casefold() for name in texts}
    with explained(str(path)):
        with path.open("rb") as file:
            if not file.read(1):
                raise TableFileError(f"{path} is empty")
        rows = _scanned(path, kind, wanted | ({instants.casefold()} if instants else set()))
        if kind == "JSON lines":
            _check_lines(path)
        types = rows.collect_schema()
    columns = {name: _type(dtype, as_text=name.casefold() in wanted) for name, dtype in types.items()}
    usable: dict[str, Column] = {}
    for name, type_ in columns.items():
        if type_ is not None and _nameable(name) and name.casefold() not in usable:
            usable[name.casefold()] = Column(name, type_)
    known = tuple(usable.values())
    left_out = tuple(name for name in columns if name not in {each.name for each in known})
    return TableFile(path, kind, rows, known, left_out)


def _scanned(path: Path, kind: str, as_written: Collection[str]) -> pl.LazyFrame:
    if kind == "Parquet":
        return pl.scan_parquet(path, glob=False)
    if kind == "JSON lines":
        return pl.scan_ndjson(path, infer_schema_length=None)
    names = pl.scan_csv(path, glob=False, infer_schema_length=0).collect_schema().names()
    overrides = {name: pl.String for name in names if name.casefold() in as_written}
    return pl.scan_csv(path, glob=False, infer_schema_length=None, try_parse_dates=True, schema_overrides=overrides)


def _check_lines(path: Path) -> None:
    """Refuse a file with a line that is no JSON object: Polars leaves out what comes after some of those."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            except msgspec.DecodeError as error:
                raise TableFileError(f"line {number} of {path} is no JSON object: {error}") from None


def _type(dtype: pl.DataType, *, as_text: bool) -> FieldType | None:
    if as_text and (dtype.is_numeric() or dtype in (pl.Boolean, pl.String)):
        return FieldType.TEXT
    for type_, fits in (
        (FieldType.BOOLEAN, dtype == pl.Boolean),
        (FieldType.INTEGER, dtype.is_integer() or isinstance(dtype, pl.Date | pl.Datetime)),
        (FieldType.REAL, dtype.is_float() or dtype.is_decimal()),
        (FieldType.TEXT, dtype == pl.Null or isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Time)),
    ):
        if fits:
            return type_
    return None


def _nameable(name: str) -> bool:
    return _NAME.match(name) is not None and not name.casefold().startswith(RESERVED_PREFIX)


def _fitted(column: Column, dtype: pl.DataType) -> pl.Expr:
    found = pl.col(column.name)
    if column.type is FieldType.INTEGER and isinstance(dtype, pl.Date | pl.Datetime):
        zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
        found = found.cast(pl.Datetime("us", zone)).to_physical()
    return found.cast(POLARS_TYPES[column.type]).alias(column.name)


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Turn what reading a file raises into an error of ours."""
    try:
        yield
    except OSError as error:
        raise TableFileError(f"{shown} cannot be read: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise TableFileError(f"{shown} cannot be read: {reason}") from None
