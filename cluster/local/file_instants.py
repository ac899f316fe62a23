"""The instants in a column of a file, as microseconds since 1970. Stamps without a zone are UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import polars as pl

from cluster.local.time_units import TimeUnit

MOST_US = 2**61
"""Instants are no further from 1970 than this, so that the ends of windows fit into 64 bits as well."""

_ZONE = r"T.*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"
"""The zone at the end of a text; after the T, since a date has hyphens as well."""


_NUMBER = r"^[+-]?\d+$"
_PATTERNS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M")


def instants(column: str, dtype: pl.DataType, unit: TimeUnit | None = None, decimal: str = ".") -> pl.Expr | None:
    """Return the instants of a column, NULL where there is none; None if a column of its type holds none.

    Texts are written as in ISO 8601, with a space or a ``T``, or are numbers.

    Parameters
    ----------
    column, dtype
        Its name and type.
    unit
        Of numbers since 1970. If it is given, they need not be whole; else they are whole microseconds.
    decimal
        What stands before the decimals of numbers in texts.
    """
    found = pl.col(column)
    if isinstance(dtype, pl.Datetime):
        read = found.cast(pl.Datetime("us", dtype.time_zone)).to_physical()
    elif dtype == pl.Date:
        read = found.cast(pl.Datetime("us")).to_physical()
    elif dtype.is_integer() or dtype == pl.Null:
        read = (unit or TimeUnit.MICROSECONDS).of_whole(found.cast(pl.Int64, strict=False))
    elif unit is not None and (dtype.is_float() or dtype.is_decimal()):
        read = unit.of_reals(found.cast(pl.Float64))
    elif isinstance(dtype, pl.String):
        read = written_instants(found, unit=unit, decimal=decimal)
    else:
        return None
    return pl.when(read.is_between(-MOST_US, MOST_US)).then(read)


def are_numbers(column: str, dtype: pl.DataType) -> pl.Expr:
    """Return whether the instants of a column are numbers."""
    if isinstance(dtype, pl.String):
        return pl.col(column).str.strip_chars().str.contains(_NUMBER).fill_null(value=False)
    return pl.lit(value=dtype.is_numeric())


def written_instants(
    texts: pl.Expr, *, numbers: bool = True, unit: TimeUnit | None = None, decimal: str = "."
) -> pl.Expr:
    """Return the instants that texts represent, NULL where a text is not an instant.

    Parameters
    ----------
    texts
        As in ISO 8601, with a space or a ``T``.
    numbers
        Whether a text may also be a number since 1970.
    unit, decimal
        Of numbers. If a unit is given, they need not be whole; else they are whole microseconds.
    """
    number = _number if unit is None else partial(unit.of_texts, decimal=decimal)
    ways = (_without_zone, _with_zone, _of_day, *((number,) if numbers else ()))
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
    return texts.set(~texts.str.contains(_NUMBER).fill_null(value=False), None).cast(pl.Int64, strict=False)


def _first(moments: list[pl.Series]) -> pl.Series:
    return pl.select(pl.coalesce([moment.to_physical() for moment in moments])).to_series()
