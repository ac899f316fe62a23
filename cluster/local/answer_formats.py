"""Writes an answer as a table, JSON lines or Parquet, piece by piece: it is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from cluster.fjord.batch import NEVER, instant_text
from cluster.fjord.scalars import POLARS_TYPES
from cluster.language.columns import Schema
from protocols.text.plain_text import columns_of, printable
from protocols.wire.streams import FieldType

PAGE_ROWS = 1_000
"""Rows of a table whose columns are equally wide."""


class Format(StrEnum):
    """The formats of an answer."""

    TABLE = "table"
    JSON = "json"
    PARQUET = "parquet"


def json_lines(pieces: Iterable[pl.DataFrame]) -> Iterator[str]:
    """Yield a line for each row, with ``start``, ``end`` and ``row`` as they are published."""
    for piece in pieces:
        for start_us, end_us, row in piece.iter_rows():
            line = {"start": instant_text(start_us), "end": instant_text(end_us), "row": msgspec.Raw(row.encode())}
            yield msgspec.json.encode(line).decode()


def table_lines(pieces: Iterable[pl.DataFrame], columns: Schema) -> Iterator[str]:
    """Yield the lines of a table. Its columns are as wide as the first rows need, and become no narrower."""
    names = ["start", "end", *(each.name for each in columns)]
    right = [False, False, *(each.type in (FieldType.INTEGER, FieldType.REAL) for each in columns)]
    widths = [len(name) for name in names]
    heading = [names]
    for piece in pieces:
        for page in piece.iter_slices(PAGE_ROWS):
            cells = [_cells(*row) for row in page.iter_rows()]
            widths = [max(width, *(columns_of(row[at]) for row in cells)) for at, width in enumerate(widths)]
            for row in (*heading, *cells):
                yield "  ".join(
                    _filled(cell, width, to_right=to_right)
                    for cell, width, to_right in zip(row, widths, right, strict=True)
                ).rstrip()
            heading = []
    if heading:
        yield "no rows"


def write_parquet(pieces: Iterable[pl.DataFrame], columns: Schema, path: Path) -> int:
    """Write a Parquet file with a column for start, end (NULL: never) and each column of the answer; return its rows.

    A query may have columns of these names: then the interval is in ``fjord_start`` and ``fjord_end``.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - nothing else here needs it

    names = {each.name.casefold() for each in columns}
    start, end = ("fjord_start", "fjord_end") if names & {"start", "end"} else ("start", "end")
    row = pl.Struct({each.name: POLARS_TYPES[each.type] for each in columns})
    empty = pl.DataFrame(schema={"start_us": pl.Int64, "end_us": pl.Int64, "row": pl.String})
    schema = _typed(empty, row, start, end).to_arrow().schema
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        for piece in pieces:
            writer.write_table(_typed(piece, row, start, end).to_arrow().cast(schema))
            count += piece.height
    return count


def _typed(piece: pl.DataFrame, row: pl.Struct, start: str, end: str) -> pl.DataFrame:
    return piece.select(
        pl.col("start_us").cast(pl.Datetime("us", "UTC")).alias(start),
        pl.when(pl.col("end_us") < NEVER).then("end_us").cast(pl.Datetime("us", "UTC")).alias(end),
        pl.col("row").str.json_decode(row),
    ).unnest("row")


def _cells(start_us: int, end_us: int, row: str) -> list[str]:
    values = msgspec.json.decode(row).values()
    return [instant_text(start_us) or "", instant_text(end_us) or "never", *map(_cell, values)]


def _filled(cell: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - columns_of(cell))
    return space + cell if to_right else cell + space


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    # A line of a table is a line of the terminal.
    return printable(value, lines=False) if isinstance(value, str) else msgspec.json.encode(value).decode()
