"""The names and values in a file's columns, as names and values of FjordSQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import polars as pl

from cluster.fjord.scalars import POLARS_TYPES
from protocols.wire.names import fault_of_identifier, folded, is_identifier, normal
from protocols.wire.streams import RESERVED_PREFIX, FieldType

_SEVERAL = re.compile("__+")


@lru_cache(maxsize=65_536)
def sql_name(name: str) -> str:
    """Return the name of a column in FjordSQL: its own, or one with ``_`` for what no name has; "" if there is none.

    >>> sql_name("größe"), sql_name("room temp"), sql_name("Temp. [°C]"), sql_name("1h"), sql_name("%")
    ('größe', 'room_temp', 'Temp_C', '_1h', '')
    """
    found = normal(name)
    if not is_identifier(found):
        letters = "".join(each if is_identifier(f"a{each}") else "_" for each in found)
        found = _SEVERAL.sub("_", letters).strip("_")
        found = f"_{found}" if found[:1].isdecimal() else found
    return found if fault_of_column(found) is None else ""


def fault_of_column(name: str) -> str | None:
    """Return why no column can have this name; None if one can."""
    if name.casefold().startswith(RESERVED_PREFIX):
        return f"names that begin with {RESERVED_PREFIX} are Fjord's own"
    return fault_of_identifier(name)


def column_key(name: str) -> str:
    """Return what is the same for a column's name in a file and in FjordSQL, in any case."""
    return folded(sql_name(name) or name)


def renamed(names: Iterable[str]) -> dict[str, str]:
    """Return the columns of a file that have another name in FjordSQL, and that; none whose name another column has."""
    held = list(names)
    taken = {folded(name) for name in held if fault_of_column(name) is None}
    found: dict[str, str] = {}
    for name in held:
        new = sql_name(name)
        if new not in {"", name} and folded(new) not in taken:
            found[name] = new
            taken.add(folded(new))
    return found


SAMPLE_ROWS = 1_000
"""Rows of a sample, which shows for most columns whether their values cannot be read as a type."""
_THOUSANDS = r"^[+-]?[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]*)?$"
"""Where a comma stands before decimals, points may stand before thousands: 1.013,25."""
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def type_of(dtype: pl.DataType) -> FieldType | None:
    """Return the type of FjordSQL that values of a type are of, or None."""
    for type_, fits in (
        (FieldType.BOOLEAN, dtype == pl.Boolean),
        # Polars uses more than 64 bits only for integers that are too large.
        (FieldType.INTEGER, dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)),
        (FieldType.INTEGER, isinstance(dtype, pl.Date | pl.Datetime)),
        (FieldType.REAL, dtype.is_float() or dtype.is_decimal()),
        (FieldType.TEXT, dtype == pl.Null or isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Time)),
    ):
        if fits:
            return type_
    return None


def read_column(name: str, dtype: pl.DataType, type_: FieldType, decimal: str = ".") -> pl.Expr | None:
    """Return a column with a type of FjordSQL, NULL where a value cannot be read; None if no value can.

    Texts may be read as numbers and truth values, whole numbers as reals, and all of these as texts; `decimal` stands
    before the decimals of numbers in texts. If that is a comma, points may stand before thousands.
    """
    found = pl.col(name)
    if isinstance(dtype, pl.String) and type_ is not FieldType.TEXT:
        return read_text(found, type_, decimal)
    known = type_of(dtype)
    becomes_text = type_ is FieldType.TEXT and (dtype.is_numeric() or dtype == pl.Boolean)
    becomes_real = type_ is FieldType.REAL and dtype.is_integer()
    if known is not type_ and not becomes_text and not becomes_real and dtype != pl.Null:
        return None
    if type_ is FieldType.INTEGER and isinstance(dtype, pl.Date | pl.Datetime):
        zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
        found = found.cast(pl.Datetime("us", zone)).to_physical()
    return found.cast(POLARS_TYPES[type_]).alias(name)


def read_text(texts: pl.Expr, type_: FieldType, decimal: str = ".") -> pl.Expr:
    """Return the values that texts represent, NULL where a text is not a value of the type."""
    trimmed = texts.str.strip_chars()
    if decimal != "." and type_ is FieldType.REAL:
        grouped, pointed = trimmed.str.contains(_THOUSANDS), trimmed.str.contains(".", literal=True)
        without = trimmed.str.replace_all(".", "", literal=True)
        trimmed = pl.when(grouped).then(without).when(~pointed).then(trimmed).str.replace(decimal, ".", literal=True)
    if type_ is FieldType.BOOLEAN:
        return trimmed.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Boolean)
    return trimmed.cast(POLARS_TYPES[type_], strict=False)


def read_as_a_whole(rows: pl.LazyFrame, reading: Mapping[str, pl.Expr]) -> list[str]:
    """Return the columns all of whose values an expression can read, except columns without a value.

    Parameters
    ----------
    rows
        The columns.
    reading
        By name of a column: the expression that reads it, NULL where a value cannot be read.
    """
    if not reading:
        return []
    unread = {name: pl.col(name).is_not_null() & read.is_null() for name, read in reading.items()}
    sample = rows.head(SAMPLE_ROWS).select(each.any().alias(name) for name, each in unread.items()).collect()
    likely = [name for name in reading if not sample[name][0]]
    if not likely:
        return []
    found = rows.select(
        *(unread[name].any().alias(name) for name in likely),
        *(pl.col(name).is_not_null().any().alias(f"{name} held") for name in likely),
    ).collect(engine="streaming")
    return [name for name in likely if found[f"{name} held"][0] and not found[name][0]]


def without_values(rows: pl.LazyFrame, names: list[str]) -> list[str]:
    """Return the columns that are NULL in every row."""
    sample = rows.head(SAMPLE_ROWS).select(pl.col(name).is_not_null().any() for name in names).collect()
    likely = [name for name in names if not sample[name][0]]
    if not likely:
        return []
    held = rows.select(pl.col(name).is_not_null().any() for name in likely).collect(engine="streaming")
    return [name for name in likely if not held[name][0]]
