"""A file as a stream: its column of instants has the stamps, and it is read in batches, in the order of time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import polars as pl

from cluster.fjord.batch import ALWAYS, START
from cluster.local.column_values import SAMPLE_ROWS, column_key
from cluster.local.errors import TableFileError, explained
from cluster.local.file_instants import (
    Doubt,
    Notation,
    are_numbers,
    doubts,
    guessed_formats,
    instants,
    lack_zone,
    warning_of_all,
)
from cluster.local.table_files import TableFile
from cluster.operators.columns import Schema
from protocols.text.plain_text import printable
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import MOST_FIELDS, Field, StreamSchema

TIME = "time"
"""The column of instants, unless another is named."""
BATCH_ROWS = 100_000
"""Rows that are in memory at once, of a file that is in order."""


class StreamFile:
    """A file with the tuples of a stream.

    Parameters
    ----------
    table
        The file.
    time_column
        Name of its column of instants, without regard to case; None for "time".
    notation
        How instants are written; None if nothing is given about that.

    Raises
    ------
    TableFileError
        If it has no such column, or no other one; or if a unit is given for instants that have theirs.
    """

    def __init__(
        self,
        table: TableFile,
        time_column: str | None = None,
        notation: Notation | None = None,
    ) -> None:
        self.table = table
        self.time_column = _time_column(table, time_column or TIME)
        held = table.rows.collect_schema()[self.time_column]
        self.notation = notation or Notation(decimal=table.style.decimal)
        unit = self.notation.unit
        found = instants(self.time_column, held, self.notation)
        if found is None and self.notation.format is not None:
            raise TableFileError(
                f"column {self.time_column!r} of {table.name} holds {str(held).lower()}, no texts",
                hint="leave --time-format away, or write STREAM=FORMAT to give it for another stream",
            )
        if found is None:
            unread = "not whole numbers" if held.is_float() or held.is_decimal() else "not instants"
            raise TableFileError(
                f"column {self.time_column!r} of {table.name} holds {str(held).lower()}, {unread}",
                hint="--time-column names another; numbers have to be whole microseconds since 1970, "
                "unless --time-unit says what they are",
            )
        if unit is not None and held.is_temporal():
            raise TableFileError(
                f"column {self.time_column!r} of {table.name} holds {str(held).lower()}, which has a unit of its own",
                hint="leave --time-unit away, or write STREAM=UNIT to give it for another stream",
            )
        self._read_as_given = unit is not None or self.notation.format is not None
        self._stamps, self._numbers = found, are_numbers(self.time_column, held)
        self._zoneless = lack_zone(self.time_column, held, self.notation)
        self.columns: Schema = tuple(each for each in table.columns if each.name != self.time_column)
        if not 1 <= len(self.columns) <= MOST_FIELDS:
            has = f"{len(self.columns)} columns" if self.columns else "no column"
            reason = f"{table.name} has {has} beside {self.time_column!r} that FjordSQL can read"
            left_out = f": {table.without}" if table.unusable else ""
            raise TableFileError(f"{reason}{left_out}; a stream has 1 to {MOST_FIELDS}")
        self.rows = 0
        """How many there are, once it has been checked."""
        self.span_us = (ALWAYS, ALWAYS)
        """Its first and last stamp, once it has been checked, if it has rows."""
        self._in_order: bool | None = None

    @property
    def name(self) -> str:
        """The file as messages name it."""
        return self.table.name

    @property
    def tables(self) -> tuple[TableFile, ...]:
        """All its files."""
        return (self.table,)

    @property
    def untyped(self) -> tuple[str, ...]:
        """Names of columns without a value, without a given type."""
        return tuple(each.name for each in self.columns if each.name in self.table.untyped)

    def schema(self, stream: str) -> StreamSchema:
        """Return the schema of its stream."""
        return schema_of_fields(stream, self.columns)

    def check(self) -> bool:
        """Return whether its rows are in the order of their stamps.

        Raises
        ------
        TableFileError
            If rows have no stamp, or stamps that are numbers of several units; the message names their lines.
        """
        with explained(self.table.name):
            stamps = self.table.rows.select(self._stamps.alias(START)).collect(engine="streaming").to_series()
        if stamps.null_count():
            raise self._unstamped(stamps)
        self.rows = stamps.len()
        if self.rows:
            self.span_us = (int(stamps.min()), int(stamps.max()))  # type: ignore[arg-type] # of integers, they are
        for doubt in doubts(*self.span_us) if self.rows else []:
            if few := self.numbers_in_doubt(doubt, stamps):
                raise doubt.mixed(self.name, few)
        self._in_order = stamps.is_sorted()
        return self._in_order

    @property
    def doubtful(self) -> str | None:
        """A warning if all its stamps may be numbers of another unit, or no instants; once it has been checked."""
        if self._read_as_given or not self.rows:
            return None
        warning = warning_of_all(self.name, self.time_column, *self.span_us)
        if warning is None:
            return None
        with explained(self.table.name):
            numbers = self.table.rows.select(self._numbers.all()).collect(engine="streaming").item()
        return warning if numbers else None

    @property
    def zone_is_unknown(self) -> bool:
        """Whether its first rows have instants without a zone, and none was given for them."""
        if self.notation.zone is not None:
            return False
        with explained(self.table.name):
            found = self.table.rows.head(SAMPLE_ROWS).select(self._zoneless.alias("zoneless")).collect()["zoneless"]
        return bool(found.any())

    def numbers_in_doubt(self, doubt: Doubt, stamps: pl.Series | None = None) -> str:
        """Return the places of numbers that may be no microseconds; empty if there are none."""
        if self._read_as_given or not self.rows:
            return ""
        with explained(self.table.name):
            found = self.table.rows.select(self._stamps.alias(START), self._numbers.alias("number")).collect()
        few = doubt.concerns(found[START] if stamps is None else stamps) & found["number"]
        return self.table.named(few, self.time_column) if few.any() else ""

    def batches(self, columns: Collection[str], *, batch_rows: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
        """Yield its rows in the order of their stamps: START, whether they belong to the default rate, these columns.

        A file that is out of order is in memory as a whole.
        """
        chosen = [self._stamps.alias(START), pl.lit(value=True).alias(DEFAULT_RATE_COLUMN)]
        rows = self.table.rows.select(*chosen, *self.table.fitted(columns))
        in_order = self.check() if self._in_order is None else self._in_order
        with explained(self.table.name):
            if in_order:
                yield from rows.collect_batches(chunk_size=batch_rows, maintain_order=True)
            else:
                yield from rows.collect().sort(START, maintain_order=True).iter_slices(batch_rows)

    def _unstamped(self, stamps: pl.Series) -> TableFileError:
        count = stamps.null_count()
        rows = "1 row" if count == 1 else f"{count:,} rows"
        named = self.table.named(stamps.is_null(), self.time_column)
        notation = self.notation
        zone = (
            ""
            if notation.zone is None
            else f", and exist in {notation.zone}: one hour a year does not, where clocks go forward"
        )
        hint = (
            "instants are written as 2012-03-01T07:30:00, with or without a zone, or are numbers: whole "
            "microseconds since 1970, unless --time-unit says what they are"
        )
        if notation.format is not None:
            hint = f"instants are written as --time-format {notation.format.text!r} says"
        elif formats := guessed_formats(self._texts(stamps.is_null())):
            hint = " or ".join(f"--time-format '{each}'" for each in formats) + " reads them"
        return TableFileError(
            f"{rows} of {self.table.name} without an instant in column {self.time_column!r}: {named}",
            hint=f"{hint}{zone}",
        )

    def _texts(self, rows: pl.Series) -> list[str]:
        """Return the texts in the column of instants of some rows."""
        with explained(self.table.name):
            held = self.table.rows.select(self.time_column).collect().to_series().filter(rows).drop_nulls()
        return held.to_list() if isinstance(held.dtype, pl.String) else []


def schema_of_fields(stream: str, columns: Schema) -> StreamSchema:
    """Return the schema of a stream with these columns."""
    return StreamSchema(stream, tuple(Field(each.name, each.type) for each in columns))


def _time_column(table: TableFile, name: str) -> str:
    names = table.rows.collect_schema().names()
    keys = {column_key(each): each for each in reversed(names)}
    if name in names:
        return name
    if column_key(name) not in keys:
        raise TableFileError(
            f"{table.name} has no column {name!r}; it has {printable(', '.join(names), lines=False)}",
            hint="--time-column NAME names the column of instants",
        )
    return keys[column_key(name)]
