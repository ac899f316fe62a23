"""A table whose rows are not all known when the first are printed: columns become wider, and never narrower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

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
