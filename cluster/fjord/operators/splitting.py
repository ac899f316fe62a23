"""Split: rows that last are cut into pieces (papers/pipes_algebra.md section 5.12).

a  |-----------------)          split into pieces of 5
   |----)----)----)--)

The meaning of a tuple does not change; but windows above take one piece per instant.
"""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import split_at, table_of
from cluster.fjord.row_flow import RowFlow, as_they_come
from cluster.fjord.running_kind import Alone, InputFlows, KeepsNothing, PassesNoOrigins
from cluster.language.quantities import written
from cluster.physical import operations as kinds


class Split(Operator):
    """Keeps the pieces after the watermark; of a row that never ends, the rest is one piece when the input ends.

    Parameters
    ----------
    columns
        No rows, with the columns of the input.
    length_us
        The length of the pieces; the last one of a row may be shorter.
    """

    def __init__(self, columns: pl.DataFrame, length_us: int = 1) -> None:
        if length_us < 1:
            raise PlanError(f"pieces of {length_us} us")
        self._length_us = length_us
        self._waiting = columns.clear()

    def transition(self, port: int, batch: Batch) -> Batch:
        """Emit the pieces that start before the watermark."""
        del port
        waiting = pl.concat([self._waiting, batch.rows]) if batch.rows.height else self._waiting
        begun, later = split_at(waiting, batch.watermark_us)
        endless = begun.clear()
        if batch.watermark_us >= NEVER:
            endless = begun.filter(pl.col(END) >= NEVER)
            begun = begun.filter(pl.col(END) < NEVER)
        until = pl.min_horizontal(END, pl.lit(batch.watermark_us))
        cuts = begun.with_columns(pl.int_ranges(START, until, self._length_us).alias("fjord_cuts"))
        next_start = pl.col("fjord_cuts").list.last() + self._length_us
        rest = cuts.with_columns(next_start.alias(START)).filter(pl.col(START) < pl.col(END))
        pieces = (
            cuts.with_columns(pl.col("fjord_cuts").alias(START))
            .explode(START)
            .with_columns(pl.min_horizontal(END, pl.col(START) + self._length_us).alias(END))
        )
        self._waiting = pl.concat([rest.select(waiting.columns), later])
        found = pl.concat([pieces.select(waiting.columns), endless])
        return Batch(found.sort(START, maintain_order=True), batch.watermark_us)

    def save(self) -> State:
        """Return the rows that have not been emitted."""
        return {"waiting": self._waiting}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._waiting = table_of(state, "waiting")


@final
class RunningSplit(KeepsNothing, PassesNoOrigins, Alone[kinds.Split]):
    """Rows split into one for each instant."""

    def operator(self, operation: kinds.Split) -> Operator:
        """Return the operator."""
        return Split(empty_rows(operation.columns))

    def flow(self, operation: kinds.Split, inputs: InputFlows) -> RowFlow:
        """Return the input of a window: rows that last are split into one per microsecond."""
        del operation
        below = inputs.first
        if below.lasting_us is None:
            return as_they_come(below)
        times = below.lasting_us
        per_second = min(below.per_second * times, max(below.valid * 1e6, below.per_second))
        return RowFlow(
            below.per_tuple * times,
            below.at_once,
            per_second,
            1,
            below.valid,
            below.per_key,
            per_second - below.per_second,
            f"a window over rows that last {written(times)}, each of which it counts once for every microsecond",
            below.read_once * times,
        )
