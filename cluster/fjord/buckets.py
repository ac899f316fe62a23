"""Which bucket values go to: a hash that is the same in every process, on every machine, in every version."""

from __future__ import annotations

import zlib

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.fjord.real_values import settled


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
