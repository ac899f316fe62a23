"""Aggregates that sensors made, as partial rows beside those made of samples here.

So are counts of missing samples, which proxies tell in forms of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from cluster.expressions import nodes
from cluster.expressions.nodes import Binary, Literal
from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.grouped_filter import GroupedFilter
from cluster.fjord.scalars import compile_scalar
from cluster.language.algebra import MEMBER, SINCE, AggregateCall, Column, Output, Scalar, Schema
from cluster.plan.expressions import conjunction_of
from protocols.batches import (
    EXPECTED_COLUMN,
    FORM_COLUMN,
    MISSING_COLUMN,
    PANE_COLUMN,
    SAMPLES_COLUMN,
    measure_column,
)
from protocols.programs import Measure
from protocols.streams import FieldType

_NEVER = -1
_FORM = Column(FORM_COLUMN, FieldType.TEXT)


@dataclass(frozen=True, slots=True)
class ToldTo:
    """A query that is told aggregates.

    Parameters
    ----------
    group
        Of its condition.
    form
        In which it is told.
    fixed
        The part of its condition that is about fixed fields; None for none.
    since
        The epoch with which it began.
    own_pane_us
        Its windows are made of whole panes of this width.
    measures
        By field: what it has to know.
    """

    group: int
    form: str
    fixed: Scalar | None
    since: int
    own_pane_us: int
    measures: tuple[tuple[str, tuple[Measure, ...]], ...]


class ToldAggregates(Operator):
    """Stateless. Gives each group the aggregates of its form, as its queries can use them.

    An aggregate may have been made for somebody else: of panes that reach beyond a pane of a query's windows, or
    without a measure that it needs. It began later than the one for whom it was made, and the aggregate counts as
    one from before: its mark SINCE says so.

    Parameters
    ----------
    told_to
        The queries.
    columns
        Fixed columns that conditions and keys may read.
    keys, calls, pane_us
        Of the fold.
    """

    def __init__(
        self,
        told_to: Sequence[ToldTo],
        columns: Schema,
        *,
        keys: tuple[Output, ...],
        calls: tuple[AggregateCall, ...],
        pane_us: int,
    ) -> None:
        groups = {each.group: _condition(each) for each in told_to}
        newest: dict[int, int] = {}
        for each in told_to:
            newest[each.group] = max(newest.get(each.group, 0), each.since)
        self.grouped = GroupedFilter(tuple(groups.items()), (*columns, _FORM), newest)
        self._members = {
            group: sorted((each for each in told_to if each.group == group), key=lambda each: each.since)
            for group in groups
        }
        self._keys = [compile_scalar(key.scalar).alias(key.name) for key in keys]
        columns_of_calls = partial_columns(calls)
        self._told = columns_of_calls
        self._merge = [column.merge for column in columns_of_calls]
        self._by = [START, END, *(key.name for key in keys), MEMBER.name, SINCE.name]
        self._pane_us = pane_us
        self.dropped = 0
        """Aggregates that no query could use."""

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the partial rows."""
        rows = self.grouped.transition(port, batch).rows
        if rows.height:
            fitting = self._since(rows)
            rows = rows.with_columns(fitting.alias(SINCE.name)).filter(pl.col(SINCE.name) > _NEVER)
            self.dropped += fitting.len() - rows.height
        pane = (pl.col(START).floordiv(self._pane_us) + 1) * self._pane_us - 1
        marks = [pl.col(MEMBER.name), pl.col(SINCE.name)]
        known = set(rows.columns)
        begun = [
            # An aggregate that none is told of, its query taking samples, has no column to be read.
            column.from_sensors if column.reads <= known else pl.lit(None, column.type).alias(column.name)
            for column in self._told
        ]
        told = rows.select(pane.alias(START), (pane + 1).alias(END), *self._keys, *marks, *begun)
        merged = told.group_by(self._by, maintain_order=True).agg(self._merge)
        return Batch(merged.sort(START, maintain_order=True), batch.watermark_us)

    def _since(self, rows: pl.DataFrame) -> pl.Series:
        """Return the epoch of the newest query that can use each row as all before it can; -1 if the first cannot."""
        since = pl.lit(_NEVER, pl.Int64)
        for group, members in self._members.items():
            found, fits = pl.lit(_NEVER, pl.Int64), pl.lit(value=True)
            for each in members:
                fits &= _fits(each)
                found = pl.when(fits).then(pl.lit(each.since, pl.Int64)).otherwise(found)
            since = pl.when(pl.col(MEMBER.name) == group).then(found).otherwise(since)
        return rows.select(since.alias(SINCE.name))[SINCE.name]


def told_columns(measures: Mapping[str, Sequence[Measure]]) -> tuple[str, ...]:
    """Return the columns of aggregates that have to be read for some measures of fields."""
    return (
        FORM_COLUMN,
        PANE_COLUMN,
        SAMPLES_COLUMN,
        EXPECTED_COLUMN,
        MISSING_COLUMN,
        *(measure_column(measure, field) for field, wanted in measures.items() for measure in wanted),
    )


def _condition(each: ToldTo) -> Scalar | None:
    named = Binary("=", nodes.Column(FORM_COLUMN), Literal(FieldType.TEXT, each.form))
    form = Scalar(named, FieldType.BOOLEAN)
    return conjunction_of((form,) if each.fixed is None else (form, each.fixed))


def _fits(each: ToldTo) -> pl.Expr:
    """Return whether an aggregate lies within one pane of a query, and says all it needs."""
    begin = pl.col(START) - pl.col(PANE_COLUMN) + 1
    fits = begin.floordiv(each.own_pane_us) == pl.col(START).floordiv(each.own_pane_us)
    for field, measures in each.measures:
        count = pl.col(measure_column(Measure.COUNT, field))
        fits &= count.is_not_null()
        for measure in measures:
            fits &= pl.col(measure_column(measure, field)).is_not_null() | (count == 0)
    return fits.fill_null(value=False)
