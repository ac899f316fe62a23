"""Files that hold a table, as CSV, Parquet or JSON lines, with their columns in types of FjordSQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from glob import escape
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
import polars as pl

from cluster.local.column_values import (
    column_key,
    fault_of_column,
    read_as_a_whole,
    read_column,
    renamed,
    type_of,
    without_values,
)
from cluster.local.csv_files import (
    GZIP,
    USUAL_STYLE,
    CsvStyle,
    not_utf8,
    numbered_records,
    open_bytes,
    scan_csv,
    style_of,
)
from cluster.local.errors import SHOWN_ROWS, TableFileError, explained
from cluster.local.file_instants import written_instants
from cluster.operators.columns import Column, Schema
from protocols.text.plain_text import printable
from protocols.wire.names import folded, normal
from protocols.wire.streams import FieldType


def scan_json_lines(path: Path, as_written: Collection[str]) -> pl.LazyFrame:
    """Return a scan of a file, its columns of the types that all of their values have.

    Parameters
    ----------
    path
        The file.
    as_written
        Names of columns whose values become texts, in lower case.

    Raises
    ------
    TableFileError
        If a line is no object; the message names it.
    """
    names = _check(path)
    if not names:
        raise TableFileError(f"{path} is empty")
    overrides = {name: pl.String for name in names if column_key(name) in as_written}
    source = escape(str(path))  # Polars takes some letters of a name for a pattern
    guessed = pl.scan_ndjson(source, infer_schema_length=None, schema_overrides=overrides).collect_schema()
    return pl.scan_ndjson(source, schema=guessed)


def numbered_objects(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers."""
    with open_bytes(path) as file:
        yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())


def _check(path: Path) -> set[str]:
    """Return the names in a file; raise if a line is no object, since Polars omits what follows some of these."""
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    names: set[str] = set()
    for number, line in numbered_objects(path):
        try:
            if not line.isascii():
                line.decode()
            found = decoder.decode(line)
            # Names end with a quote and a colon; only a line with more of these can have a name twice.
            if line.count(b'":') + line.count(b'" ') + line.count(b'"\\t') > len(found):
                json.loads(line, object_pairs_hook=_once)
        except UnicodeDecodeError:
            raise not_utf8(path, number) from None
        except (msgspec.DecodeError, json.JSONDecodeError) as error:
            raise TableFileError(
                f"line {number} of {path} is not a JSON object: {error}", hint=_one_a_line(path, line)
            ) from None
        except _TwiceError as error:
            raise TableFileError(f"line {number} of {path} names {error.args[0]!r} twice in one object") from None
        names.update(found)
    return names


def _one_a_line(path: Path, line: bytes) -> str | None:
    """Return how objects that are written over several lines, or in a list, are written one a line."""
    begins = line.lstrip(b"\xef\xbb\xbf \t")[:1]
    if begins not in {b"[", b"{"} or path.suffix == ".gz":
        return None
    which = ".[]" if begins == b"[" else "."
    to = path.with_suffix(".jsonl") if path.suffix == ".json" else path.with_name(f"{path.stem}.lines.jsonl")
    return f"an object stands in each line: jq -c '{which}' {quote(str(path))} > {quote(str(to))}"


class _TwiceError(Exception):
    """An object with two values of a name."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(name)
        found[name] = value
    return found


SUFFIXES = {
    ".csv": "CSV", ".tsv": "CSV", ".txt": "CSV", ".parquet": "Parquet", ".jsonl": "JSON lines",
    ".ndjson": "JSON lines", ".json": "JSON lines",
}  # fmt: skip
COMPRESSED = (".zst", ".bz2", ".xz", ".zip")
_MAGIC = (b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")


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
        By name of each of the others, why it is left out.
    untyped
        Names of columns without a value and without a given type: they are taken for TEXT.
    values
        By name of a column: its values as FjordSQL has them.
    nested
        Names of columns of a JSON file that hold objects or lists.
    style
        How it is written, if it is CSV.
    given
        By name of a column in lower case: the type that was given for it.
    renamed
        By name of a column in FjordSQL: the one in the file, if that is another.
    """

    path: Path
    kind: str
    rows: pl.LazyFrame
    columns: Schema
    unusable: Mapping[str, str]
    untyped: tuple[str, ...] = ()
    values: Mapping[str, pl.Expr] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    style: CsvStyle = USUAL_STYLE
    given: Mapping[str, FieldType] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def note(self) -> str | None:
        """How the file is read, if its name does not tell; else None."""
        if ".txt" not in self.path.suffixes[-2:]:
            return None
        return f"{self.name} is read as CSV, values separated by {self.style.separators}"

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return str(self.path)

    @property
    def without(self) -> str:
        """The columns that are left out, in words; empty if there are none."""
        if not self.unusable:
            return ""
        names = printable(", ".join(f"{name} ({why})" for name, why in self.unusable.items()), lines=False)
        nested = "".join(f"; {self.how_nested_of(name)}" for name in self.nested[:1])
        return f"FjordSQL cannot read {names}{nested}"

    def how_nested_of(self, column: str) -> str:
        """Return how a column of a JSON file is read that holds objects or lists, in words."""
        name = printable(column, lines=False)
        return (
            f"{name} holds objects or lists: --text {name} reads them as JSON, and "
            f"JSON_VALUE({name}, '$.key' RETURNING REAL) a value in them"
        )

    def fitted(self, names: Collection[str]) -> list[pl.Expr]:
        """Return these columns with the types of FjordSQL."""
        return [self.values[each.name] for each in self.columns if each.name in names]

    def read(self) -> pl.DataFrame:
        """Return all of it.

        Raises
        ------
        TableFileError
            If it cannot be read.
        """
        with explained(self.name):
            return self.rows.select(self.fitted({each.name for each in self.columns})).collect()

    def named(self, rows: pl.Series, column: str) -> str:
        """Return the places of some rows and their values in a column, in words.

        Parameters
        ----------
        rows
            For each row, whether it is one of them.
        column
            Name of the column.
        """
        places = rows.arg_true()
        shown = places.head(SHOWN_ROWS).to_list()
        with explained(self.name):
            values = self.rows.select(column).collect().to_series().gather(shown).to_list()
        named = ", ".join(
            f"{line}{'' if value is None or value == '' else f' ({value!r})'}"
            for line, value in zip(self._numbers(shown), values, strict=True)
        )
        more = f" and {len(places) - len(shown):,} more" if len(places) > len(shown) else ""
        return f"{'row' if self.kind == 'Parquet' else 'line'} {named}{more}"

    def _numbers(self, rows: Collection[int]) -> list[int]:
        """Return the lines of rows, or in a Parquet file their numbers, counted from 1."""
        if self.kind == "Parquet":
            return [row + 1 for row in rows]
        records = numbered_records(self.path, self.style) if self.kind == "CSV" else numbered_objects(self.path)
        first = islice(records, max(rows, default=-1) + 1)
        return [number for row, (number, _) in enumerate(first) if row in rows]


def open_table(
    path: Path,
    *,
    types: Mapping[str, FieldType] | None = None,
    instants: str | None = None,
    style: CsvStyle = USUAL_STYLE,
) -> TableFile:
    """Return a file's table. Types are those of the file, in a CSV file those of the values.

    Parameters
    ----------
    path
        A name that ends with one of :data:`SUFFIXES`, and perhaps .gz.
    types
        By name of a column, without regard to case: the type that its values are read as.
    instants
        Name of a column that stays as it is written in a CSV file, so that errors can quote what is no instant.

    Raises
    ------
    TableFileError
        If it cannot be read.
    """
    given = {column_key(name): type_ for name, type_ in (types or {}).items()}
    stamps = column_key(instants) if instants else None
    with explained(str(path)):
        kind = _kind(path)
        style = style_of(path, style) if kind == "CSV" else style
        rows = _scanned(path, kind, given, stamps, style)
        others = renamed(rows.collect_schema().names())
        rows = rows.rename(others)
        dtypes = rows.collect_schema()
        too_large = _too_large(rows, [name for name in dtypes if folded(name) not in {*given, stamps}])
        unknown = [
            name
            for name, dtype in dtypes.items()
            if name.casefold() not in {*given, stamps}
            and (dtype == pl.Null or (kind == "CSV" and isinstance(dtype, pl.String)))
        ]
        untyped = without_values(rows, unknown)
        dated = []
        if kind == "CSV":
            written = {name: written_instants(pl.col(name), numbers=False) for name in unknown if name not in untyped}
            dated = read_as_a_whole(rows, written)
    usable: dict[str, Column] = {}
    values: dict[str, pl.Expr] = {}
    unusable: dict[str, str] = {}
    for name, dtype in dtypes.items():
        key = folded(name)
        type_ = FieldType.INTEGER if name in dated else given.get(key) or type_of(dtype)
        if (why := _fault_of(name, usable.get(column_key(name)), large=name in too_large)) is not None:
            unusable[name] = why
            continue
        if type_ is None:
            unusable[name] = _fault_of_type(dtype)
            continue
        read = (
            written_instants(pl.col(name), numbers=False)
            if name in dated
            else read_column(name, dtype, type_, style.decimal)
        )
        if read is None:
            if key == stamps:
                unusable[name] = _fault_of_type(dtype)
                continue
            held = str(dtype).lower()
            raise TableFileError(
                f"column {name!r} of {path} holds {held}, which cannot be read as {type_.value.upper()}"
            )
        usable[key], values[name] = Column(name, type_), read
    known = tuple(usable.values())
    nested = tuple(
        name for name in unusable if kind == "JSON lines" and dtypes[name].is_nested() and fault_of_column(name) is None
    )
    names = {new: name for name, new in others.items() if normal(name) != new}
    table = TableFile(path, kind, rows, known, unusable, tuple(untyped), values, nested, style, given, names)
    for column in known:
        if column.name.casefold() in given and column.name.casefold() != stamps:
            _check_values(table, column, dtypes[column.name])
    return table


def _kind(path: Path) -> str:
    hint = f"its name ends with {', '.join(SUFFIXES)}"
    if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
        raise TableFileError(f"{path} is not a file", hint="files are read more than once: write it to a file first")
    if path.suffix.lower() in COMPRESSED:
        raise TableFileError(f"{path} is compressed", hint=f"decompress it first; {hint}")
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    kind = SUFFIXES.get(plain.suffix.lower())
    if kind is None:
        raise TableFileError(f"{path} is not a file that can be read as a table", hint=hint)
    with path.open("rb") as raw:
        is_gzip = raw.read(len(GZIP)) == GZIP
    with open_bytes(path) as file:
        begins = file.read(max(map(len, _MAGIC)))
    if not begins:
        raise TableFileError(f"{path} is empty")
    if begins.startswith(_MAGIC) or (is_gzip and kind == "Parquet"):
        raise TableFileError(f"{path} is compressed", hint="decompress it first")
    return kind


def _scanned(
    path: Path, kind: str, given: Mapping[str, FieldType], instants: str | None, style: CsvStyle
) -> pl.LazyFrame:
    if kind == "CSV":
        return scan_csv(path, {*given, *([instants] if instants else [])}, style)
    if kind == "JSON lines":
        return scan_json_lines(path, {name for name, type_ in given.items() if type_ is FieldType.TEXT})
    return pl.scan_parquet(path, glob=False)


def _too_large(rows: pl.LazyFrame, names: Collection[str]) -> list[str]:
    """Return which of some columns have integers that are too large for 64 bits with a sign."""
    dtypes = rows.collect_schema()
    found = [name for name in names if dtypes[name] in (pl.Int128, pl.UInt128)]
    unsigned = [name for name in names if dtypes[name] == pl.UInt64]
    if unsigned:
        most = rows.select(pl.col(unsigned).max()).collect(engine="streaming")
        found += [name for name in unsigned if (most[name][0] or 0) >= 2**63]
    return found


def _fault_of(name: str, same: Column | None, *, large: bool) -> str | None:
    """Return why a column is left out for its name or its values; None if it is not."""
    if same is not None:
        only = "only in case" if folded(name) == folded(same.name) else "only in letters that FjordSQL lacks"
        return f"its name differs from {same.name} {only}"
    if (why := fault_of_column(name)) is not None:
        return why
    return f"it has integers of more than 64 bits, which --type {name}=REAL reads" if large else None


def _fault_of_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Struct):
        return "it holds objects"
    return "it holds lists" if dtype.is_nested() else f"it holds {str(dtype).lower()}"


def _check_values(table: TableFile, column: Column, dtype: pl.DataType) -> None:
    """Raise if a column has a value that is not of the type given for it."""
    if not isinstance(dtype, pl.String):
        return  # all of its values are of the same type
    unread = pl.col(column.name).is_not_null() & table.values[column.name].is_null()
    with explained(table.name):
        rows = table.rows.select(unread).collect(engine="streaming").to_series()
    if rows.any():
        raise TableFileError(
            f"column {column.name!r} of {table.name} has values that are not {column.type.value.upper()}: "
            f"{table.named(rows, column.name)}"
        )
