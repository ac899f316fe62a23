"""How partial values of several panes are merged for many keys at once: sums, extremes and moments of matrices.

    a slab           key 1   key 2   key 3         merged: a value for each key
    first pane         4       .       7
    second pane        1       2       .      ->     5       2       7           (a sum)

The same as the merge functions of :mod:`cluster.fjord.aggregates` make of the rows of a group, one column of a partial
value at a time. Numbers only: texts and lists are merged as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.fjord.scaled_reals import LARGEST, SCALE

Truths = NDArray[np.bool_]
Values = NDArray[Any]
"""Reals or integers of 64 bits."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Values of one column; those that are not known are zero. `known` is None where all are."""

    values: Values
    known: Truths | None


class Slab:
    """The partial values of some panes, one after another, for all keys.

    Parameters
    ----------
    columns
        By name: a row for each pane of a grid, a column for each key.
    first, until
        The rows of the grid.
    """

    def __init__(self, columns: Mapping[str, Cells], first: int, until: int) -> None:
        self._columns = columns
        self._rows = slice(first, until)

    def values(self, name: str) -> Values:
        """Return the values of a column, with zero where there is none."""
        return self._columns[name].values[self._rows]

    def known(self, name: str) -> Truths:
        """Return where a column has a value."""
        known = self._columns[name].known
        assert known is not None  # noqa: S101 - those of a grid are
        return known[self._rows]


SlabMerge = Callable[[Slab], Cells]
"""Returns a value for each key."""


def added(name: str) -> SlabMerge:
    """Return the merge of a column by addition; nothing adds up to zero."""
    return lambda slab: Cells(slab.values(name).sum(axis=0), None)


def least(name: str) -> SlabMerge:
    """Return the merge of a column by its least value; nothing has none."""
    return lambda slab: _extreme(slab.values(name), slab.known(name), least=True)


def greatest(name: str) -> SlabMerge:
    """Return the merge of a column by its greatest value; nothing has none."""
    return lambda slab: _extreme(slab.values(name), slab.known(name), least=False)


def mean(count: str, of: str) -> SlabMerge:
    """Return the merge of a mean, given its column and that of the counts."""
    return lambda slab: Cells(_mean(slab, count, of), None)


def squares(count: str, of: str, apart: str) -> SlabMerge:
    """Return the merge of squared deviations: of the values from their pane's mean, and of that from the whole one."""

    def merge(slab: Slab) -> Cells:
        counts = slab.values(count)
        between = counts * (slab.values(of) - _mean(slab, count, of)) ** 2
        # Where there are no values, what is infinite would become NaN.
        whole = slab.values(apart).sum(axis=0) + np.where(counts > 0, between, 0.0).sum(axis=0)
        return Cells(np.where(counts.any(axis=0), whole, 0.0), None)

    return merge


def stamp_of(stamp: str, *, first: bool) -> SlabMerge:
    """Return the merge of the stamps at which values are first or last."""
    return least(stamp) if first else greatest(stamp)


def value_at(stamp: str, value: str, *, first: bool) -> SlabMerge:
    """Return the merge of the values with the least or greatest stamp; of equal stamps the least or greatest value."""

    def merge(slab: Slab) -> Cells:
        stamps, known = slab.values(stamp), slab.known(value)
        chosen = _extreme(stamps, known, least=first).values
        return _extreme(slab.values(value), known & (stamps == chosen), least=first)

    return merge


def _extreme(values: Values, known: Truths, *, least: bool) -> Cells:
    kind = np.iinfo(values.dtype) if values.dtype.kind == "i" else np.finfo(values.dtype)
    found = np.where(known, values, kind.max).min(axis=0) if least else np.where(known, values, kind.min).max(axis=0)
    there: Truths = np.logical_or.reduce(known, axis=0)
    return Cells(np.where(there, found, 0), there)


def _mean(slab: Slab, count: str, of: str) -> Values:
    counts = slab.values(count)
    whole = counts.sum(axis=0)
    scaled = (counts * (slab.values(of) * SCALE)).sum(axis=0) / whole
    found: Values = np.where(whole > 0, scaled.clip(-LARGEST * SCALE, LARGEST * SCALE) / SCALE, 0.0)
    return found
