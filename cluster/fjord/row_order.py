"""What rows are sorted and grouped by: values as they are compared, places in an order, and numbers of groups.

row              0    1      2       3
k, x             b 1  a 0.0  a -0.0  NULL 2     zeros are equal, and NULLs are last
places by k, x   1    2      0       3          rows with equal values stay as they came
groups by k      0    0      1       2          of the rows in that order
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

_PLACE = "fjord_place"


def comparable(rows: pl.DataFrame, name: str) -> pl.Expr:
    """Return a column in which zeros of both signs are equal."""
    return pl.col(name) + 0.0 if rows.schema[name].is_float() else pl.col(name)


def places_by(rows: pl.DataFrame, by: Sequence[str]) -> NDArray[np.int64]:
    """Return the places of rows in the order of some columns, NULLs last.

    >>> places_by(pl.DataFrame({"k": ["b", "a", "a", None], "x": [1.0, 0.0, -0.0, 2.0]}), ["k", "x"]).tolist()
    [1, 2, 0, 3]
    """
    columns = [comparable(rows, name) for name in by]
    order = rows.select(pl.arg_sort_by(columns, nulls_last=True, maintain_order=True).alias(_PLACE))
    return order.to_series().to_numpy().astype(np.int64)


def group_numbers(ordered: pl.DataFrame, names: Sequence[str]) -> NDArray[np.int64]:
    """Return a number for each row, greater by one where its values differ from those of the row before."""
    if not names:
        return np.zeros(ordered.height, np.int64)
    differs = [comparable(ordered, name).ne_missing(comparable(ordered, name).shift()) for name in names]
    begins = ordered.select(pl.any_horizontal(differs)).to_series().to_numpy(writable=True)
    begins[:1] = False
    return np.cumsum(begins)
