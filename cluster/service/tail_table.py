"""Rows that a terminal follows, as a table that grows: windows instead of instants, values below their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cluster.expressions.timestamps import timestamp_us
from cluster.local.growing_table import GrowingTable, cell_text, heading_of, window_text
from cluster.operators.window_shapes import Grid
from protocols.text.plain_text import printable


class _Message(msgspec.Struct):
    """A row, or why rows are missing."""

    sequence: int
    start: str | None = None
    end: str | None = None
    at: str | None = None
    row: dict[str, Any] | None = None
    error: str | None = None
    closes: int | None = None


class TailTable:
    """The lines of a query's rows, as they come.

    Parameters
    ----------
    windows
        The windows that rows are of, as the API describes them; None if they are of none that begin and end.
    """

    def __init__(self, windows: dict[str, Any] | None) -> None:
        self._grid = None if windows is None else msgspec.convert(windows, Grid)
        self._table = GrowingTable(())

    def lines(self, payload: bytes) -> Iterator[str]:
        """Yield the lines of a message: with the first row, and where rows get other columns, the names of columns."""
        message = msgspec.json.decode(payload, type=_Message)
        if message.error is not None:
            missing = " to ".join(each for each in (message.at, message.end) if each)
            yield printable(f"rows are missing, {missing}: {message.error}", lines=False)
        if message.closes is not None:
            yield f"row {message.closes} ends at {message.end}"
        if message.row is None:
            return
        names = ["", *self._headings, *message.row]
        if names != self._table.names:
            self._table = GrowingTable(names)
        cells = [str(message.sequence), *self._valid(message), *map(cell_text, message.row.values())]
        numbers = [True, *(False for _ in self._headings), *map(_is_number, message.row.values())]
        yield from self._table.lines([cells], numbers)

    @property
    def _headings(self) -> list[str]:
        return ["start", "end"] if self._grid is None else [heading_of(self._grid)]

    def _valid(self, message: _Message) -> list[str]:
        start, end = message.start or "", message.end or ""
        if self._grid is None:
            return [start, end]
        begins, ends = timestamp_us(start), timestamp_us(end)
        if begins is None or (end and ends is None):  # of a year that calendars do not show
            return [f"{start} - {end}"]
        return [window_text(self._grid, begins, begins + 1 if ends is None else ends)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
