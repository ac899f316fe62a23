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
