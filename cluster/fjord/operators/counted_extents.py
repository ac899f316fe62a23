"""Shared extents over windows by count: a sample may have left for older queries, and still be there for younger ones.

See :mod:`cluster.fjord.operators.shared_count_window`: such a sample is one of the queries that began after
``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM``. And samples of keys that fall silent stay for ever, with their marks; so
these are marks of the queries that there are, and rows of their own are for queries that differ in what they see. The
window below raises the marks of what comes; those of what is kept here are raised when the queries are others.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from cluster.fjord.operator import State
from cluster.fjord.operators.shared_extents import SharedExtents
from cluster.fjord.operators.shown_rows import Mark
from cluster.operators.columns import VISIBLE_FROM
from cluster.operators.mark_columns import SUPERSEDED_UNTIL
from cluster.temporal.overtaken import Whole


class CountedExtents(SharedExtents):
    """Keeps the samples of a window by count once for all queries; eagerly, as there is one extent."""

    def _with_live_marks(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return samples with the marks that the window has given them."""
        return rows

    def _seen(self, ordered: pl.DataFrame, mark: Mark) -> Whole:
        """Return the places of the samples that are there for queries up to a mark."""
        epoch = 0 if mark is None else mark
        seen = ordered[VISIBLE_FROM.name].to_numpy() >= epoch
        return np.flatnonzero(seen & (ordered[SUPERSEDED_UNTIL.name].to_numpy() < epoch))

    def restore(self, state: State) -> None:
        """Restore samples, also those that wait for the watermark, with the marks of the queries there are."""
        super().restore(state)
        self._early = self._live.of(self._early)
