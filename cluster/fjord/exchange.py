"""What buckets are given in each micro-batch: rows, watermarks and failures, and for every bucket the epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import polars as pl
from msgspec.structs import replace

from cluster.fjord.answer_kinds import Span, united
from cluster.fjord.at_work import NOW
from cluster.fjord.counters import Counters
from cluster.fjord.row_order import split_by_bucket
from cluster.fjord.upstream_dataflow import UpstreamDataflow
from cluster.physical.operations import Exchange


class MicroBatchControl(msgspec.Struct, frozen=True):
    """Control information for every bucket in each micro-batch.

    Parameters
    ----------
    epoch
        The plan to run.
    previous_epoch
        The plan of the micro-batch before; if it is another one, state of dropped queries is removed.
    watermarks_us
        By exchange: no later row starts before this instant.
    failures
        By query: why its upstream operators failed, if they did.
    relations
        By identity of a relation: the newest version that counts.
    reached_us
        The position of the streams; 0 if it is not known.
    begun_us
        By stream: the instant at which it begins, if that may be known since this micro-batch. What has begun before
        stays as it is.
    passed_us
        By stream: its low watermark behind the rows of this micro-batch.
    micro_batch
        The micro-batch, by a text that is the same whenever it is run; empty if overruns are not watched.
    lost_us
        By fragment or query whose upstream operators failed: the first and last stamp of what they were given.
    """

    epoch: int
    previous_epoch: int
    watermarks_us: dict[str, int]
    failures: dict[str, str] = {}
    relations: dict[str, int] = {}
    reached_us: int = 0
    begun_us: dict[str, int] = {}
    passed_us: dict[str, int] = {}
    micro_batch: str = ""
    lost_us: dict[str, tuple[int, int]] = {}


def merged_control(controls: Iterable[MicroBatchControl]) -> MicroBatchControl:
    """Return one control merged from those of all parts: watermarks, failures, losses of all, the rest of the first."""
    first, *others = controls
    watermarks = dict(first.watermarks_us)
    failures = dict(first.failures)
    lost_us = dict(first.lost_us)
    for control in others:
        watermarks.update(control.watermarks_us)
        failures.update(control.failures)
        for owner, span in control.lost_us.items():
            lost_us[owner] = united([lost_us.get(owner), span]) or span
    return replace(first, watermarks_us=watermarks, failures=failures, lost_us=lost_us)


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
