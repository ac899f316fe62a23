"""Shared extents over windows by count: a sample may have left for older queries, and still be there for younger ones.

See :mod:`cluster.fjord.operators.shared_count_window`: such a sample is one of the queries that began after
``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM``. And samples of keys that fall silent stay for ever, with their marks; so
these are marks of the queries that there are, and rows of their own are for queries that differ in what they see.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from cluster.fjord.operators.extent import Mark
from cluster.fjord.operators.shared_extents import SharedExtents
from cluster.language.columns import VISIBLE_FROM
from cluster.physical.operations import SUPERSEDED_UNTIL
from cluster.temporal.overtaken import Whole


class CountedExtents(SharedExtents):
    """Keeps the samples of a window by count once for all queries; eagerly, as there is one extent."""

    def _seen(self, ordered: pl.DataFrame, mark: Mark) -> Whole:
        """Return the places of the samples that are there for queries up to a mark."""
        epoch = 0 if mark is None else mark
        seen = ordered[VISIBLE_FROM.name].to_numpy() >= epoch
        return np.flatnonzero(seen & (ordered[SUPERSEDED_UNTIL.name].to_numpy() < epoch))
