"""Union: the tuples of both inputs (papers/pipes_algebra.md section 3), merged in start order."""

from __future__ import annotations

import dataclasses
from typing import final

import polars as pl
from msgspec import structs

from cluster.fjord.batch import ALWAYS, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of
from cluster.fjord.operators.origins import OriginUnion
from cluster.fjord.row_flow import RowFlow, larger, longest
from cluster.fjord.running_kind import Alone, InputFlows, KeepsNothing, RuntimeContext
from cluster.operators.mark_columns import ORIGIN
from cluster.operators.source import MOST_READINGS
from cluster.physical import operations as kinds


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


@final
class RunningUnion(KeepsNothing, Alone[kinds.Union]):
    """The union of two inputs."""

    def operator(self, operation: kinds.Union) -> Operator:
        """Return the operator."""
        return Union(empty_rows(operation.columns))

    def with_origins(self, operation: kinds.Union, context: RuntimeContext) -> Operator:
        """Return one of rows that have origins as a column."""
        with_column = structs.replace(operation, columns=(*operation.columns, ORIGIN))
        return OriginUnion(self.instantiate(with_column, context))

    def flow(self, operation: kinds.Union, inputs: InputFlows) -> RowFlow:
        """Return the rows of both sides, with at most as many copies of a tuple as a query may read its stream.

        Conditions joined by OR unite the rows that satisfy the first with those that satisfy only the second, so many
        unions in a row have far fewer rows than the sum of their sides.
        """
        del operation
        left, right = inputs.both
        most_read = max((left, right), key=lambda each: each.read_once)
        both = left.per_tuple + right.per_tuple
        share = min(1.0, MOST_READINGS * most_read.read_once / both) if both else 1.0
        return dataclasses.replace(
            most_read,
            per_tuple=both * share,
            at_once=(left.at_once + right.at_once) * share,
            per_second=(left.per_second + right.per_second) * share,
            lasting_us=longest(left, right),
            valid=(left.valid + right.valid) * share,
            per_key=(left.per_key + right.per_key) * share,
            made_per_second=0.0,
            because=larger(left, right).because,
        )
