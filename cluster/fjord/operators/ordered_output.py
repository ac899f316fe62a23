"""Bases of operators: answers that are held back, rows that are needed in start order, and pairs of two inputs.

**Base of operators that need their rows in start order from batch to batch, which queues do not guarantee.**

input     rows 10 14            watermark 12      Rows that start before the watermark are complete, and go on in order;
          rows 12 13            watermark 15      the rest waits for the watermark.
taken     10
          12 13 14
"""

from __future__ import annotations

from abc import abstractmethod

import polars as pl

from cluster.errors import StateError
from cluster.fjord.batch import ALWAYS, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.running_kind import StateEstimate
from cluster.physical.nodes import OperatorNode


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
