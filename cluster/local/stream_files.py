"""A file as a stream: its column of instants are the stamps, and it is read in batches, in the order of time."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from itertools import islice

import polars as pl

from cluster.fjord.batch import START
from cluster.language.algebra import Schema
from cluster.local.file_instants import instants
from cluster.local.table_files import TableFile, TableFileError, explained
from protocols.batches import DEFAULT_RATE_COLUMN
from protocols.streams import MOST_FIELDS, Field, StreamSchema

TIME = "time"
"""The column of instants, unless another is named."""
BATCH_ROWS = 100_000
"""Rows that are in memory at once, of a file that is in order."""
SHOWN_ROWS = 5
"""Rows that a message names."""


class StreamFile:
    """A file with the tuples of a stream.

    Parameters
    ----------
    table
        The file.
    time_column
        Name of its column of instants, without regard to case; None for "time".

    Raises
    ------
    TableFileError
        If it has no such column, or nothing but that.
    """

    def __init__(self, table: TableFile, time_column: str | None = None) -> None:
        self.table = table
        self.time_column = _time_column(table, time_column or TIME)
        found = instants(self.time_column, table.rows.collect_schema()[self.time_column])
        if found is None:
            held = table.rows.collect_schema()[self.time_column]
            raise TableFileError(
                f"column {self.time_column!r} of {table.name} holds {str(held).lower()}, no instants",
                hint="--time-column names another; numbers have to be whole microseconds since 1970",
            )
        self._stamps = found
        # A blank line of a CSV file is read as a row of NULLs.
        blank = pl.all_horizontal(pl.all().is_null())
        self._rows = table.rows.filter(~blank) if table.kind == "CSV" else table.rows
        self.columns: Schema = tuple(each for each in table.columns if each.name != self.time_column)
        if not 1 <= len(self.columns) <= MOST_FIELDS:
            has = f"{len(self.columns)} columns" if self.columns else "no column"
            reason = f"{table.name} has {has} beside {self.time_column!r} that FjordSQL can read"
            raise TableFileError(f"{reason}; a stream has 1 to {MOST_FIELDS}")
        self.rows = 0
        """How many there are, once it has been checked."""
        self._in_order: bool | None = None

    def schema(self, stream: str) -> StreamSchema:
        """Return the schema of the stream that it is."""
        return StreamSchema(stream, tuple(Field(each.name, each.type) for each in self.columns))

    def check(self) -> bool:
        """Return whether its rows are in the order of their stamps.

        Raises
        ------
        TableFileError
            If rows have no stamp; names their lines.
        """
        with explained(self.table.name):
            stamps = self._rows.select(self._stamps.alias(START)).collect().to_series()
        if stamps.null_count():
            raise self._unstamped(stamps)
        self.rows = stamps.len()
        self._in_order = stamps.is_sorted()
        return self._in_order

    def batches(self, columns: Collection[str], *, batch_rows: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
        """Yield its rows in the order of their stamps: START, whether they are of the default rate, these columns.

        A file that is out of order is in memory as a whole.
        """
        chosen = [self._stamps.alias(START), pl.lit(value=True).alias(DEFAULT_RATE_COLUMN)]
        rows = self._rows.select(*chosen, *self.table.fitted(columns))
        in_order = self.check() if self._in_order is None else self._in_order
        with explained(self.table.name):
            if in_order:
                yield from rows.collect_batches(chunk_size=batch_rows, maintain_order=True)
            else:
                yield from rows.collect().sort(START, maintain_order=True).iter_slices(batch_rows)

    def _unstamped(self, stamps: pl.Series) -> TableFileError:
        places = stamps.is_null().arg_true()
        with explained(self.table.name):
            shown = places.head(SHOWN_ROWS).to_list()
            values = self._rows.select(self.time_column).collect().to_series().gather(shown).to_list()
        named = ", ".join(
            f"{line}{'' if value is None or value == '' else f' ({value!r})'}"
            for line, value in zip(_lines(self.table, shown), values, strict=True)
        )
        more = f" and {len(places) - len(shown):,} more" if len(places) > len(shown) else ""
        rows = "1 row" if len(places) == 1 else f"{len(places):,} rows"
        unit = "row" if self.table.kind == "Parquet" else "line"
        return TableFileError(
            f"{rows} of {self.table.name} without an instant in column {self.time_column!r}: {unit} {named}{more}",
            hint="instants are written as 2012-03-01T07:30:00, with or without a zone, or are microseconds since 1970",
        )


def _time_column(table: TableFile, name: str) -> str:
    names = table.rows.collect_schema().names()
    folded = {each.casefold(): each for each in reversed(names)}
    if name in names:
        return name
    if name.casefold() not in folded:
        raise TableFileError(
            f"{table.name} has no column {name!r}; it has {', '.join(names)}",
            hint="--time-column NAME names the column of instants",
        )
    return folded[name.casefold()]


def _lines(table: TableFile, rows: list[int]) -> list[int]:
    """Return in which lines of a file rows are, counted from 1."""
    if table.kind == "Parquet":
        return [row + 1 for row in rows]
    found: list[int] = []
    with table.path.open(newline="", encoding="utf-8", errors="replace") as file:
        if table.kind == "CSV":
            reader = csv.reader(file)
            numbers = (reader.line_num for values in islice(reader, 1, None) if any(values))
        else:
            numbers = (number for number, line in enumerate(file, start=1) if line.strip())
        wanted = set(rows)
        for row, number in enumerate(numbers):
            if row in wanted:
                found.append(number)
            if len(found) == len(rows):
                break
    return found
