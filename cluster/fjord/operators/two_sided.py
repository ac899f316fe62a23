"""Base of operators that pair the rows of two inputs: they keep rows of both, and hold answers back."""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import ALWAYS
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of, table_of
from cluster.fjord.running_kind import StateEstimate
from cluster.physical.nodes import OperatorNode


class TwoSided(Operator):
    """Keeps rows that may still find a partner, and the positions of both inputs.

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
        """Return the kept and held rows, and the positions of the inputs."""
        left_us, right_us = self._watermarks_us
        left, right = self._kept
        return {**self._output.save(), "left": left, "right": right, "left_us": left_us, "right_us": right_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._output.restore(state)
        self._kept = [table_of(state, "left"), table_of(state, "right")]
        self._watermarks_us = [number_of(state, "left_us"), number_of(state, "right_us")]


def rows_within(node: OperatorNode, estimate: StateEstimate, low_us: int, high_us: int) -> float:
    """Return how many rows of both sides may still find a partner.

    Parameters
    ----------
    node
        A join of rows of instants.
    estimate
        The estimate of its fragment's state.
    low_us, high_us
        Bounds of the right stamp minus the left one.
    """
    left, right = (estimate.flow(each).per_second / 1e6 for each in node.inputs)
    return left * (max(high_us, 0) + 1) + right * (max(-low_us, 0) + 1)
