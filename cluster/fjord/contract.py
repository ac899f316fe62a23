"""The contract of queues, and its check.

    batch 1    rows 10 11 14            watermark 12
    batch 2    rows 12 13 30            watermark 12      after 14: no order from batch to batch is guaranteed,
    batch 3    no rows                  watermark 20      but no row before a watermark announced earlier
    batch 4    rows 20 20               watermark 25

Start order over all batches would let one group with a long answer delay every other one. So an operator has to be
right under exactly this contract; one that needs more sorts its rows itself
(:class:`~cluster.fjord.operators.start_ordered.StartOrdered`).
"""

from __future__ import annotations

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, START, Batch


class BrokenContractError(PlanError):
    """A batch on a queue violates the contract of queues: answers computed from it might be wrong."""


class QueueContract:
    """Remembers the guarantees given by the batches of one queue.

    The rows of a batch are sorted by start; none starts before a watermark announced earlier; each is valid at some
    instant; the watermark never goes back.
    """

    def __init__(self) -> None:
        self.watermark_us = ALWAYS
        """The last watermark announced."""

    def check(self, batch: Batch, whose: str) -> None:
        """Check one more batch.

        Parameters
        ----------
        batch
            The next one on the queue.
        whose
            Words for the message, such as "operator q1/0 Distinct answered".

        Raises
        ------
        BrokenContractError
            If the batch violates the contract; the message gives the violation.
        """
        fault = self._fault(batch)
        if fault is not None:
            raise BrokenContractError(
                f"{whose} {fault}",
                hint="this is a fault of Fjord itself: the query is stopped because its answers could be wrong",
            )
        self.watermark_us = batch.watermark_us

    def _fault(self, batch: Batch) -> str | None:
        promised_us = self.watermark_us
        if batch.watermark_us < promised_us:
            return f"the watermark {batch.watermark_us} after {promised_us}"
        if batch.empty:
            return None
        starts = batch.rows[START]
        if starts.null_count() or not starts.is_sorted():
            return "rows that are not in the order of their starts"
        if starts[0] < promised_us:
            return f"a row that starts at {starts[0]}, before the watermark {promised_us} announced earlier"
        if not (starts < batch.rows[END]).all(ignore_nulls=False):
            never = batch.rows.filter((pl.col(START) < pl.col(END)).not_().fill_null(value=True))
            return f"a row that is never valid, from {never.item(0, START)} to {never.item(0, END)}"
        return None
