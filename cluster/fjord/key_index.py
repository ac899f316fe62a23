"""A hash table on a column of a table that is asked many times: built once for each version of a relation.

Polars builds the hash table of a join anew for every join; micro-batches are small and relations need not be. Pandas
keeps the one of an index, and finds a key in some thirty nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
from numpy.typing import NDArray

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of rows: places in what asked, ascending, and in the table."""

    asked: Places
    found: Places


class KeyIndex:
    """Finds the rows of a table by the value of one column. NULL is found nowhere.

    Parameters
    ----------
    keys
        The column.
    """

    def __init__(self, keys: pl.Series) -> None:
        present = keys.is_not_null().to_numpy()
        places = np.flatnonzero(present).astype(np.int64)
        codes, unique = pd.factorize(_values(keys.drop_nulls()))
        order = np.argsort(codes, kind="stable")
        self._places: Places = places[order]
        self._counts: Places = np.bincount(codes, minlength=len(unique)).astype(np.int64)
        self._firsts: Places = np.concatenate([[0], np.cumsum(self._counts)[:-1]]).astype(np.int64)
        self._index = pd.Index(unique)
        self._single = bool((self._counts == 1).all())

    def contains(self, probes: pl.Series) -> NDArray[np.bool_]:
        """Return, for each value, whether the table has it."""
        return self._groups(probes) >= 0

    def matches(self, probes: pl.Series) -> Matches:
        """Return all pairs of a value's place and a row that has it, in the order of the values, then of the rows."""
        groups = self._groups(probes)
        asked = np.flatnonzero(groups >= 0).astype(np.int64)
        groups = groups[asked]
        if self._single:
            return Matches(asked, self._places[self._firsts[groups]])
        counts = self._counts[groups]
        # 0, 1, ... within each value's rows.
        within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        return Matches(np.repeat(asked, counts), self._places[np.repeat(self._firsts[groups], counts) + within])

    def _groups(self, probes: pl.Series) -> Places:
        """Return the number of each value's group; -1 for none."""
        if not len(self._index):
            return np.full(len(probes), -1, np.int64)
        groups: Places
        if probes.null_count() == 0:
            groups = self._index.get_indexer(_values(probes)).astype(np.int64)
            return groups
        groups = np.full(len(probes), -1, np.int64)
        present = probes.is_not_null().to_numpy()
        groups[present] = self._index.get_indexer(_values(probes.drop_nulls()))
        return groups


def _values(column: pl.Series) -> NDArray[np.generic]:
    """Return a column without NULLs as pandas hashes it."""
    values: NDArray[np.generic] = column.to_numpy()
    return values.astype(object) if column.dtype == pl.String else values
