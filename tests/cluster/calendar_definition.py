"""What windows by the calendar mean: a walk over all days of a place, one after the other.

Shares nothing with cluster/fjord/window_boundaries.py but Python's time zones.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from cluster.operators.window_shapes import DAY_US, Grid, Span

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def instant_of(day: date, offset_us: int, zone: str) -> int:
    """Return when clocks of a place show so much after midnight of a day."""
    local = datetime.combine(day, time()) + timedelta(microseconds=offset_us)
    return (local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - EPOCH) // MICROSECOND


def boundaries_of(grid: Grid, low_us: int, high_us: int) -> list[tuple[int, int]]:
    """Return each boundary in an interval, and where the window begins that ends there (that of a reset one: there).

    A day that clocks skip has no boundary of its own: it begins when the day before it ends, and ends there, too.
    """
    days = _days(low_us - 40 * DAY_US, high_us + 40 * DAY_US)
    found = [(instant_of(day, grid.offset_us, grid.zone), day) for day in days if _begins(day, grid.step)]
    first = dict(reversed(found))
    return [(at, _begin(at, day, grid)) for at, day in sorted(first.items()) if low_us <= at <= high_us]


def _days(low_us: int, high_us: int) -> Iterator[date]:
    day, last = ((EPOCH + timedelta(microseconds=each)).date() for each in (low_us, high_us))
    while day <= last:
        yield day
        day += timedelta(days=1)


def _begins(day: date, step: Span) -> bool:
    if step.unit == "month":
        return day.day == 1 and ((day.year - 1970) * 12 + day.month - 1) % step.count == 0
    if step.unit == "week":
        return day.weekday() == calendar.MONDAY and (day - date(1970, 1, 5)).days // 7 % step.count == 0
    return (day - date(1970, 1, 1)).days % step.count == 0


def _begin(at_us: int, day: date, grid: Grid) -> int:
    size = grid.size
    if size is None or not size.calendar:
        return at_us - (size.count if size else 0)
    if size.unit == "month":
        year, month = divmod(day.year * 12 + day.month - 1 - size.count, 12)
        day = date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
    else:
        day -= timedelta(days=size.count * (7 if size.unit == "week" else 1))
    return instant_of(day, grid.offset_us, grid.zone)


def valid_at(grid: Grid, slide_us: int, stamp: int, instant: int, boundaries: list[tuple[int, int]]) -> bool:
    """Return whether a tuple is valid at an instant, given all boundaries around both."""
    passed = [each for each in boundaries if each[0] <= instant + 1]
    if grid.size is not None:
        return bool(passed) and passed[-1][1] <= stamp < passed[-1][0]
    change = max(passed[-1][0], (instant + 1) // slide_us * slide_us)
    since = max(at for at, _ in boundaries if at < change)
    return since <= stamp < change
