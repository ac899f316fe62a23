"""Lookup of pieces: each finds what the row that it is a piece of has found where it began.

table     |-- version 1 --)[-- version 2 --
row           |-----------------------)        cut at two watermarks
pieces        |------)-------)--------)        all of them with rows of version 1
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.batch import START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.lookup import Lookup
from cluster.fjord.operators.origins import with_origins, without_origins
from cluster.operators.mark_columns import ORIGIN

_STARTS = "fjord_starts"


class PiecewiseLookup(Operator):
    """Stateless.

    Parameters
    ----------
    inner
        The lookup, which finds what holds where rows start.
    keeps
        Whether its answers have origins.
    """

    def __init__(self, inner: Lookup, *, keeps: bool) -> None:
        self._inner = inner
        self._keeps = keeps

    def transition(self, port: int, batch: Batch) -> Batch:
        """Look pieces up at their origins."""
        rows = with_origins(batch.rows)
        begun = rows.with_columns(pl.col(START).alias(_STARTS), pl.col(ORIGIN.name).alias(START))
        answer = self._inner.transition(port, Batch(begun.sort(START, maintain_order=True), batch.watermark_us))
        self.warning = self._inner.warning
        found = answer.rows.with_columns(pl.col(_STARTS).alias(START)).drop(_STARTS).sort(START, maintain_order=True)
        return Batch(with_origins(found) if self._keeps else without_origins(found), batch.watermark_us)
