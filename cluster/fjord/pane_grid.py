"""Panes as a grid: the partial rows of one query group as matrices, from which windows are cut as slabs.

             key 1   key 2   key 3
    pane 1     x       x       x     |              a window that slides is one slab after another; a partial row
    pane 2     x       .       x     |  |           is looked at where it lies, not copied for each of them
    pane 3     x       x       x     |  |  |
    pane 4     x       x       .        |  |

That pays where windows hold many rows of many keys: a slab has a fixed cost, and is then a few instructions a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.fjord.batch import START
from cluster.fjord.partial_columns import PartialColumn
from cluster.fjord.slab_merges import Cells, Slab, Truths

FEWEST_KEYS = 64
"""With fewer keys, the fixed cost of a slab is more than copies of its rows cost."""
MANY_ROWS = 512
"""About so many rows a window must hold on average."""
MOST_CELLS = 4
"""Times as many cells as rows a grid may have."""
_PLACE = "fjord_place"

Numbers = NDArray[np.int64]


def has_slabs(columns: Sequence[PartialColumn]) -> bool:
    """Return whether these partial columns can be merged as slabs: numbers, each with a merge of slabs."""
    return all(each.slab is not None and each.type in (pl.Int64, pl.Float64) for each in columns)


class PaneGrid:
    """Partial rows as matrices.

    Parameters
    ----------
    ends
        The end of each pane that has rows, in order.
    keys
        The different combinations of keys, in order.
    there
        Where there is a row: a row for each pane, a column for each combination.
    cells
        By name of a partial column: its values.
    """

    def __init__(self, ends: Numbers, keys: pl.DataFrame, there: Truths, cells: Mapping[str, Cells]) -> None:
        self._ends = ends
        self._keys = keys
        self._there = there
        self._cells = cells

    @classmethod
    def of(cls, rows: pl.DataFrame, keys: Sequence[str], columns: Sequence[PartialColumn]) -> PaneGrid | None:
        """Return the grid of partial rows of one group; None if it would have few keys, or mostly empty cells.

        Parameters
        ----------
        rows
            The rows, at least one, in any order; of one pane and key there may be several.
        keys, columns
            Names of the key columns, and the partial columns.
        """
        ends, panes = _numbered(rows[START])
        different = rows.select(keys).unique().sort(keys) if keys else pl.DataFrame()
        width = different.height if keys else 1
        if width < FEWEST_KEYS or len(ends) * width > MOST_CELLS * rows.height:
            return None
        places = panes * width + _places(rows, different, keys)
        counts = np.bincount(places, minlength=len(ends) * width)
        if counts.max() > 1:
            repeated = pl.Series(counts[places] > 1)
            by, merge = [START, *keys], [column.merge for column in columns]
            once = rows.filter(repeated).group_by(by, maintain_order=True).agg(merge)
            return cls.of(pl.concat([rows.select(once.columns).filter(~repeated), once]), keys, columns)
        shape = len(ends), width
        there = (counts > 0).reshape(shape)
        return cls(ends + 1, different, there, {each.name: _cells(rows[each.name], places, there) for each in columns})

    def merged(
        self, columns: Sequence[PartialColumn], size_us: int, slide_us: int, from_us: int, until_us: int
    ) -> pl.DataFrame | None:
        """Return the merged partial rows of a window's positions, in order of START, then keys; None if they are small.

        Parameters
        ----------
        columns
            The partial columns.
        size_us, slide_us
            The window.
        from_us, until_us
            Between which starts of answers.
        """
        begin = -(-max(int(self._ends[0]), from_us + 1) // slide_us) * slide_us
        stop = min(int(self._ends[-1]) + size_us, until_us + 1)
        width = self._there.shape[1]
        if -((begin - stop) // slide_us) * MANY_ROWS > self._there.size * -(-size_us // slide_us):
            return None
        positions = np.arange(begin, stop, slide_us)
        first = np.searchsorted(self._ends, positions - size_us, side="right")
        until = np.searchsorted(self._ends, positions, side="right")
        filled = until > first
        if not filled.any() or int((until - first).sum()) * width < len(positions) * MANY_ROWS:
            return None
        positions, bounds = positions[filled], list(zip(first[filled].tolist(), until[filled].tolist(), strict=True))
        kept = np.flatnonzero(np.concatenate([self._there[low:high].any(axis=0) for low, high in bounds]))
        slabs = [Slab(self._cells, low, high) for low, high in bounds]
        found = {START: pl.Series(positions[kept // width] - 1, dtype=pl.Int64)}
        if self._keys.width:
            found |= self._keys[kept % width].to_dict()
        with np.errstate(all="ignore"):  # what leaves the reals becomes NULL at the end
            return pl.DataFrame(found | {each.name: _merged(each, slabs, kept) for each in columns})


def _merged(column: PartialColumn, slabs: Sequence[Slab], kept: Numbers) -> pl.Series:
    assert column.slab is not None  # noqa: S101 - has_slabs
    cells = [column.slab(slab) for slab in slabs]
    values = pl.Series(column.name, np.concatenate([each.values for each in cells])[kept], column.type)
    masks = [each.known for each in cells if each.known is not None]
    if not masks:
        return values
    known = pl.Series(np.concatenate(masks)[kept])
    return values if known.all() else values.zip_with(known, pl.Series([None], dtype=column.type))


def _numbered(starts: pl.Series) -> tuple[Numbers, Numbers]:
    """Return the different starts, in order, and the number of each row's."""
    if not starts.is_sorted():
        return np.unique(starts.to_numpy(), return_inverse=True)
    runs = starts.rle().struct.unnest()
    return runs["value"].to_numpy(), np.repeat(np.arange(runs.height), runs["len"].to_numpy())


def _places(rows: pl.DataFrame, different: pl.DataFrame, keys: Sequence[str]) -> Numbers | int:
    """Return the number of each row's combination of keys."""
    if not keys:
        return 0
    numbered = different.with_row_index(_PLACE)
    found = rows.select(keys).join(numbered, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found[_PLACE].cast(pl.Int64).to_numpy()


def _cells(column: pl.Series, places: Numbers, there: Truths) -> Cells:
    values = np.zeros(there.size, np.float64 if column.dtype == pl.Float64 else np.int64)
    nulls = column.null_count()
    values[places] = (column.fill_null(0) if nulls else column).to_numpy()  # to ask for nothing takes Polars long
    known = there
    if nulls:
        known = np.zeros(there.size, np.bool_)
        known[places] = column.is_not_null().to_numpy()
        known = known.reshape(there.shape)
    return Cells(values.reshape(there.shape), known)
