"""Preaggregated-sample filter: samples that a device aggregate contains already do not count a second time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import polars as pl

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.running_kind import KeepsNothing, PassesNoOrigins, PassesRows, Subscribed
from cluster.operators.columns import QUERY_GROUP
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment
from protocols.wire.batches import COVERED_BY_COLUMN


class PreaggregatedFilter(Operator):
    """Stateless. Removes from each query group the samples that the device aggregates it uses contain.

    Parameters
    ----------
    fingerprints
        By query group: the push-down fingerprint of the aggregates it uses.
    only_aggregates
        Groups that use aggregates alone, and no samples.
    """

    def __init__(self, fingerprints: Mapping[int, str], only_aggregates: frozenset[int] = frozenset()) -> None:
        self._fingerprints = fingerprints
        self._only_aggregates = sorted(only_aggregates)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the samples that count."""
        del port
        rows = batch.rows
        if self._only_aggregates:
            rows = rows.filter(~pl.col(QUERY_GROUP.name).is_in(self._only_aggregates))
        if COVERED_BY_COLUMN not in rows.columns:
            return Batch(rows, batch.watermark_us)
        if rows[COVERED_BY_COLUMN].null_count() < rows.height:
            own = pl.col(QUERY_GROUP.name).replace_strict(self._fingerprints, default=None, return_dtype=pl.String)
            covered = pl.col(COVERED_BY_COLUMN).str.split(" ").list.contains(own)
            rows = rows.filter(~covered.fill_null(value=False))
        return Batch(rows.drop(COVERED_BY_COLUMN), batch.watermark_us)


@final
class RunningPreaggregatedFilter(PassesRows, KeepsNothing, PassesNoOrigins, Subscribed[kinds.PreaggregatedFilter]):
    """Samples without those that device aggregates contain."""

    def operator(self, operation: kinds.PreaggregatedFilter, fragment: Fragment) -> Operator:
        """Return the operator for the aggregates that the queries use."""
        del operation
        given = {each.group: each.devices for each in fragment.subscribers if each.devices is not None}
        only = frozenset(group for group, devices in given.items() if devices.only)
        return PreaggregatedFilter({group: devices.fingerprint for group, devices in given.items()}, only)
