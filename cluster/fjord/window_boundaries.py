"""Where the boundaries of a window's grid are: in microseconds, in months of the calendar, in a time zone.

    grid of days in Europe/Berlin     |-- 24 h --|- 23 h -|-- 24 h --|       clocks are put forward in the second day
    stamp t                                 t
    next_boundaries                              |
    first_without(t), windows of a day                    |                  the first window without t ends here

Computed for the days of the stamps only, however far apart they are. The rules of time zones are those of the IANA
database of this machine; of years that Python's calendar does not have, those of 400 years that are alike are used.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from cluster.operators.window_shapes import DAY_US, Grid, Span

Instants: TypeAlias = npt.NDArray[np.int64]

MONDAY = 4
"""1970-01-05, in days since 1970."""
CYCLE_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats itself."""
FIRST_DAY, LAST_DAY = -700_000, 2_900_000
"""Days that Python's calendar has, roughly: the years 54 to 9909."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


def next_boundaries(grid: Grid, stamps: Instants) -> Instants:
    """Return, for each stamp, the first boundary after it."""
    if not grid.step.calendar:
        step_us = grid.step.count
        return (stamps - grid.offset_us) // step_us * step_us + step_us + grid.offset_us
    candidates = _around(grid, (stamps - grid.offset_us) // DAY_US)
    instants, _ = _boundaries(grid, candidates)
    return instants[np.searchsorted(instants, stamps, side="right")]


def windows_at(grid: Grid, instants: Instants) -> tuple[Instants, Instants]:
    """Return, for each instant, begin and end of the window of the last boundary that is not after it.

    The grid is that of a window that slides: it has a size.
    """
    size = grid.size
    assert size is not None  # noqa: S101 - see above
    if not grid.step.calendar:
        ends = (instants - grid.offset_us) // grid.step.count * grid.step.count + grid.offset_us
        return ends - size.count, ends
    candidates = _around(grid, (instants - grid.offset_us) // DAY_US)
    candidates = np.unique(np.concatenate([candidates - 1, candidates]))
    boundaries, candidates = _boundaries(grid, candidates)
    found = np.searchsorted(boundaries, instants, side="right") - 1
    if not size.calendar:
        return boundaries[found] - size.count, boundaries[found]
    begins = _local_instants(grid, _moved(_days_of(grid.step, candidates), size, -1))
    return begins[found], boundaries[found]


def first_without(grid: Grid, stamps: Instants) -> Instants:
    """Return, for each stamp, the first boundary whose window begins after it.

    The grid is that of a window that slides: it has a size.
    """
    size = grid.size
    assert size is not None  # noqa: S101 - see above
    if not size.calendar:
        return next_boundaries(grid, stamps + size.count)
    days = (stamps - grid.offset_us) // DAY_US
    candidates = _around(grid, _moved(days, size, 1))
    boundaries, candidates = _boundaries(grid, candidates)
    begins = _local_instants(grid, _moved(_days_of(grid.step, candidates), size, -1))
    return boundaries[np.searchsorted(begins, stamps, side="right")]


def _around(grid: Grid, days: Instants) -> Instants:
    """Return the numbers of the boundaries near some local days: a day's zone, and the ends of months, are near."""
    near = np.unique(np.unique(days)[:, None] + np.arange(-3, 7))
    found = _numbers_of(grid.step, near)
    return np.unique(np.concatenate([found, found + 1, found + 2]))


def _boundaries(grid: Grid, numbers: Instants) -> tuple[Instants, Instants]:
    """Return the boundaries with some numbers, in order, and the number of each.

    A day that clocks skip begins and ends when the day before it ends. That is one boundary, of that day: the window
    there has the tuples of the day before it.
    """
    instants, first = np.unique(_local_instants(grid, _days_of(grid.step, numbers)), return_index=True)
    return instants, numbers[first]


def _local_instants(grid: Grid, days: Instants) -> Instants:
    """Return the instants at which clocks show the offset, on some days since 1970."""
    local = days * DAY_US + grid.offset_us
    if grid.zone == "UTC":
        return local
    return np.array([_instant_of(int(each), grid.zone) for each in local], dtype=np.int64)


@lru_cache(maxsize=65_536)
def _instant_of(local_us: int, zone: str) -> int:
    """Return the first instant at which clocks show a time, in microseconds since 1970.

    Of a time that clocks skip, it is the instant as if they had not been put forward yet.
    """
    day = local_us // DAY_US
    # The nearest years that there are: of all before a zone's first rule, clocks show its local mean time.
    cycles = min((day - FIRST_DAY) // CYCLE_DAYS, 0) + max(-((LAST_DAY - day) // CYCLE_DAYS), 0)
    shown = EPOCH + timedelta(microseconds=local_us - cycles * CYCLE_DAYS * DAY_US)
    ahead = shown.replace(tzinfo=_zone(zone), fold=0).utcoffset()
    assert ahead is not None  # noqa: S101 - what a zone computes
    return local_us - ahead // timedelta(microseconds=1)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _numbers_of(step: Span, days: Instants) -> Instants:
    """Return the number of the last boundary that is not after each day."""
    match step.unit:
        case "month":
            return _months_of(days) // step.count
        case "week":
            return (days - MONDAY) // (7 * step.count)
        case _:
            return days // step.count


def _days_of(step: Span, numbers: Instants) -> Instants:
    """Return the day on which each boundary is, by its number."""
    match step.unit:
        case "month":
            return _first_days(numbers * step.count)
        case "week":
            return numbers * (7 * step.count) + MONDAY
        case _:
            return numbers * step.count


def _moved(days: Instants, size: Span, direction: int) -> Instants:
    """Return days so much later or earlier; of a month without such a day, its last one."""
    if size.unit != "month":
        return days + direction * size.count * (7 if size.unit == "week" else 1)
    months = _months_of(days)
    target = months + direction * size.count
    lasting = _first_days(target + 1) - _first_days(target)
    found: Instants = _first_days(target) + np.minimum(days - _first_days(months), lasting - 1)
    return found


def _months_of(days: Instants) -> Instants:
    months: Instants = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return months


def _first_days(months: Instants) -> Instants:
    days: Instants = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return days
