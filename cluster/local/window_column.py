"""The window that an answer is of, as people read it: ``2012-03-01 00:00 - 01:00``.

A row is valid from just before its window ends, as only then it is complete (docs/reference/sql.md, When rows come):

    windows of an hour            |--- 00:00 - 01:00 ---|--- 01:00 - 02:00 ---|
    valid                                              |--- the first one ----|
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from cluster.fjord.batch import instant_text
from cluster.fjord.window_boundaries import windows_at
from cluster.operators.window_shapes import Grid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def heading_of(grid: Grid) -> str:
    """Return the heading of the column: its instants are those of a time zone."""
    return "window" if grid.zone == "UTC" else f"window ({grid.zone})"


def window_text(grid: Grid, start_us: int, end_us: int) -> str:
    """Return the window of a row, or the first and the last one if nothing has changed in several.

    Parameters
    ----------
    grid
        Where windows begin and end.
    start_us, end_us
        When the row is valid, in microseconds since 1970.

    >>> from cluster.operators.window_shapes import Span
    >>> window_text(Grid(Span("us", 60_000_000), size=Span("us", 60_000_000)), 59_999_999, 119_999_999)
    '1970-01-01 00:00 - 00:01'
    """
    instants = np.array([start_us + 1, end_us], dtype=np.int64)
    begins, ends = (each.tolist() for each in windows_at(grid, instants))
    first = _bounds(grid, begins[0], ends[0])
    return first if ends[0] == ends[1] else f"{first} to {_bounds(grid, begins[1], ends[1])}"


def _bounds(grid: Grid, begin_us: int, end_us: int) -> str:
    zone = UTC if grid.zone == "UTC" else ZoneInfo(grid.zone)
    try:
        begin, end = (
            (_EPOCH + timedelta(microseconds=each)).astimezone(zone).replace(tzinfo=None) for each in (begin_us, end_us)
        )
    except OverflowError:  # a year that calendars do not show
        return f"{instant_text(begin_us)} - {instant_text(end_us)}"
    if begin.time() == end.time() == time.min:
        last = (end - timedelta(days=1)).date()
        return str(begin.date()) if last == begin.date() else f"{begin.date()} - {last}"
    whole = all(not (each.second or each.microsecond) for each in (begin, end))
    form = "minutes" if whole else "auto"
    if end.time() == time.min and (end - timedelta(days=1)).date() == begin.date():
        until = "24:00"
    else:
        until = end.time().isoformat(form) if end.date() == begin.date() else end.isoformat(" ", form)
    return f"{begin.isoformat(' ', form)} - {until}"
