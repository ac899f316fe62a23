"""From the operators next to the scans to the buckets: which rows go where, and what the buckets hear of them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from cluster.fjord.counters import Counters
from cluster.fjord.placement import routed
from cluster.fjord.upstream_fjord import UpstreamFjord


@dataclass(frozen=True, slots=True)
class Sent:
    """What one part of a micro-batch sends.

    Parameters
    ----------
    pieces
        (bucket, edge, rows).
    watermarks_us
        By edge: no row that comes later starts before this instant.
    failures
        By part or query: why its operators failed.
    counters
        What the operators did.
    """

    pieces: tuple[tuple[int, str, pl.DataFrame], ...]
    watermarks_us: dict[str, int]
    failures: dict[str, str]
    counters: Counters


def sent_by(fjord: UpstreamFjord, buckets: int) -> Sent:
    """Run what is next to the scans, and return what it sends."""
    watermarks: dict[str, int] = {}
    pieces: list[tuple[int, str, pl.DataFrame]] = []
    for emitted in fjord.run():
        edge = emitted.edge
        if emitted.watermark_us is not None:
            watermarks[edge.name] = emitted.watermark_us
        if emitted.rows is not None and emitted.rows.height:
            pieces.extend((bucket, edge.name, rows) for bucket, rows in routed(edge, emitted.rows, buckets).items())
    return Sent(tuple(pieces), watermarks, fjord.failures, fjord.counters)
