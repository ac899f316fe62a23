"""Functions of timestamps and intervals (:mod:`cluster.expressions.timestamps`), and clocks of time zones.

**Clocks of time zones: what they show at an instant, and the instant at which they show something.**

Offsets come from Python's own zoneinfo, for each hour of data once: zones change their clocks seldom, and
most columns lie in few hours. An hour in which the offset changes is looked at instant by instant.

Years and months are counted by NumPy, in the Gregorian calendar extended to the past.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from cluster.expressions import timestamps
from cluster.expressions.timestamps import (
    DAY_US,
    EARLIEST_US,
    HOUR_US,
    LATEST_US,
    LENGTHS_US,
    LONGEST_INTERVAL_US,
    MONTHS,
    SECOND_US,
    interval_iso,
)
from cluster.scalars.operators import aligned
from cluster.scalars.real_values import quotients, rounded_parts, rounded_products

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS_KEPT = 262_144


def local_in(zone: str) -> Callable[[pl.Series], pl.Series]:
    """Return the function that gives what clocks of a zone show at instants."""
    return lambda value: _shifted(value, zone, 1, _offset_at)


def local_of(zone: str) -> Callable[[pl.Series], pl.Series]:
    """Return the function that gives the instants at which clocks of a zone show local timestamps.

    Where a clock shows something twice, the first time counts; where it leaps over it, the offset before the leap.
    """
    return lambda value: _shifted(value, zone, -1, _offset_shown)


_Offset = Callable[[str, int], int | None]


def _shifted(value: pl.Series, zone: str, sign: int, offset: _Offset) -> pl.Series:
    """Return timestamps plus or minus their offset; NULL beyond the years that there are."""
    value = value.cast(pl.Int64)
    hours = value // HOUR_US
    known: dict[int, int | None] = {}
    changing: set[int] = set()
    for hour in hours.drop_nulls().unique().to_list():
        first, last = _ends(offset, zone, hour)
        known[hour] = first
        if first != last:
            changing.add(hour)
    offsets = hours.replace_strict(known, return_dtype=pl.Int64) if known else hours
    if changing:
        rows = zip(value.to_list(), hours.to_list(), offsets.to_list(), strict=True)
        exact = [offset(zone, us) if hour in changing else usual for us, hour, usual in rows]
        offsets = pl.Series(exact, dtype=pl.Int64)
    found = value + sign * offsets
    return found.zip_with(found.is_between(EARLIEST_US, LATEST_US), pl.Series([None], dtype=pl.Int64))


def _ends(offset: _Offset, zone: str, hour: int) -> tuple[int | None, int | None]:
    return _kept(offset, zone, hour * HOUR_US), _kept(offset, zone, (hour + 1) * HOUR_US - 1)


@lru_cache(maxsize=_HOURS_KEPT)
def _kept(offset: _Offset, zone: str, us: int) -> int | None:
    return offset(zone, us)


def _offset_at(zone: str, instant_us: int) -> int | None:
    """Return how far the clocks of a zone are ahead of UTC at an instant, in microseconds."""
    try:
        return _microseconds((_EPOCH + timedelta(microseconds=instant_us)).astimezone(ZoneInfo(zone)).utcoffset())
    except OverflowError:  # at the ends of the years that there are
        return None


def _offset_shown(zone: str, local_us: int) -> int | None:
    """Return how far the clocks of a zone are ahead of UTC when they show something, in microseconds."""
    try:
        shown = (_EPOCH + timedelta(microseconds=local_us)).replace(tzinfo=ZoneInfo(zone), fold=0)
        return _microseconds(shown.utcoffset())
    except OverflowError:
        return None


def _microseconds(offset: timedelta | None) -> int:
    return (offset or timedelta()) // timedelta(microseconds=1)


_UNIX_MONDAY_US = 3 * DAY_US
"""1970 began on a Thursday: so much earlier, a week began."""


def whole(value: pl.Series) -> pl.Series:
    """Return integers; NULL has no type of its own."""
    return value.cast(pl.Int64)


def bounded(value: pl.Series, low: int, high: int) -> pl.Series:
    """Return integers, NULL where they are not between two others."""
    value = whole(value)
    least, most = value.min(), value.max()
    if least is None or (low <= least and most <= high):  # type: ignore[operator] # both are integers
        return value
    return value.zip_with(value.is_between(low, high), pl.Series([None], dtype=pl.Int64))


def timestamp_of(value: pl.Series) -> pl.Series:
    """Return the instants of microseconds since 1970; NULL beyond the years 1 to 9999."""
    return bounded(value, EARLIEST_US, LATEST_US)


def timestamps_in(unit_us: int) -> Callable[[pl.Series], pl.Series]:
    """Return the function that makes timestamps of numbers of a unit since 1970."""

    def found(value: pl.Series) -> pl.Series:
        return whole(bounded(value, EARLIEST_US // unit_us, LATEST_US // unit_us) * unit_us)

    return found


def interval_of(value: pl.Series) -> pl.Series:
    """Return intervals; NULL beyond the longest."""
    return bounded(value, -LONGEST_INTERVAL_US, LONGEST_INTERVAL_US)


def plus(value: pl.Series, interval: pl.Series) -> pl.Series:
    """Return timestamps that are later by intervals: neither is so large that the sum could wrap around."""
    return timestamp_of(whole(value) + whole(interval))


def minus(one: pl.Series, other: pl.Series) -> pl.Series:
    """Return how much later one is than another."""
    return whole(one) - whole(other)


def interval_plus(one: pl.Series, other: pl.Series) -> pl.Series:
    """Return the sum of two intervals."""
    return interval_of(whole(one) + whole(other))


def times(interval: pl.Series, number: pl.Series) -> pl.Series:
    """Return an interval times a number, rounded to the nearest microsecond, of two the even one."""
    interval, number = aligned(whole(interval), number)
    if number.dtype in (pl.Int64, pl.Null):
        near = interval.cast(pl.Float64) * number.cast(pl.Float64)
        exact = interval * whole(number)
        return interval_of(exact.zip_with(near.abs() < 2.0 * LONGEST_INTERVAL_US, pl.Series([None], dtype=pl.Int64)))
    return interval_of(rounded_products(interval, number))


def parts(interval: pl.Series, number: pl.Series) -> pl.Series:
    """Return an interval divided by a number, rounded likewise; NULL for zero."""
    interval, number = aligned(whole(interval), number)
    return interval_of(rounded_parts(interval, whole(number) if number.dtype == pl.Null else number))


def epoch(value: pl.Series) -> pl.Series:
    """Return seconds, with the fraction."""
    return quotients(whole(value), SECOND_US)


def as_datetime(value: pl.Series) -> pl.Series:
    """Return timestamps as Polars' own, without a zone."""
    return whole(value).cast(pl.Datetime("us"))


_PARTS: dict[str, Callable[[pl.Series], pl.Series]] = {
    "YEAR": lambda value: value.dt.year(),
    "QUARTER": lambda value: value.dt.quarter(),
    "MONTH": lambda value: value.dt.month(),
    "WEEK": lambda value: value.dt.week(),
    "ISOYEAR": lambda value: value.dt.iso_year(),
    "DAY": lambda value: value.dt.day(),
    "DOY": lambda value: value.dt.ordinal_day(),
    "DOW": lambda value: value.dt.weekday() % 7,
    "ISODOW": lambda value: value.dt.weekday(),
    "HOUR": lambda value: value.dt.hour(),
    "MINUTE": lambda value: value.dt.minute(),
    "SECOND": lambda value: value.dt.second(),
}
PARTS = tuple(_PARTS)
"""The parts of a timestamp that are integers."""


def part(name: str) -> Callable[[pl.Series], pl.Series]:
    """Return the function that gives a part of timestamps."""
    found = _PARTS[name]
    return lambda value: whole(found(as_datetime(value)))


def number_of(unit: str) -> Callable[[pl.Series], pl.Series]:
    """Return the function that numbers the units in which timestamps lie; that of 1970 is 0."""
    if unit in MONTHS:
        return lambda value: _months(value) // MONTHS[unit]
    length, shift = LENGTHS_US[unit], _UNIX_MONDAY_US if unit == "WEEK" else 0
    return lambda value: (whole(value) + shift) // length


def floor_to(unit: str) -> Callable[[pl.Series], pl.Series]:
    """Return the function that gives the beginning of the units in which timestamps lie."""
    numbered = number_of(unit)
    if unit in MONTHS:
        return lambda value: _beginnings(numbered(value) * MONTHS[unit])
    length, shift = LENGTHS_US[unit], _UNIX_MONDAY_US if unit == "WEEK" else 0
    return lambda value: timestamp_of(numbered(value) * length - shift)


def _months(value: pl.Series) -> pl.Series:
    """Return the numbers of months since 1970."""
    instants = whole(value).fill_null(0).to_numpy().astype("datetime64[us]")
    return _where_known(value, instants.astype("datetime64[M]").astype(np.int64))


def _beginnings(months: pl.Series) -> pl.Series:
    """Return the first instants of months, by their numbers."""
    begins = months.fill_null(0).to_numpy().astype("datetime64[M]").astype("datetime64[us]")
    return _where_known(months, begins.astype(np.int64))


def _where_known(value: pl.Series, numbers: np.ndarray) -> pl.Series:
    found = pl.Series(numbers, dtype=pl.Int64)
    return found.zip_with(value.is_not_null(), pl.Series([None], dtype=pl.Int64)) if value.null_count() else found


def count_of(unit: str) -> Callable[[pl.Series], pl.Series]:
    """Return the function that counts the whole units of intervals, rounded towards zero."""
    length = LENGTHS_US.get(unit, 1)

    def counted(value: pl.Series) -> pl.Series:
        value = whole(value)
        return (value.abs() // length) * value.sign()

    return counted


def interval_text(value: pl.Series) -> pl.Series:
    """Return intervals as ISO 8601."""
    texts = [None if each is None else interval_iso(each) for each in whole(value).to_list()]
    return pl.Series(texts, dtype=pl.String)


def formatting(pattern: str) -> Callable[[pl.Series], pl.Series]:
    """Return the function that writes timestamps by a pattern (cluster/language/time_functions.py)."""
    chrono = pattern.replace("%%", "%\0").replace("%f", "%6f").replace("%\0", "%%")
    return lambda value: as_datetime(value).dt.to_string(chrono)


_ISO_TEXT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?)?"
    r" ?(?:Z|([+-])([0-9]{2}):?([0-9]{2})?)?$"
)


def timestamp_of_text(value: pl.Series) -> pl.Series:
    """Return the timestamps of texts in ISO 8601, in UTC where they have no offset; NULL for other texts."""
    text = value.cast(pl.String).str.strip_chars()
    found = text.str.extract_groups(_ISO_TEXT).struct.unnest()
    date, hour, minute, second, fraction, sign, hours, minutes = found.get_columns()
    days = date.str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64)
    small = [(hour, 23), (minute, 59), (second, 59), (hours, 23), (minutes, 59)]
    numbers = [_digits(each, most) for each, most in small]
    micros = fraction.str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
    clock = (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    offset = (numbers[3] * 60 + numbers[4]) * 60
    offset = (-offset).zip_with(sign == "-", offset).zip_with(sign.is_not_null(), pl.Series([0], dtype=pl.Int64))
    instant = days * DAY_US + (clock - offset) * SECOND_US + micros
    return timestamp_of(instant)


def _digits(text: pl.Series, most: int) -> pl.Series:
    """Return the numbers of texts, 0 where there is none, NULL where they are too large."""
    number = text.cast(pl.Int64, strict=False).fill_null(0)
    return number.zip_with(number <= most, pl.Series([None], dtype=pl.Int64))


TIMESTAMP_FUNCTIONS: dict[str, Callable[..., pl.Series]] = {
    timestamps.OF_MICROSECONDS: timestamp_of,
    timestamps.OF_MILLISECONDS: timestamps_in(1_000),
    timestamps.OF_SECONDS: timestamps_in(SECOND_US),
    timestamps.OF_TEXT: timestamp_of_text,
    timestamps.TO_TEXT: formatting("%Y-%m-%dT%H:%M:%S.%fZ"),
    timestamps.LOCAL_TO_TEXT: formatting("%Y-%m-%dT%H:%M:%S.%f"),
    timestamps.INTERVAL_TO_TEXT: interval_text,
    timestamps.PLUS: plus,
    timestamps.MINUS: minus,
    timestamps.INTERVAL_PLUS: interval_plus,
    timestamps.INTERVAL_TIMES: times,
    timestamps.INTERVAL_PARTS: parts,
    timestamps.EPOCH: epoch,
}
"""By the name of the call: what computes it."""

OF_CONSTANTS: dict[str, Callable[..., Callable[..., pl.Series]]] = {
    timestamps.PART: part,
    timestamps.FLOOR: floor_to,
    timestamps.NUMBER: number_of,
    timestamps.COUNT: count_of,
    timestamps.FORMAT: formatting,
    timestamps.TO_LOCAL: local_in,
    timestamps.OF_LOCAL: local_of,
}
"""By the name of the call: what makes the function of its constant."""
