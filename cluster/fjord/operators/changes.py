"""Istream and Dstream: rows that begin, and rows that cease to be valid (papers/pipes_algebra.md section 5.16).

Where a tuple ends and an equal one begins, there is no change. A tuple that ends is reported at its last valid instant.
"""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch, empty_rows
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import table_of
from cluster.fjord.running_kind import Alone, KeepsNothing, MakesInstants, PassesNoOrigins
from cluster.physical import operations as kinds

_AT, _CHANGE = "fjord_at", "fjord_change"


class Changes(Operator):
    """Balances beginnings and ends, per tuple and instant.

    Parameters
    ----------
    columns
        No rows, with the columns of the input. NULL equals NULL.
    insertions
        True reports beginnings, False ends.
    """

    def __init__(self, columns: pl.DataFrame, *, insertions: bool) -> None:
        self._columns = columns.columns
        self._values = [name for name in columns.columns if name not in (START, END)]
        self._insertions = insertions
        self._steps = columns.clear().select(
            *self._values, pl.col(START).alias(_AT), pl.lit(0, pl.Int64).alias(_CHANGE)
        )

    def transition(self, port: int, batch: Batch) -> Batch:
        """Process rows; report the changes at instants before the watermark."""
        del port
        if batch.rows.height:
            begins = batch.rows.select(*self._values, pl.col(START).alias(_AT), pl.lit(1, pl.Int64).alias(_CHANGE))
            ends = batch.rows.select(*self._values, pl.col(END).alias(_AT), pl.lit(-1, pl.Int64).alias(_CHANGE))
            both = pl.concat([self._steps, begins, ends])
            self._steps = both.group_by([*self._values, _AT], maintain_order=True).agg(pl.col(_CHANGE).sum())
        known = self._steps.filter(pl.col(_AT) < batch.watermark_us)
        self._steps = self._steps.filter(pl.col(_AT) >= batch.watermark_us)
        wanted = pl.col(_CHANGE) if self._insertions else -pl.col(_CHANGE)
        at = pl.col(_AT) if self._insertions else pl.col(_AT) - 1
        changed = (
            known.filter((wanted > 0) & (pl.col(_AT) < NEVER))
            .with_columns(at.repeat_by(wanted).alias(START))
            .explode(START)
            .with_columns((pl.col(START) + 1).alias(END))
            .select(self._columns)
        )
        # All changes of an instant leave together, in an order that does not depend on when rows came or flowed: count
        # windows above count in it.
        return Batch(changed.sort(START, *self._values, maintain_order=True), self._reached(batch.watermark_us))

    def _reached(self, watermark_us: int) -> int:
        # An end is known with the watermark after it, and reported one instant before it.
        return watermark_us - 1 if not self._insertions and ALWAYS < watermark_us < NEVER else watermark_us

    def save(self) -> State:
        """Return the pending changes."""
        return {"steps": self._steps}

    def restore(self, state: State) -> None:
        """Restore them."""
        self._steps = table_of(state, "steps")


@final
class RunningChanges(MakesInstants, KeepsNothing, PassesNoOrigins, Alone[kinds.Changes]):
    """Rows that begin, or that cease to be valid."""

    def operator(self, operation: kinds.Changes) -> Operator:
        """Return the operator."""
        return Changes(empty_rows(operation.columns), insertions=operation.insertions)
