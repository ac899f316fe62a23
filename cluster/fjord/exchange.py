"""The exchange from the operators next to the scans to the buckets: rows, watermarks and failures for each bucket."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from cluster.fjord.at_work import NOW
from cluster.fjord.buckets import split_by_bucket
from cluster.fjord.counters import Counters
from cluster.fjord.lacking_answers import Span
from cluster.fjord.upstream_dataflow import UpstreamDataflow
from cluster.physical.operations import Exchange


@dataclass(frozen=True, slots=True)
class Sent:
    """The output of one part of a micro-batch.

    Parameters
    ----------
    pieces
        (bucket, exchange, rows).
    watermarks_us
        By exchange: no later row starts before this instant.
    failures
        By fragment or query: why its operators failed.
    counters
        The counters of the operators.
    owners
        By exchange: the fragment.
    read_us, lost_us
        As in :class:`~cluster.fjord.upstream_dataflow.UpstreamDataflow`.
    """

    pieces: tuple[tuple[int, str, pl.DataFrame], ...]
    watermarks_us: dict[str, int]
    failures: dict[str, str]
    counters: Counters
    owners: dict[str, str]
    read_us: dict[str, Span]
    lost_us: dict[str, Span]


def sent_by(dataflow: UpstreamDataflow, buckets: int) -> Sent:
    """Run the operators next to the scans, and return their output."""
    watermarks: dict[str, int] = {}
    owners: dict[str, str] = {}
    pieces: list[tuple[int, str, pl.DataFrame]] = []
    for emitted in dataflow.run():
        name, exchange = emitted.end.id, emitted.end.operation
        owners[name] = emitted.fragment.identity
        NOW.begin(emitted.fragment.identity)
        assert isinstance(exchange, Exchange)  # noqa: S101 - where the pipelines end of what keeps state
        if emitted.watermark_us is not None:
            watermarks[name] = emitted.watermark_us
        if emitted.rows is not None and emitted.rows.height:
            routed = partitioned(exchange, emitted.rows, buckets)
            pieces.extend((bucket, name, rows) for bucket, rows in routed.items())
    return Sent(
        tuple(pieces), watermarks, dataflow.failures, dataflow.counters, owners, dataflow.read_us, dataflow.lost_us
    )


_BUCKET = "fjord_bucket"


def partitioned(exchange: Exchange, rows: pl.DataFrame, buckets: int) -> dict[int, pl.DataFrame]:
    """Return the rows of each bucket."""
    if exchange.spread != "group":
        return split_by_bucket(rows, exchange.by, buckets)
    (group,) = exchange.by
    placed = rows.with_columns((pl.col(group) % buckets).alias(_BUCKET))
    pieces = placed.partition_by(_BUCKET, as_dict=True, maintain_order=True, include_key=False)
    return {int(bucket): piece for (bucket,), piece in pieces.items()}
