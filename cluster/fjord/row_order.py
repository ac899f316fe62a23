"""Rows in arrays: what they are sorted, grouped and divided by, and ranges of their places.

**Ranges of places, by arrays: laid out one after the other, and reduced, so many at once as memory is to hold.**

first 4, 9   count 3, 1    ->    numbers 0, 0, 0, 1    places 4, 5, 6, 9

**What rows are sorted and grouped by: values as they are compared, places in an order, and numbers of groups.**

row              0    1      2       3 k, x             b 1  a 0.0  a -0.0  NULL 2     zeros are equal, and NULLs are
last places by k, x   1    2      0       3          rows with equal values stay as they came groups by k      0    0
1       2          of the rows in that order
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.scalars.real_values import settled

Places = NDArray[np.int64]

AT_ONCE = 2_000_000
"""About how many places are laid out at once."""


def laid_out(first: Places, count: Places) -> tuple[Places, Places]:
    """Return the places of ranges in their order, each with the number of its range.

    Parameters
    ----------
    first, count
        By range: its first place, and how many it has; 0 for an empty one.

    Returns
    -------
    tuple
        The number of a range for each place, and the places.
    """
    numbers = np.repeat(np.arange(len(count)), count)
    places = np.arange(len(numbers)) - np.repeat(np.cumsum(count) - count - first, count)
    return numbers, places


def blocks(sums: Places) -> Iterator[tuple[int, int]]:
    """Yield ranges of numbers that have :data:`AT_ONCE` places together at most, but one number at least.

    Parameters
    ----------
    sums
        By number: how many places it and those before it have.
    """
    begin = 0
    while begin < len(sums):
        before = int(sums[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(sums, before + AT_ONCE, side="right")))
        yield begin, end
        begin = end


def reduced(values: NDArray[np.generic], low: Places, high: Places, combine: np.ufunc) -> NDArray[np.generic]:
    """Return the result of each of some ranges, none of them empty: each depends on its own values only."""
    found = np.empty(len(low), values.dtype)
    sizes = high - low
    for begin, end in blocks(np.cumsum(sizes)):
        own = sizes[begin:end]
        _, places = laid_out(low[begin:end], own)
        found[begin:end] = combine.reduceat(values[places], np.cumsum(own) - own)
    return found


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


def bucket_of(values: tuple[object, ...], buckets: int) -> int:
    """Return the bucket of a combination of values."""
    return zlib.crc32("\x1f".join("\x00" if value is None else repr(value) for value in values).encode()) % buckets


def bucket_numbers(values: pl.Series, buckets: int) -> NDArray[np.int32]:
    """Return the bucket of each value of one column."""
    values = settled(values)  # minus zero equals zero
    different = values.unique()
    places = pl.Series([bucket_of((value,), buckets) for value in different], dtype=pl.Int32)
    table = pl.DataFrame({"value": different, "bucket": places})
    joined = pl.DataFrame({"value": values}).join(
        table, on="value", how="left", nulls_equal=True, maintain_order="left"
    )
    return joined["bucket"].to_numpy().astype(np.int32)


def split_by_bucket(rows: pl.DataFrame, keys: tuple[str, ...], buckets: int) -> dict[int, pl.DataFrame]:
    """Return the rows of each bucket, by a stable hash of their `keys`."""
    if rows.height == 0:
        return {}
    combinations = rows.select(keys).unique()
    places = [bucket_of(values, buckets) for values in combinations.iter_rows()]
    placed = rows.join(
        combinations.with_columns(pl.Series("fjord_bucket", places, pl.Int32)),
        on=list(keys),
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return {
        int(bucket): part.drop("fjord_bucket")
        for (bucket,), part in placed.partition_by("fjord_bucket", as_dict=True, maintain_order=True).items()
    }
