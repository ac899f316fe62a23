"""Distinct: each tuple once at every instant (papers/pipes_algebra.md sections 3 and 5.6, corrected form).

a  |-----------)
a       |-----------)        emitted at once: the part that no earlier one covers
   |-----------)----)
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, table_of

_COVERED, _KNOWN, _BEFORE = "fjord_covered", "fjord_known", "fjord_before"


class Distinct(Operator):
    """Remembers, per tuple, up to where it has been emitted; forgets it when that has passed.

    Parameters
    ----------
    columns
        No rows, with the columns of the input. NULL equals NULL.
    """

    def __init__(self, columns: pl.DataFrame) -> None:
        self._values = [name for name in columns.columns if name not in (START, END)]
        self._covered = columns.clear().select(*self._values, pl.col(END).alias(_COVERED))
        self._output = OrderedOutput(columns)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Emit of each row what is not covered yet. Rows arrive in start order."""
        del port
        if batch.rows.height:
            self._take(batch.rows)
        self._covered = self._covered.filter(pl.col(_COVERED) > batch.watermark_us)
        return self._output.release(batch.watermark_us)

    def _take(self, rows: pl.DataFrame) -> None:
        known = self._covered.select(
            pl.col(_COVERED).alias(START), pl.col(_COVERED).alias(END), *self._values, pl.lit(value=True).alias(_KNOWN)
        )
        both = pl.concat(
            [known, rows.select(START, END, *self._values).with_columns(pl.lit(value=False).alias(_KNOWN))]
        )
        # What is known comes before what is new of the same value; new rows are in start order already.
        running = pl.col(END).cum_max()
        before = running.shift(1)
        both = both.sort(_KNOWN, descending=True, maintain_order=True)
        if self._values:
            running, before = running.over(self._values), before.over(self._values)
        both = both.with_columns(running.alias(_COVERED), before.alias(_BEFORE))
        fresh = both.filter(~pl.col(_KNOWN)).with_columns(pl.max_horizontal(START, _BEFORE).alias(START))
        self._output.add(fresh.filter(pl.col(START) < pl.col(END)))
        if self._values:
            self._covered = both.group_by(self._values, maintain_order=True).agg(pl.col(_COVERED).max())
        else:
            self._covered = both.select(pl.col(_COVERED).max())

    def save(self) -> State:
        """Return what is covered, and what is held."""
        return {**self._output.save(), "covered": self._covered}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._output.restore(state)
        self._covered = table_of(state, "covered")
