"""Reorder: sorts rows by start, up to the watermark.

Disorder is repaired here, at the head of a plan, and nowhere else (papers/pipes_algebra.md section 5.18).
"""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.fjord.batch import ALWAYS, INTERVAL, START, Batch
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import split_at
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesNoOrigins, PassesRows
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators.columns import Schema
from cluster.physical import operations as kinds


class Reorder(Operator):
    """Keeps rows until no earlier one can come.

    Parameters
    ----------
    schema
        Columns of the payload.

    Attributes
    ----------
    late
        Rows that started before the watermark and arrived after it: set aside, never merged.
    """

    repairs_disorder = True

    def __init__(self, schema: Schema) -> None:
        self._waiting = pl.DataFrame(
            schema={**INTERVAL, **{column.name: POLARS_TYPES[column.type] for column in schema}}
        )
        self._watermark_us = ALWAYS
        self.late: list[pl.DataFrame] = []

    def transition(self, port: int, batch: Batch) -> Batch:
        """Emit rows that the watermark has passed, sorted; equal starts stay in order of arrival."""
        del port
        rows = batch.rows
        late, rows = split_at(rows, self._watermark_us)
        if late.height:
            self.late.append(late)
        self._watermark_us = max(self._watermark_us, batch.watermark_us)
        if self._waiting.height:
            rows = pl.concat([self._waiting, rows])
        ready, self._waiting = split_at(rows, self._watermark_us)
        return Batch(ready.sort(START, maintain_order=True), self._watermark_us)

    def save(self) -> State:
        """Return the waiting rows."""
        return {"waiting": self._waiting, "watermark_us": self._watermark_us}

    def restore(self, state: State) -> None:
        """Restore them."""
        waiting, watermark_us = state["waiting"], state["watermark_us"]
        assert isinstance(waiting, pl.DataFrame)  # noqa: S101 - written by save()
        assert isinstance(watermark_us, int)  # noqa: S101 - written by save()
        self._waiting, self._watermark_us = waiting, watermark_us


@final
class RunningReorder(PassesRows, KeepsNothing, PassesNoOrigins, Alone[kinds.Reorder]):
    """Rows in the order of their starts."""

    def operator(self, operation: kinds.Reorder) -> Operator:
        """Return the operator."""
        return Reorder(operation.columns)
