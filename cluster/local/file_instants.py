"""The instants in a column of a file, as microseconds since 1970: their unit, or the format they are written in.

**The unit of instants that are numbers, and files in which it cannot be one: seconds beside microseconds.**

1330560000            as microseconds: 22 minutes past midnight, in 1970 1330560060000000      as microseconds: in March
2012 1330560060000000000   as microseconds: in the year 44133
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import polars as pl

from cluster.local.errors import TableFileError

_FRACTION = re.compile(r"[.,]%f")
_COMMA_BEFORE_FRACTION = r",(\d{1,9})(\D*)$"
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y")
_TIMES = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M %p")
_KNOWN = (
    *(f"{day} {time}" for day in _DAYS for time in _TIMES), *_DAYS, *(f"%Y-%m-%d {time}" for time in _TIMES[2:]),
    "%Y-%m-%d %H:%M:%S,%f", "%a %b %d %H:%M:%S %Y",
)  # fmt: skip
_DAY_US = 86_400_000_000
_A_DAY = 19_783
"""In days since 1970."""
_LOOKED_AT = 100
"""So many texts show which format they have."""


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """A format of instants.

    Parameters
    ----------
    text
        As for strftime in Python: %d.%m.%Y %H:%M:%S.
    """

    text: str

    @property
    def fault(self) -> str | None:
        """Why it is no format; None if it is one."""
        try:
            moment = pl.Series([_A_DAY * _DAY_US + _DAY_US // 2]).cast(pl.Datetime("us", "UTC"))
            written = moment.dt.strftime(self._of_polars)
            read = self.read(written)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return "it has parts that are unknown or do not fit together"
        return None if read[0] is not None and read[0] // _DAY_US == _A_DAY else "it has no year, month and day"

    @property
    def has_zone(self) -> bool:
        """Whether it has the offset of a zone."""
        return "%z" in self.text

    def read(self, texts: pl.Series) -> pl.Series:
        """Return the instants, those without a zone as if they were in UTC; NULL where a text is not of the format."""
        if self._has_comma:
            texts = texts.str.replace(_COMMA_BEFORE_FRACTION, ".${1}${2}")
        dtype = pl.Datetime("us", "UTC" if self.has_zone else None)
        return texts.str.strptime(dtype, self._of_polars, strict=False).to_physical()

    @property
    def _has_comma(self) -> bool:
        return ",%f" in self.text

    @property
    def _of_polars(self) -> str:
        return _FRACTION.sub("%.f", self.text).replace("%f", "%6f")


def guessed_formats(texts: Iterable[str]) -> list[str]:
    """Return formats that all texts have: two, if day and month may be exchanged; none if no known one fits.

    Parameters
    ----------
    texts
        Some instants as they are written.
    """
    held = pl.Series([each.strip() for each in texts][:_LOOKED_AT], dtype=pl.String)
    if held.is_empty() or held.str.contains(r"^[+-]?\d*[.,]?\d*$").any():
        return []
    found = [each for each in _KNOWN if TimeFormat(each).read(held).null_count() == 0]
    return [each for each in found if each in (found[0], found[0].replace("%m/%d", "%d/%m"))]


_PARTS = r"^(?<sign>[+-]?)(?<whole>\d+)(?:[.](?<rest>\d+))?$"
NEW_YEAR_1971_US = 31_536_000_000_000
"""Seconds and milliseconds that are taken for microseconds are earlier, until the year 2969."""
NEW_YEAR_2262_US = 9_214_646_400_000_000
"""Nanoseconds that are taken for microseconds are later, from April 1970 on."""
_ADVICE = "--time-unit s (ms, us or ns) says what numbers are"


class TimeUnit(StrEnum):
    """A unit of time since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def decimals(self) -> int:
        """How many decimals of a number of this unit are whole microseconds; negative if microseconds are longer."""
        return {"s": 6, "ms": 3, "us": 0, "ns": -3}[self.value]

    def of_whole(self, numbers: pl.Expr) -> pl.Expr:
        """Return whole numbers of this unit as microseconds; NULL where there would be too many."""
        if self.decimals < 0:
            return numbers.floordiv(10**-self.decimals)
        factor = 10**self.decimals
        return pl.when(numbers.is_between(-(2**62) // factor, 2**62 // factor)).then(numbers * factor)

    def of_reals(self, numbers: pl.Expr) -> pl.Expr:
        """Return numbers of this unit as microseconds, to the nearest one; NULL where there would be too many."""
        found = (numbers * 10.0**self.decimals).round()
        return pl.when(found.is_between(-(2.0**62), 2.0**62)).then(found).cast(pl.Int64)

    def of_texts(self, texts: pl.Series, decimal: str = ".") -> pl.Series:
        """Return the microseconds that texts give as numbers of this unit, to the last digit; NULL for no number."""
        if decimal != ".":
            texts = texts.set(texts.str.contains(".", literal=True).fill_null(value=False), None)
            texts = texts.str.replace(decimal, ".", literal=True)
        parts = texts.str.extract_groups(_PARTS).struct.unnest()
        sign = pl.when(pl.col("sign") == "-").then(-1).otherwise(1)
        found = self.of_whole(pl.col("whole").cast(pl.Int64, strict=False) * sign)
        if self.decimals > 0:
            digits = pl.col("rest").fill_null("").str.pad_end(self.decimals, "0").str.slice(0, self.decimals)
            found += digits.cast(pl.Int64, strict=False) * sign
        return parts.select(found).to_series()


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why numbers may be no microseconds: as such they lie where hardly any stamp does.

    Parameters
    ----------
    where
        Where they lie, in words.
    others
        Where others lie, in words.
    since_us
        The first instant that is not in doubt, or from which on all are.
    is_early
        Whether instants before that are in doubt.
    """

    where: str
    others: str
    since_us: int
    is_early: bool

    def concerns(self, stamps: pl.Series) -> pl.Series:
        """Return which stamps are in doubt."""
        return stamps < self.since_us if self.is_early else stamps >= self.since_us

    def concerns_all(self, first_us: int, last_us: int) -> bool:
        """Return whether all stamps between these are in doubt."""
        return 0 <= first_us <= last_us < self.since_us if self.is_early else first_us >= self.since_us

    def mixed(self, shown: str, few: str, *, in_other_files: bool = False) -> TableFileError:
        """Return the error of numbers in doubt beside stamps that are not.

        Parameters
        ----------
        shown
            The file as messages name it.
        few
            The places of such numbers.
        in_other_files
            Whether the other stamps are in other files of the stream.
        """
        beside = f", and other files have {self.others} ones" if in_other_files else f" beside {self.others} ones"
        return TableFileError(
            f"{shown} has stamps {self.where}{beside}: {few}; whole numbers are microseconds since 1970",
            hint=f"{_ADVICE}; where there are several units, make them one",
        )


EARLY = Doubt("before 1971", "later", NEW_YEAR_1971_US, is_early=True)
FAR = Doubt("after 2261", "earlier", NEW_YEAR_2262_US, is_early=False)


def doubts(first_us: int, last_us: int) -> list[Doubt]:
    """Return why some of the stamps that lie between these may be numbers of another unit than others."""
    return [each for each in (EARLY, FAR) if first_us < each.since_us <= last_us]


def warning_of_all(shown: str, column: str, first_us: int, last_us: int) -> str | None:
    """Return the warning of a file whose numbers may all be of another unit, or no instants; None if there is none."""
    if EARLY.concerns_all(first_us, last_us):
        lie, units = "in 1970", "s (or ms, us, ns)"
    elif FAR.concerns_all(first_us, last_us):
        lie, units = "after 2261", "ns (or s, ms, us)"
    else:
        return None
    return (
        f"{shown} begins and ends {lie}: whole numbers are microseconds since 1970, unless --time-unit {units} says "
        f"what they are, or --time-column names another column than {column!r}"
    )


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
