"""Why a column of CSV is TEXT although a query takes it for numbers: the cells that are none, and what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import polars as pl

from cluster.local.column_values import read_text
from cluster.local.errors import explained
from cluster.local.table_files import TableFile
from protocols.text.plain_text import printable
from protocols.wire.names import folded
from protocols.wire.streams import FieldType

_MOST_WORDS = 4
"""So many different words are taken for words that stand for NULL."""


def why_text(table: TableFile, name: str) -> str | None:
    """Return why a column is TEXT, in words, if some of its cells are numbers; else None.

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
    if not unread.any() or not numbers.is_not_null().any():
        return None
    cause = f"column {column} is TEXT because of {table.named(unread, column)}"
    way = _way(column, texts, [*texts.filter(unread).unique(maintain_order=True)], table.style.separator)
    return f"{cause}, which CAST makes NULL{way}"


def _numbers(texts: pl.Series, decimal: str) -> pl.Series:
    return pl.select(read_text(pl.lit(texts), FieldType.REAL, decimal)).to_series()


def _way(column: str, texts: pl.Series, unread: Sequence[str], separator: str) -> str:
    """Return what reads the cells, in words; empty if nothing is known to."""
    if len(unread) <= _MOST_WORDS and not any(letter.isdigit() for each in unread for letter in each):
        words = " ".join(f"--null {quote(printable(each.strip(), lines=False))}" for each in unread)
        return f": {words} says that {'this stands' if len(unread) == 1 else 'these stand'} for NULL"
    count = texts.is_not_null().sum()
    if _numbers(texts, ",").is_not_null().sum() == count:
        if separator != ",":
            return ": --decimal , reads numbers with a comma before their decimals"
        return f": CAST(REPLACE({column}, ',', '.') AS REAL) reads the comma before decimals"
    if _numbers(texts.str.replace_all(",", "", literal=True), ".").is_not_null().sum() == count:
        return f": CAST(REPLACE({column}, ',', '') AS REAL) reads numbers with commas before thousands"
    return ""
