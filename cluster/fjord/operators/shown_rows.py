"""Rows that an extent shows: by which columns and in which order samples are coalesced, and which go on with others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from cluster.fjord.scalars import compile_scalar
from cluster.operators.extent import Coalescing
from cluster.temporal.overtaken import Flags, Whole

SINCE = "fjord_since_us"
"""How the columns begin that have since when rows have been the same."""
LINKED = "fjord_linked"
"""Whether a sample goes on with the one before; NULL if that is not known yet."""
Mark = int | None
"""The mark of samples, and all later ones; None for all there are."""


class Shown:
    """One way in which samples are coalesced, and what is kept of it.

    Parameters
    ----------
    how
        The way.
    keys
        Whose samples are coalesced together.
    suffix
        Distinguishes its columns from those of others.
    """

    def __init__(self, how: Coalescing, keys: Sequence[str], suffix: str = "") -> None:
        self.how = how
        self.columns = list(dict.fromkeys((*keys, *how.columns)))
        self.order = [*keys, how.stamp, *(name for name in how.ties if name not in keys)]
        self._suffix = suffix

    def since(self, mark: Mark) -> str:
        """Return the column that has, with the first sample of a row, since when it has been the same."""
        return f"{SINCE}{self._suffix}{'' if mark is None else f' {mark}'}"

    def linked(self, ordered: pl.DataFrame, earlier: Whole, later: Whole) -> Flags:
        """Return whether samples go on with others.

        Parameters
        ----------
        ordered
            Samples.
        earlier, later
            The places in them, pair by pair.
        """
        if not len(later):
            return np.zeros(0, np.bool_)
        link = self.how.link
        if link is None:
            equal = np.ones(len(later), np.bool_)
            for name in self.how.columns:
                column = ordered[name]
                equal &= column[later].eq_missing(column[earlier]).to_numpy()
            return equal
        before = [ordered[column][earlier].alias(name) for name, column in link.before]
        found = ordered[later].with_columns(before).with_columns(compile_scalar(link.condition).alias(LINKED))
        return found[LINKED].fill_null(value=False).to_numpy()
