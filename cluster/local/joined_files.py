"""Several files as one stream: those of some days, or of some sensors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import polars as pl

from cluster.fjord.batch import ALWAYS, START
from cluster.fjord.scalars import POLARS_TYPES
from cluster.local.errors import TableFileError
from cluster.local.stream_files import BATCH_ROWS, StreamFile, schema_of_fields
from cluster.local.table_files import TableFile
from cluster.local.text_cells import why_text
from cluster.local.time_units import doubts
from cluster.operators.columns import Column, Schema
from protocols.wire.streams import FieldType, StreamSchema


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
        for folded, column in own.items():
            known, of = found[folded]
            type_ = _joined_type((known, of), (column, table))
            found[folded] = (
                Column(known.name, type_),
                of if known.type is type_ and known.name not in of.untyped else table,
            )
    return tuple(column for column, _ in found.values())


def _same_names(found: dict[str, tuple[Column, TableFile]], own: dict[str, Column], table: TableFile) -> None:
    for folded, (column, of) in found.items():
        if folded not in own:
            raise TableFileError(f"{table.name} has no column {column.name!r}, which {of.name} has")
    for folded, column in own.items():
        if folded not in found:
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
