"""The bucket of values: a hash that is the same in every process, on every machine, in every version."""

from __future__ import annotations

import zlib

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.scalars.real_values import settled


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
