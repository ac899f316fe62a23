"""The instants in a column of a file, as microseconds since 1970. Stamps without a zone are UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

MOST_US = 2**61
"""Instants are no further from 1970 than this, so that the ends of windows fit into 64 bits as well."""

_ZONE = r"T.*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"
"""The zone at the end of a text; after the T, since a date has hyphens as well."""


_PATTERNS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M")


def instants(column: str, dtype: pl.DataType) -> pl.Expr | None:
    """Return the instants of a column, NULL where there is none; None if a column of its type holds none.

    Integers are microseconds since 1970, texts are written as in ISO 8601, with a space or a ``T``.
    """
    found = pl.col(column)
    if isinstance(dtype, pl.Datetime):
        read = found.cast(pl.Datetime("us", dtype.time_zone)).to_physical()
    elif dtype == pl.Date:
        read = found.cast(pl.Datetime("us")).to_physical()
    elif dtype.is_integer() or dtype == pl.Null:
        read = found.cast(pl.Int64, strict=False)
    elif isinstance(dtype, pl.String):
        read = written_instants(found)
    else:
        return None
    return pl.when(read.is_between(-MOST_US, MOST_US)).then(read)


def written_instants(texts: pl.Expr, *, numbers: bool = True) -> pl.Expr:
    """Return the instants that texts represent, NULL where a text is not an instant.

    Parameters
    ----------
    texts
        As in ISO 8601, with a space or a ``T``.
    numbers
        Whether a text may also be a number of microseconds since 1970.
    """
    ways = (_without_zone, _with_zone, _of_day, *((_number,) if numbers else ()))
    return texts.map_batches(lambda held: _read(held, ways), return_dtype=pl.Int64, is_elementwise=True)


def _read(written: pl.Series, ways: Sequence[Callable[[pl.Series], pl.Series]]) -> pl.Series:
    """Return the instants that texts represent; each notation is tried on what earlier ones could not read."""
    texts = written.str.strip_chars().str.replace(" ", "T", literal=True)
    found = pl.Series(written.name, [None] * len(texts), dtype=pl.Int64)
    for read in ways:
        left = found.is_null() & texts.is_not_null()
        if not left.any():
            break
        found = found.zip_with(~left, read(texts.zip_with(left, pl.Series([None], dtype=pl.String))))
    return found


def _without_zone(texts: pl.Series) -> pl.Series:
    moments = [texts.str.strptime(pl.Datetime("us"), each, strict=False) for each in _PATTERNS]
    return _first(moments)


def _with_zone(texts: pl.Series) -> pl.Series:
    zoned = texts.set(~texts.str.contains(_ZONE).fill_null(value=False), None)
    zoned = zoned.str.replace("[zZ]$", "+00:00").str.replace(r"([+-]\d\d)$", "${1}:00")
    return _first([zoned.str.strptime(pl.Datetime("us", "UTC"), f"{each}%z", strict=False) for each in _PATTERNS])


def _of_day(texts: pl.Series) -> pl.Series:
    return _first([texts.str.strptime(pl.Date, "%Y-%m-%d", strict=False).cast(pl.Datetime("us"))])


def _number(texts: pl.Series) -> pl.Series:
    return texts.set(~texts.str.contains(r"^[+-]?\d+$").fill_null(value=False), None).cast(pl.Int64, strict=False)


def _first(moments: list[pl.Series]) -> pl.Series:
    return pl.select(pl.coalesce([moment.to_physical() for moment in moments])).to_series()
