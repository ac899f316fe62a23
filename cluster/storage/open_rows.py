"""The open rows of the results table: those whose end is yet to come, so that it can name them by their numbers.

An end comes with the query, the start and the text of its row. Rows in which these are equal can stand in for each
other; the newest one is closed, because the oldest may be that of an earlier query of the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import polars as pl

from cluster.storage.committed_results import CLOSES, OPEN

OpenRow = tuple[str, int, str]
"""Query, start, text."""


class OpenRows:
    """The numbers of open rows.

    Parameters
    ----------
    known
        Open rows with their numbers.
    """

    def __init__(self, known: Iterable[tuple[OpenRow, int]] = ()) -> None:
        self._numbers: dict[OpenRow, list[int]] = {}
        for row, number in known:
            self._numbers.setdefault(row, []).append(number)

    @classmethod
    def of(cls, kept: Iterable[tuple[OpenRow, int]], rows: pl.DataFrame) -> OpenRows:
        """Return the rows that are still open, of those that were kept, and those of the table that open or close.

        Parameters
        ----------
        kept
            Open rows that may have been removed from the table.
        rows
            Columns query, start_us, row, kind, sequence, closes.
        """
        closed = set(rows.filter(kind=CLOSES).select("query", "closes").iter_rows())
        found = {(row[0], number): (row, number) for row, number in kept}
        opened = rows.filter(kind=OPEN).sort("sequence").select("query", "start_us", "row", "sequence")
        for query, start_us, text, number in opened.iter_rows():
            found[query, number] = (query, start_us, text), number
        return cls(each for key, each in found.items() if key not in closed)

    def closed_by(self, ends: Sequence[OpenRow]) -> list[int | None]:
        """Return the number of the row that each end closes; None if there is no such row. Nothing changes yet."""
        used = Counter[OpenRow]()
        found: list[int | None] = []
        for end in ends:
            used[end] += 1
            numbers = self._numbers.get(end, [])
            found.append(numbers[-used[end]] if used[end] <= len(numbers) else None)
        return found

    def note(self, rows: pl.DataFrame) -> None:
        """Note rows that have been stored; columns as in :meth:`of`."""
        for query, start_us, text, closes in (
            rows.filter(kind=CLOSES).select("query", "start_us", "row", "closes").iter_rows()
        ):
            numbers = self._numbers[query, start_us, text]
            if numbers[-1] == closes:  # as in most cases; a row may have very many equals
                numbers.pop()
            else:
                numbers.remove(closes)
            if not numbers:
                del self._numbers[query, start_us, text]
        for query, start_us, text, number in (
            rows.filter(kind=OPEN).select("query", "start_us", "row", "sequence").iter_rows()
        ):
            self._numbers.setdefault((query, start_us, text), []).append(number)

    def listed(self) -> list[tuple[OpenRow, int]]:
        """Return all open rows with their numbers."""
        return [(row, number) for row, numbers in self._numbers.items() for number in numbers]
