"""Which bucket a row goes to at an exchange: that of its keys, or of its query group."""

from __future__ import annotations

import polars as pl

from cluster.fjord.buckets import split_by_bucket
from cluster.physical.operations import Exchange

_BUCKET = "fjord_bucket"


def partitioned(exchange: Exchange, rows: pl.DataFrame, buckets: int) -> dict[int, pl.DataFrame]:
    """Return the rows of each bucket."""
    if exchange.spread != "group":
        return split_by_bucket(rows, exchange.by, buckets)
    (group,) = exchange.by
    placed = rows.with_columns((pl.col(group) % buckets).alias(_BUCKET))
    pieces = placed.partition_by(_BUCKET, as_dict=True, maintain_order=True, include_key=False)
    return {int(bucket): piece for (bucket,), piece in pieces.items()}
