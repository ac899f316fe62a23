"""The instants in a column of a file, as microseconds since 1970. Stamps without a zone are UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from cluster.local.time_formats import TimeFormat
from cluster.local.time_units import TimeUnit

MOST_US = 2**61
"""Instants are no further from 1970 than this, so that the ends of windows fit into 64 bits as well."""

_ZONE = r"T.*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"
"""The zone at the end of a text; after the T, since a date has hyphens as well."""


_NUMBER = r"^[+-]?\d+$"
_PATTERNS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M")


@dataclass(frozen=True, slots=True)
class Notation:
    """How a column of instants is written.

    Parameters
    ----------
    unit
        Of numbers since 1970. If it is given, they need not be whole; else they are whole microseconds.
    decimal
        What stands before the decimals of numbers in texts.
    format
        Of texts that are not as in ISO 8601.
    zone
        The time zone of instants without an offset; UTC unless it is given.
    """

    unit: TimeUnit | None = None
    decimal: str = "."
    format: TimeFormat | None = None
    zone: str | None = None


def instants(column: str, dtype: pl.DataType, notation: Notation) -> pl.Expr | None:
    """Return the instants of a column, NULL where there is none; None if a column of its type holds none.

    Texts are written as in ISO 8601, with a space or a ``T``, or in a given format, or are numbers.

    Parameters
    ----------
    column, dtype
        Its name and type.
    notation
        How they are written.
    """
    found, unit = pl.col(column), notation.unit
    if notation.format is not None:
        if not (dtype.is_integer() or isinstance(dtype, pl.String)):
            return None
        read = _of_format(found.cast(pl.String), notation.format, notation.zone)
    elif isinstance(dtype, pl.Datetime):
        read = found.cast(pl.Datetime("us", dtype.time_zone)).to_physical()
        read = read if dtype.time_zone else _from_zone(read, notation.zone)
    elif dtype == pl.Date:
        read = _from_zone(found.cast(pl.Datetime("us")).to_physical(), notation.zone)
    elif dtype.is_integer() or dtype == pl.Null:
        read = (unit or TimeUnit.MICROSECONDS).of_whole(found.cast(pl.Int64, strict=False))
    elif unit is not None and (dtype.is_float() or dtype.is_decimal()):
        read = unit.of_reals(found.cast(pl.Float64))
    elif isinstance(dtype, pl.String):
        read = written_instants(found, notation=notation)
    else:
        return None
    return pl.when(read.is_between(-MOST_US, MOST_US)).then(read)


def are_numbers(column: str, dtype: pl.DataType) -> pl.Expr:
    """Return whether the instants of a column are numbers."""
    if isinstance(dtype, pl.String):
        return pl.col(column).str.strip_chars().str.contains(_NUMBER).fill_null(value=False)
    return pl.lit(value=dtype.is_numeric())


def lack_zone(column: str, dtype: pl.DataType, notation: Notation) -> pl.Expr:
    """Return whether the instants of a column are those of clocks in an unknown zone."""
    if notation.format is not None:
        return pl.lit(value=not notation.format.has_zone)
    if isinstance(dtype, pl.String):
        texts = pl.col(column).str.strip_chars().str.replace(" ", "T", literal=True)
        return ~(texts.str.contains(_ZONE) | texts.str.contains(r"^[+-]?[\d.,]+$")).fill_null(value=True)
    return pl.lit(value=dtype == pl.Date or (isinstance(dtype, pl.Datetime) and dtype.time_zone is None))


def written_instants(
    texts: pl.Expr,
    *,
    numbers: bool = True,
    notation: Notation = Notation(),
) -> pl.Expr:
    """Return the instants that texts represent, NULL where a text is not an instant.

    Parameters
    ----------
    texts
        As in ISO 8601, with a space or a ``T``.
    numbers
        Whether a text may also be a number since 1970.
    notation
        How they are written.
    """
    unit, zone = notation.unit, notation.zone
    number = _number if unit is None else partial(unit.of_texts, decimal=notation.decimal)
    ways = (partial(_without_zone, zone=zone), _with_zone, partial(_of_day, zone=zone), *((number,) if numbers else ()))
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


def _of_format(texts: pl.Expr, format_: TimeFormat, zone: str | None) -> pl.Expr:
    found = texts.map_batches(
        lambda held: format_.read(held.str.strip_chars()), return_dtype=pl.Int64, is_elementwise=True
    )
    return found if format_.has_zone else _from_zone(found, zone)


def _from_zone(clocks: pl.Expr, zone: str | None) -> pl.Expr:
    """Return the instants at which clocks of a zone show times, the first where there are two, NULL where none is."""
    if zone is None:
        return clocks
    shown = clocks.cast(pl.Datetime("us"))
    return shown.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").to_physical()


def _in_zone(clocks: pl.Series, zone: str | None) -> pl.Series:
    return pl.select(_from_zone(pl.lit(clocks), zone)).to_series()


def _without_zone(texts: pl.Series, zone: str | None = None) -> pl.Series:
    moments = [texts.str.strptime(pl.Datetime("us"), each, strict=False) for each in _PATTERNS]
    return _in_zone(_first(moments), zone)


def _with_zone(texts: pl.Series) -> pl.Series:
    zoned = texts.set(~texts.str.contains(_ZONE).fill_null(value=False), None)
    zoned = zoned.str.replace("[zZ]$", "+00:00").str.replace(r"([+-]\d\d)$", "${1}:00")
    return _first([zoned.str.strptime(pl.Datetime("us", "UTC"), f"{each}%z", strict=False) for each in _PATTERNS])


def _of_day(texts: pl.Series, zone: str | None = None) -> pl.Series:
    days = _first([texts.str.strptime(pl.Date, "%Y-%m-%d", strict=False).cast(pl.Datetime("us"))])
    return _in_zone(days, zone)


def _number(texts: pl.Series) -> pl.Series:
    return texts.set(~texts.str.contains(_NUMBER).fill_null(value=False), None).cast(pl.Int64, strict=False)


def _first(moments: list[pl.Series]) -> pl.Series:
    return pl.select(pl.coalesce([moment.to_physical() for moment in moments])).to_series()
