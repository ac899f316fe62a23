"""Clocks of time zones: what they show at an instant, and the instant at which they show something.

Offsets come from Python's own zoneinfo, for each hour of data once: zones change their clocks seldom, and
most columns lie in few hours. An hour in which the offset changes is looked at instant by instant.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import polars as pl

from cluster.expressions.timestamps import EARLIEST_US, HOUR_US, LATEST_US

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
