"""Which rows cover which spans: rows that last are many spans long, so pairs of both are made block by block.

row    |-----------)            spans of its key    |--|----|----|---|
covers     2   3                number              1  2    3    4   5
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from cluster.fjord.batch import END, START
from cluster.fjord.ranges import Places, blocks, laid_out


@dataclass(frozen=True, slots=True)
class Coverings:
    """For each row, the range of the spans that it covers.

    Parameters
    ----------
    first, behind
        By row: the place of the first span, and the one behind the last.
    spans
        How many spans there are.
    """

    first: Places
    behind: Places
    spans: int

    @classmethod
    def of(cls, rows: pl.DataFrame, spans: pl.DataFrame, *, key: str) -> Coverings:
        """Return what rows cover.

        Parameters
        ----------
        rows
            With their intervals and keys. No interval begins or ends within a span, or else it ends behind all of them.
        spans
            Keys and starts of spans, sorted by both.
        key
            The column with the key, a number.
        """
        starts = spans[START].to_numpy()
        instants = np.unique(starts)
        width = len(instants) + 1

        def places(keys: pl.Series, stamps: pl.Series) -> Places:
            ranks = np.searchsorted(instants, stamps.to_numpy())
            return keys.cast(pl.Int64).to_numpy() * width + ranks

        order = places(spans[key], spans[START])
        first, behind = (np.searchsorted(order, places(rows[key], rows[edge])) for edge in (START, END))
        return cls(first.astype(np.int64), behind.astype(np.int64), len(starts))

    def blocks(self) -> Iterator[tuple[Places, Places]]:
        """Yield pairs as places of rows and of spans, by rows; all those of a span are in one block.

        There is one block at least, which may be empty.
        """
        changes = np.bincount(self.first, minlength=self.spans + 1) - np.bincount(self.behind, minlength=self.spans + 1)
        pairs = np.cumsum(np.cumsum(changes[: self.spans]))
        for begin, end in (*blocks(pairs),) or ((0, 0),):
            low, high = np.maximum(self.first, begin), np.minimum(self.behind, end)
            covering = np.flatnonzero(low < high)
            number, of_span = laid_out(low[covering], (high - low)[covering])
            yield covering[number], of_span
