"""What operators do alike that pair the rows of two inputs: they keep rows of both, and hold answers back."""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import ALWAYS
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of, table_of


class TwoSided(Operator):
    """Remembers what may still find a partner, and how far both inputs are.

    Parameters
    ----------
    left, right
        No rows, with the columns of the inputs.
    output
        No rows, with the columns of the answer.
    """

    input_count = 2

    def __init__(self, left: pl.DataFrame, right: pl.DataFrame, output: pl.DataFrame) -> None:
        self._kept = [left.clear(), right.clear()]
        self._watermarks_us = [ALWAYS, ALWAYS]
        self._output = OrderedOutput(output)

    def save(self) -> State:
        """Return what is kept and held, and how far the inputs are."""
        left_us, right_us = self._watermarks_us
        left, right = self._kept
        return {**self._output.save(), "left": left, "right": right, "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._output.restore(state)
        self._kept = [table_of(state, "left"), table_of(state, "right")]
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]
