"""The open rows of the results table: those whose end is yet to come, so that it can name them by their numbers.

An end comes with the query, the start and the text of its row. Rows in which these are equal can stand in for each
other; the newest one is closed, because the oldest may be that of an earlier query of the same name.

Where a query goes on with another plan, rows that last go on, too. Their ends come with the instant of that in place of
the start, and with the new plan's text, whose last digits may be others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import polars as pl

from cluster.rounded_rows import rounded
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

    def closed_by(
        self, ends: Sequence[OpenRow], earlier: Sequence[bool] | None = None
    ) -> list[tuple[OpenRow, int] | None]:
        """Return the row that each end closes, with its number; None if there is no such row. Nothing changes yet.

        Parameters
        ----------
        ends
            Query, start and text.
        earlier
            Of each end: whether it may be that of a row with equal values that began before.
        """
        used = Counter[OpenRow]()
        found: list[tuple[OpenRow, int] | None] = []
        for end in ends:
            used[end] += 1
            numbers = self._numbers.get(end, [])
            found.append((end, numbers[-used[end]]) if used[end] <= len(numbers) else None)
        if earlier is not None and any(earlier):
            self._find_earlier(ends, earlier, found)
        return found

    def _find_earlier(
        self, ends: Sequence[OpenRow], earlier: Sequence[bool], found: list[tuple[OpenRow, int] | None]
    ) -> None:
        """Find the rows of ends that have none yet."""
        taken = {(each[0][0], each[1]) for each in found if each is not None}
        wanted = {end[0] for end, may, has in zip(ends, earlier, found, strict=True) if may and has is None}
        equal: dict[tuple[str, str], list[tuple[int, OpenRow]]] = {}
        for row, numbers in self._numbers.items():
            if row[0] in wanted:
                left = [(number, row) for number in numbers if (row[0], number) not in taken]
                equal.setdefault((row[0], rounded(row[2])), []).extend(left)
        for rows in equal.values():
            rows.sort()
        for place, (end, may) in enumerate(zip(ends, earlier, strict=True)):
            if may and found[place] is None:
                query, start_us, text = end
                rows = equal.get((query, rounded(text)), [])
                newest = next((at for at in reversed(range(len(rows))) if rows[at][1][1] < start_us), None)
                if newest is not None:
                    number, row = rows.pop(newest)
                    found[place] = row, number

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
