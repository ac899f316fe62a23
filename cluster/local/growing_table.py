"""A table whose rows are not all known when the first are printed, with the window that each is of.

**The window that an answer is of, as people read it: ``2012-03-01 00:00 - 01:00``.**

A row is valid from just before its window ends, as only then it is complete (docs/reference/sql.md, When rows come):

    windows of an hour            |--- 00:00 - 01:00 ---|--- 01:00 - 02:00 ---|
    valid                                              |--- the first one ----|
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from cluster.fjord.batch import instant_text
from cluster.fjord.window_boundaries import windows_at
from cluster.operators.window_shapes import Grid
from protocols.text.plain_text import columns_of, printable


class GrowingTable:
    """The lines of a table, page by page; the names of its columns stand above the first one.

    Parameters
    ----------
    names
        Of the columns.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._widths = [columns_of(name) for name in names]
        self._heading = [self.names]

    @property
    def is_empty(self) -> bool:
        """Whether there has been no row yet."""
        return bool(self._heading)

    def lines(self, rows: Sequence[Sequence[str]], to_right: Sequence[bool]) -> Iterator[str]:
        """Yield the lines of a page.

        Parameters
        ----------
        rows
            Its cells.
        to_right
            Whether each column is aligned to the right.
        """
        self._widths = [max(width, *(columns_of(row[at]) for row in rows)) for at, width in enumerate(self._widths)]
        shown, self._heading = [*self._heading, *rows], []
        for row in shown:
            cells = (_filled(*cell) for cell in zip(row, self._widths, to_right, strict=True))
            yield "  ".join(cells).rstrip()


def cell_text(value: Any) -> str:
    """Return a value as a table shows it, on one line."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    # A line of a table is a line of the terminal.
    return printable(value, lines=False) if isinstance(value, str) else msgspec.json.encode(value).decode()


def _filled(cell: str, width: int, to_right: bool) -> str:  # noqa: FBT001 - of cells, widths and alignments together
    space = " " * (width - columns_of(cell))
    return space + cell if to_right else cell + space


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
