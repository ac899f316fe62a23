"""Coalesce: a row that begins where an equal one ends is merged with it (papers/pipes_algebra.md section 5.13).

a  |----)
a       |-------)       a  |------------)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import NEVER, Batch
from cluster.fjord.operator import State
from cluster.fjord.operators.ordered_output import StartOrdered, table_of


class Coalesce(StartOrdered):
    """Holds a row while an equal one may still follow it, and all rows that start after it: the output stays ordered.

    It works row by row, because which of several equal rows grows depends on their order.

    Parameters
    ----------
    columns
        No rows, with the columns of the input. NULL equals NULL.
    longest_us
        A row that lasts this long or longer is no longer held.
    """

    def __init__(self, columns: pl.DataFrame, longest_us: int) -> None:
        if longest_us < 1:
            raise PlanError(f"rows of at most {longest_us} us")
        super().__init__(columns)
        self._longest_us = longest_us
        self._held = columns.clear()

    def _take(self, batch: Batch) -> Batch:
        """Let held rows grow; emit, from the first on, those that cannot grow any more."""
        schema = self._held.schema
        held = list(self._held.iter_rows())
        emitted: list[tuple[Any, ...]] = []
        for row in batch.rows.iter_rows():
            emitted += self._take_done(held, row[0])
            _grow(held, row)
        emitted += self._take_done(held, batch.watermark_us)
        self._held = pl.DataFrame(held, schema=schema, orient="row")
        reached = min(batch.watermark_us, held[0][0]) if held else batch.watermark_us
        return Batch(pl.DataFrame(emitted, schema=schema, orient="row"), reached)

    def _take_done(self, held: list[tuple[Any, ...]], now_us: int) -> Iterator[tuple[Any, ...]]:
        """Remove and return the leading rows that cannot grow, if all later rows start at `now_us` or later."""
        while held:
            start, end = held[0][:2]
            if not (end < now_us or now_us >= NEVER or end >= NEVER or end - start >= self._longest_us):
                return
            yield held.pop(0)

    def save(self) -> State:
        """Return the held rows."""
        return {**super().save(), "held": self._held}

    def restore(self, state: State) -> None:
        """Restore them."""
        super().restore(state)
        self._held = table_of(state, "held")


def _grow(held: list[tuple[Any, ...]], row: tuple[Any, ...]) -> None:
    start, end, *values = row
    for place, (begin, reached, *known) in enumerate(held):
        if reached == start and known == values:
            held[place] = (begin, end, *values)
            return
    held.append(row)
