"""Base of operators that need their rows in start order from batch to batch, which queues do not guarantee.

input     rows 10 14            watermark 12      Rows that start before the watermark are complete, and go on in order;
          rows 12 13            watermark 15      the rest waits for the watermark.
taken     10
          12 13 14
"""

from __future__ import annotations

from abc import abstractmethod

import polars as pl

from cluster.fjord.batch import START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import split_at


class StartOrdered(Operator):
    """Sorts its input by start; equal starts stay in order of arrival.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    """

    def __init__(self, columns: pl.DataFrame) -> None:
        self._early = columns.clear()

    def transition(self, port: int, batch: Batch) -> Batch:
        """Pass on the rows that the watermark has passed."""
        del port
        rows = batch.rows.select(self._early.columns)
        if self._early.height:
            rows = pl.concat([self._early, rows])
        ready, self._early = split_at(rows, batch.watermark_us)
        return self._take(Batch(ready.sort(START, maintain_order=True), batch.watermark_us))

    @abstractmethod
    def _take(self, batch: Batch) -> Batch:
        """Process one batch of rows that start before its watermark and no earlier than any previous row."""

    def save(self) -> State:
        """Return the rows that wait for the watermark."""
        return {"early": self._early}

    def restore(self, state: State) -> None:
        """Restore them."""
        early = state.get("early")  # states of earlier versions may lack them
        self._early = early if isinstance(early, pl.DataFrame) else self._early.clear()
