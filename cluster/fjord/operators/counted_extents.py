"""Shared extents over windows by count: a sample may have left for older queries, and still be there for younger ones.

See :mod:`cluster.fjord.operators.shared_count_window`: such a sample is one of the queries that began after
``SUPERSEDED_UNTIL``, up to ``VISIBLE_FROM``. And samples of keys that fall silent stay for ever, with their marks; so
these are marks of the queries that there are, and rows of their own are for queries that differ in what they see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from cluster.fjord.batch import END
from cluster.fjord.operators.extent import Mark
from cluster.fjord.operators.live_marks import marks_of
from cluster.fjord.operators.shared_extents import SharedExtents
from cluster.language.columns import VISIBLE_FROM
from cluster.language.extents import Coalescing
from cluster.physical.operations import SUPERSEDED_UNTIL
from cluster.temporal.overtaken import Whole


class CountedExtents(SharedExtents):
    """Keeps the samples of a window by count once for all queries, eagerly.

    Parameters
    ----------
    columns, keys, extents
        As of :class:`SharedExtents`; there is one extent.
    epochs
        By query group: with which its queries began.
    """

    def __init__(
        self,
        columns: pl.DataFrame,
        keys: tuple[str, ...],
        extents: Mapping[int, Coalescing],
        epochs: Mapping[int, Iterable[int]],
    ) -> None:
        super().__init__(columns, keys, extents, epochs, eager=True)

    def _marks(self, since_us: int) -> list[Mark]:
        """Return the epochs up to which queries see the same of the samples that do not leave before an instant."""
        return [*marks_of(self._kept.filter(pl.col(END) >= since_us))]

    def _seen(self, ordered: pl.DataFrame, mark: Mark) -> Whole:
        """Return the places of the samples that are there for queries up to a mark."""
        epoch = 0 if mark is None else mark
        seen = ordered[VISIBLE_FROM.name].to_numpy() >= epoch
        return np.flatnonzero(seen & (ordered[SUPERSEDED_UNTIL.name].to_numpy() < epoch))
