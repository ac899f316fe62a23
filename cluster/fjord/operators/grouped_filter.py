"""Grouped filter: the conditions of all query groups at once (docs/explanation/folding.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import final

import numpy as np
import polars as pl

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.predicate_index import PredicateIndex
from cluster.fjord.running_kind import KeepsNothing, PassesNoOrigins, PassesRows, Subscribed
from cluster.operators.columns import QUERY_GROUP, VISIBLE_FROM, Scalar, Schema
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment


class GroupedFilter(Operator):
    """Stateless. A row becomes one row for each query group whose condition holds for it, with the group's number.

    Parameters
    ----------
    conditions
        Numbers of the query groups and their conditions; None for no condition.
    columns
        The columns that conditions may read.
    newest
        By query group: the epoch to put into the column VISIBLE_FROM; None for no such column.

    Attributes
    ----------
    failures
        By query group: why its condition could not be evaluated on the last batch, of which it then gets no rows.
    """

    def __init__(
        self, conditions: Sequence[tuple[int, Scalar | None]], columns: Schema, newest: Mapping[int, int] | None = None
    ) -> None:
        self._numbers = np.array([number for number, _ in conditions], np.int64)
        predicates = tuple(predicate for _, predicate in conditions)
        # A single group without a condition needs no index.
        self._only = conditions[0][0] if predicates == (None,) else None
        self._index = _index(predicates, columns)
        self._newest = None if newest is None else np.array([newest[number] for number, _ in conditions], np.int64)
        self.failures: dict[int, str] = {}

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the rows of all groups, in the order of the batch."""
        del port
        self.failures = {}
        if self._only is not None:
            marks = [pl.lit(self._only, pl.Int64).alias(QUERY_GROUP.name)]
            if self._newest is not None:
                marks.append(pl.lit(self._newest[0], pl.Int64).alias(VISIBLE_FROM.name))
            return Batch(batch.rows.with_columns(marks), batch.watermark_us)
        matches = self._index.match(batch.rows)
        self.failures = {int(self._numbers[place]): reason for place, reason in matches.failures.items()}
        columns = [pl.Series(QUERY_GROUP.name, self._numbers[matches.predicates], pl.Int64)]
        if self._newest is not None:
            columns.append(pl.Series(VISIBLE_FROM.name, self._newest[matches.predicates], pl.Int64))
        return Batch(batch.rows[matches.rows].with_columns(columns), batch.watermark_us)


@lru_cache(maxsize=64)
def _index(predicates: tuple[Scalar | None, ...], columns: Schema) -> PredicateIndex:
    """Building an index takes longer than using it, and a micro-batch is soon followed by another."""
    return PredicateIndex(predicates, columns)


@final
class RunningGroupedFilter(PassesRows, KeepsNothing, PassesNoOrigins, Subscribed[kinds.GroupedFilter]):
    """The conditions of all query groups at once."""

    def operator(self, operation: kinds.GroupedFilter, fragment: Fragment) -> Operator:
        """Return the operator for the conditions of the queries."""
        newest = fragment.newest if operation.visible_from else None
        return GroupedFilter(fragment.conditions[operation.place], operation.columns, newest)
