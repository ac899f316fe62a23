"""Union: the tuples of both inputs (papers/pipes_algebra.md section 3), merged in start order."""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import ALWAYS, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of


class Union(Operator):
    """Holds the rows of the input that is ahead until the other has come as far.

    Parameters
    ----------
    columns
        No rows, with the columns of the left input; those of the right one get their names, by position.
    """

    input_count = 2

    def __init__(self, columns: pl.DataFrame) -> None:
        self._names = columns.columns
        self._output = OrderedOutput(columns)
        self._watermarks_us = [ALWAYS, ALWAYS]

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows of one input and emit those that both have passed."""
        self._watermarks_us[port] = max(self._watermarks_us[port], batch.watermark_us)
        self._output.add(batch.rows.rename(dict(zip(batch.rows.columns, self._names, strict=True))))
        return self._output.release(min(self._watermarks_us))

    def save(self) -> State:
        """Return the held rows, and the positions of the inputs."""
        left_us, right_us = self._watermarks_us
        return {**self._output.save(), "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._output.restore(state)
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]
