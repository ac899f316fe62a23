"""Answers that are known but may not be emitted yet, because earlier ones may still come."""

from __future__ import annotations

import polars as pl

from cluster.errors import StateError
from cluster.fjord.batch import ALWAYS, START, Batch
from cluster.fjord.operator import State


class OrderedOutput:
    """Holds an operator's results until its watermark has passed their start.

    Parameters
    ----------
    columns
        No rows, with the columns of the results.
    """

    def __init__(self, columns: pl.DataFrame) -> None:
        self._held = columns.clear()
        self.watermark_us = ALWAYS

    @property
    def schema(self) -> pl.Schema:
        """Names and types of the columns of the results."""
        return self._held.schema

    def add(self, rows: pl.DataFrame) -> None:
        """Hold rows, in any order."""
        if rows.height:
            self._held = pl.concat([self._held, rows.select(self._held.columns)])

    def release(self, watermark_us: int) -> Batch:
        """Return, in start order, rows that start before a watermark (of the whole output, which never goes back)."""
        self.watermark_us = max(self.watermark_us, watermark_us)
        ready, self._held = split_at(self._held, self.watermark_us)
        return Batch(ready.sort(START, maintain_order=True), self.watermark_us)

    def save(self) -> dict[str, pl.DataFrame | int]:
        """Return the held rows."""
        return {"held": self._held, "output_watermark_us": self.watermark_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._held = table_of(state, "held")
        self.watermark_us = number_of(state, "output_watermark_us")


def split_at(rows: pl.DataFrame, instant_us: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that start before an instant, and the others; without a copy if they are all on one side."""
    if rows.height == 0:
        return rows, rows
    first, last = rows.select(pl.col(START).min().alias("first"), pl.col(START).max().alias("last")).row(0)
    if last < instant_us:
        return rows, rows.clear()
    if first >= instant_us:
        return rows.clear(), rows
    before = pl.col(START) < instant_us
    return rows.filter(before), rows.filter(~before)


def table_of(state: State, name: str) -> pl.DataFrame:
    """Return a table of a saved state.

    Raises
    ------
    StateError
        If it does not exist.
    """
    found = state.get(name)
    if not isinstance(found, pl.DataFrame):
        raise StateError(f"saved state has no table {name!r}")
    return found


def number_of(state: State, name: str) -> int:
    """Return a number of a saved state.

    Raises
    ------
    StateError
        If it does not exist.
    """
    found = state.get(name)
    if not isinstance(found, int):
        raise StateError(f"saved state has no number {name!r}")
    return found
