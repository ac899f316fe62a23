"""Several files as one stream: those of some days, or of some sensors; and why a column of them is TEXT."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from shlex import quote

import polars as pl

from cluster.fjord.batch import ALWAYS, START
from cluster.fjord.scalars import POLARS_TYPES
from cluster.local.column_values import read_text
from cluster.local.errors import TableFileError, explained
from cluster.local.file_instants import doubts
from cluster.local.stream_files import BATCH_ROWS, StreamFile, schema_of_fields
from cluster.local.table_files import TableFile
from cluster.operators.columns import Column, Schema
from protocols.text.plain_text import printable
from protocols.wire.names import folded
from protocols.wire.streams import FieldType, StreamSchema

_THOUSANDS = r"^\s*[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?\s*$"
_MOST_WORDS = 4
"""So many different words are taken for words that stand for NULL."""


def why_text(table: TableFile, name: str) -> str | None:
    """Return why a column is TEXT, in words, if some of its cells are numbers or commas keep all from it; else None.

    Parameters
    ----------
    table
        The file.
    name
        Of the column, without regard to case.
    """
    column = next((each.name for each in table.columns if folded(each.name) == folded(name)), None)
    if column is None or table.kind != "CSV" or folded(column) in table.given:
        return None
    held = table.rows.collect_schema()[column]
    if not isinstance(held, pl.String):
        return None
    with explained(table.name):
        texts = table.rows.select(column).collect().to_series()
    numbers = _numbers(texts, table.style.decimal)
    unread = texts.is_not_null() & numbers.is_null()
    way = _way_of_commas(column, texts, table.style.separator)
    if not unread.any() or not (way or numbers.is_not_null().any()):
        return None
    way = _way_of_words([*texts.filter(unread).unique(maintain_order=True)]) or way
    places = table.named(unread, column)
    return f"column {column} is TEXT because of {places}, which CAST makes NULL{': ' if way else ''}{way}"


def _numbers(texts: pl.Series, decimal: str) -> pl.Series:
    return pl.select(read_text(pl.lit(texts), FieldType.REAL, decimal)).to_series()


def _way_of_words(unread: Sequence[str]) -> str:
    """Return what reads few words as NULL; empty if there are other cells."""
    if len(unread) > _MOST_WORDS or any(letter.isdigit() for each in unread for letter in each):
        return ""
    words = " ".join(f"--null {quote(printable(each.strip(), lines=False))}" for each in unread)
    return f"{words} says that {'this stands' if len(unread) == 1 else 'these stand'} for NULL"


def _way_of_commas(column: str, texts: pl.Series, separator: str) -> str:
    """Return what reads cells with commas as numbers; empty if that does not read all."""
    count = texts.is_not_null().sum()
    ways = []
    if _numbers(texts, ",").is_not_null().sum() == count:
        option = "--decimal ," if separator != "," else f"CAST(REPLACE({column}, ',', '.') AS REAL)"
        ways.append(f"{option} reads numbers with a comma before their decimals")
    with_commas = texts.filter(texts.str.contains(",", literal=True))
    without = _numbers(texts.str.replace_all(",", "", literal=True), ".")
    if without.is_not_null().sum() == count and with_commas.str.contains(_THOUSANDS).all():
        ways.append(f"CAST(REPLACE({column}, ',', '') AS REAL) reads numbers with commas before thousands")
    return ", and ".join(ways)


class JoinedFiles:
    """Files with the tuples of one stream.

    Parameters
    ----------
    files
        In any order; at least two.

    Raises
    ------
    TableFileError
        If one of them has other columns than another.
    """

    def __init__(self, files: Sequence[StreamFile]) -> None:
        self.tables: tuple[TableFile, ...] = tuple(each.table for each in files)
        self.time_column = files[0].time_column
        self.columns = _joined_columns(self.tables, [each.columns for each in files])
        untyped = [{name.casefold() for name in table.untyped} for table in self.tables]
        self.untyped = tuple(
            each.name for each in self.columns if all(each.name.casefold() in names for names in untyped)
        )
        self.rows = 0
        """How many there are, once they have been checked."""
        self.span_us = (ALWAYS, ALWAYS)
        """Their first and last stamp, once they have been checked, if they have rows."""
        self._files = list(files)
        self._in_order: bool | None = None

    @property
    def name(self) -> str:
        """The files as messages name them."""
        return f"{self.tables[0].name} and {len(self.tables) - 1} more"

    @property
    def doubtful(self) -> str | None:
        """A warning if all stamps of a file may be numbers of another unit; once they have been checked."""
        return next((warning for each in self._files if (warning := each.doubtful)), None)

    @property
    def zone_is_unknown(self) -> bool:
        """Whether instants of a file have no zone, and none was given for them."""
        return any(each.zone_is_unknown for each in self._files)

    def schema(self, stream: str) -> StreamSchema:
        """Return the schema of their stream."""
        return schema_of_fields(stream, self.columns)

    def check(self) -> bool:
        """Return whether the files' rows, one file after the other, are in the order of their stamps.

        Raises
        ------
        TableFileError
            If rows have no stamp, or stamps that are numbers of several units; the message names their lines.
        """
        in_order = [each.check() for each in self._files]
        self.rows = sum(each.rows for each in self._files)
        self._files.sort(key=lambda each: each.span_us)
        held = [each.span_us for each in self._files if each.rows]
        if held:
            self.span_us = (held[0][0], max(last_us for _, last_us in held))
            self._check_units()
        self._in_order = all(in_order) and all(last_us <= first_us for (_, last_us), (first_us, _) in pairwise(held))
        return self._in_order

    def _check_units(self) -> None:
        for doubt in doubts(*self.span_us):
            for file in self._files:
                if few := file.numbers_in_doubt(doubt):
                    raise doubt.mixed(file.name, few, in_other_files=True)

    def batches(self, columns: Collection[str], *, batch_rows: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
        """Yield their rows in the order of their stamps, as :meth:`StreamFile.batches` does."""
        in_order = self.check() if self._in_order is None else self._in_order
        wanted = [each for each in self.columns if each.name in columns]
        pieces = (piece for each in self._files for piece in _renamed(each, wanted, batch_rows))
        if in_order:
            yield from pieces
        elif together := list(pieces):
            yield from pl.concat(together).sort(START, maintain_order=True).iter_slices(batch_rows)


def _renamed(file: StreamFile, wanted: Sequence[Column], batch_rows: int) -> Iterator[pl.DataFrame]:
    """Yield a file's rows with the names and types of all files."""
    own = {each.name.casefold(): each.name for each in file.columns}
    names = {own[each.name.casefold()]: each for each in wanted}
    for piece in file.batches(names.keys(), batch_rows=batch_rows):
        rest = [name for name in piece.columns if name not in names]
        yield piece.select(
            *rest, *(pl.col(name).cast(POLARS_TYPES[each.type]).alias(each.name) for name, each in names.items())
        )


def _joined_columns(tables: Sequence[TableFile], schemas: Sequence[Schema]) -> Schema:
    """Return the columns of files; whole numbers in one file are reals if they are reals in another."""
    found = {each.name.casefold(): (each, tables[0]) for each in schemas[0]}
    for table, schema in zip(tables[1:], schemas[1:], strict=True):
        own = {each.name.casefold(): each for each in schema}
        _same_names(found, own, table)
        for key, column in own.items():
            known, of = found[key]
            type_ = _joined_type((known, of), (column, table))
            found[key] = (
                Column(known.name, type_),
                of if known.type is type_ and known.name not in of.untyped else table,
            )
    return tuple(column for column, _ in found.values())


def _same_names(found: dict[str, tuple[Column, TableFile]], own: dict[str, Column], table: TableFile) -> None:
    for key, (column, of) in found.items():
        if key not in own:
            raise TableFileError(f"{table.name} has no column {column.name!r}, which {of.name} has")
    for key, column in own.items():
        if key not in found:
            _, of = next(iter(found.values()))
            raise TableFileError(f"{of.name} has no column {column.name!r}, which {table.name} has")


def _joined_type(first: tuple[Column, TableFile], second: tuple[Column, TableFile]) -> FieldType:
    (known, of), (column, table) = first, second
    if known.type is column.type or column.name in table.untyped:
        return known.type
    if known.name in of.untyped:
        return column.type
    if {known.type, column.type} == {FieldType.INTEGER, FieldType.REAL}:
        return FieldType.REAL
    one, other = (each.type.value.upper() for each in (column, known))
    hint = f"--type {known.name}=TEXT reads it as texts"
    cause = why_text(table, column.name) or why_text(of, known.name)
    raise TableFileError(
        f"column {known.name!r} is {one} in {table.name} and {other} in {of.name}",
        hint=hint if cause is None else f"{cause}; {hint}",
    )
