"""Marks rows with the newest query that may see them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.language.algebra import MEMBER
from cluster.plan.pane_folding import SINCE


class MarkSince(Operator):
    """Stateless. A row is marked when it arrives: what a later query sees does not change because it comes.

    Parameters
    ----------
    newest
        By group: the epoch with which its newest query began.
    """

    def __init__(self, newest: Mapping[int, int]) -> None:
        schema = {MEMBER.name: pl.Int64, SINCE.name: pl.Int64}
        self._newest = pl.DataFrame(list(newest.items()), schema=schema, orient="row")

    def transition(self, port: int, batch: Batch) -> Batch:
        """Add the column; the order stays."""
        del port
        rows = batch.rows.join(self._newest, on=MEMBER.name, how="inner", maintain_order="left")
        return Batch(rows, batch.watermark_us)
