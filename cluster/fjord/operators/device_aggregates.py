"""Device partial aggregates become partial rows, like those computed from samples in the cluster.

So do counts of missing samples, which proxies report under fingerprints of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import polars as pl

from cluster.expressions import nodes
from cluster.expressions.nodes import Binary, Literal
from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.filtering import GroupedFilter
from cluster.fjord.running_kind import KeepsNothing, PassesNoOrigins, PassesRows, Subscribed
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, AggregateCall, Column, Output, Scalar, Schema
from cluster.operators.scalar_expressions import conjunction_of
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment
from protocols.wire.batches import (
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    MISSING_COLUMN,
    PANE_COLUMN,
    SAMPLES_COLUMN,
    measure_column,
)
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType

_NEVER = -1
_FINGERPRINT = Column(FINGERPRINT_COLUMN, FieldType.TEXT)


@dataclass(frozen=True, slots=True)
class AggregateRecipient:
    """A query that uses device partial aggregates.

    Parameters
    ----------
    group
        Its query group.
    fingerprint
        The push-down fingerprint of the aggregates it uses.
    fixed
        The part of its condition on fixed fields; None for none.
    visible_from
        The epoch with which the query began.
    own_pane_us
        The width of panes of which its windows consist.
    measures
        By field: the needed measures.
    """

    group: int
    fingerprint: str
    fixed: Scalar | None
    visible_from: int
    own_pane_us: int
    measures: tuple[tuple[str, tuple[Measure, ...]], ...]


class DeviceAggregates(Operator):
    """Stateless. Gives each query group the aggregates with its fingerprint that its queries can use.

    An aggregate may have been made for another query: of panes that reach beyond a pane of this query's windows,
    or without a measure that this query needs. Such a query began after the one for which the aggregate was made,
    and must not see it: the column VISIBLE_FROM has the newest query that can use it.

    Parameters
    ----------
    recipients
        The queries that use aggregates.
    columns
        Fixed columns that conditions and keys may read.
    keys, calls, pane_us
        Keys, aggregates and width of the panes.
    """

    def __init__(
        self,
        recipients: Sequence[AggregateRecipient],
        columns: Schema,
        *,
        keys: tuple[Output, ...],
        calls: tuple[AggregateCall, ...],
        pane_us: int,
    ) -> None:
        groups = {each.group: _condition(each) for each in recipients}
        newest: dict[int, int] = {}
        for each in recipients:
            newest[each.group] = max(newest.get(each.group, 0), each.visible_from)
        self.grouped = GroupedFilter(tuple(groups.items()), (*columns, _FINGERPRINT), newest)
        self._by_group = {
            group: sorted((each for each in recipients if each.group == group), key=lambda each: each.visible_from)
            for group in groups
        }
        self._keys = [compile_scalar(key.scalar).alias(key.name) for key in keys]
        self._columns = partial_columns(calls)
        self._merge = [column.merge for column in self._columns]
        self._by = [START, END, *(key.name for key in keys), QUERY_GROUP.name, VISIBLE_FROM.name]
        self._pane_us = pane_us
        self.dropped = 0
        """Aggregates that no query could use."""

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the partial rows."""
        rows = self.grouped.transition(port, batch).rows
        if rows.height:
            visible_from = self._visible_from(rows)
            rows = rows.with_columns(visible_from.alias(VISIBLE_FROM.name)).filter(pl.col(VISIBLE_FROM.name) > _NEVER)
            self.dropped += visible_from.len() - rows.height
        pane = (pl.col(START).floordiv(self._pane_us) + 1) * self._pane_us - 1
        marks = [pl.col(QUERY_GROUP.name), pl.col(VISIBLE_FROM.name)]
        known = set(rows.columns)
        begun = [
            # No column is read for an aggregate whose queries use samples.
            column.from_sensors if column.reads <= known else pl.lit(None, column.type).alias(column.name)
            for column in self._columns
        ]
        partial = rows.select(pane.alias(START), (pane + 1).alias(END), *self._keys, *marks, *begun)
        merged = partial.group_by(self._by, maintain_order=True).agg(self._merge)
        return Batch(merged.sort(START, maintain_order=True), batch.watermark_us)

    def _visible_from(self, rows: pl.DataFrame) -> pl.Series:
        """Return, per row, the epoch of the newest query up to which all can use it; -1 if the first cannot."""
        visible_from = pl.lit(_NEVER, pl.Int64)
        for group, recipients in self._by_group.items():
            found, fits = pl.lit(_NEVER, pl.Int64), pl.lit(value=True)
            for each in recipients:
                fits &= _fits(each)
                found = pl.when(fits).then(pl.lit(each.visible_from, pl.Int64)).otherwise(found)
            visible_from = pl.when(pl.col(QUERY_GROUP.name) == group).then(found).otherwise(visible_from)
        return rows.select(visible_from.alias(VISIBLE_FROM.name))[VISIBLE_FROM.name]


def device_aggregate_columns(measures: Mapping[str, Sequence[Measure]]) -> tuple[str, ...]:
    """Return the columns of device aggregates for measures of fields."""
    return (
        FINGERPRINT_COLUMN,
        PANE_COLUMN,
        SAMPLES_COLUMN,
        EXPECTED_COLUMN,
        MISSING_COLUMN,
        *(measure_column(measure, field) for field, wanted in measures.items() for measure in wanted),
    )


def _condition(each: AggregateRecipient) -> Scalar | None:
    named = Binary("=", nodes.Column(FINGERPRINT_COLUMN), Literal(FieldType.TEXT, each.fingerprint))
    own = Scalar(named, FieldType.BOOLEAN)
    return conjunction_of((own,) if each.fixed is None else (own, each.fixed))


def _fits(each: AggregateRecipient) -> pl.Expr:
    """Return whether an aggregate lies within one pane of a query, and has all measures that the query needs."""
    begin = pl.col(START) - pl.col(PANE_COLUMN) + 1
    fits = begin.floordiv(each.own_pane_us) == pl.col(START).floordiv(each.own_pane_us)
    for field, measures in each.measures:
        count = pl.col(measure_column(Measure.COUNT, field))
        fits &= count.is_not_null()
        for measure in measures:
            fits &= pl.col(measure_column(measure, field)).is_not_null() | (count == 0)
    return fits.fill_null(value=False)


@final
class RunningDeviceAggregates(PassesRows, KeepsNothing, PassesNoOrigins, Subscribed[kinds.DeviceAggregates]):
    """Device partial aggregates as partial rows."""

    def operator(self, operation: kinds.DeviceAggregates, fragment: Fragment) -> Operator:
        """Return the operator for the queries that can use them."""
        reported = [(each, each.missing if operation.missing else each.devices) for each in fragment.subscribers]
        recipients = [
            AggregateRecipient(
                each.group, found.fingerprint, found.fixed, each.visible_from, found.own_pane_us, found.measures
            )
            for each, found in reported
            if found is not None
        ]
        return DeviceAggregates(
            recipients, operation.columns, keys=operation.keys, calls=operation.calls, pane_us=operation.pane_us
        )
