"""Per-query filter: keeps, of each query group's rows, those for which the group's own condition is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import polars as pl

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.running_kind import KeepsNothing, PassesRows, RuntimeContext, Subscribed
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import QUERY_GROUP, Scalar
from cluster.physical import operations as kinds
from cluster.physical.nodes import Fragment

_ROW, _CONDITION = "fjord_row", "fjord_condition"


class PerQueryFilter(Operator):
    """Stateless. Each different condition is evaluated once, over the rows of all query groups that have it.

    Parameters
    ----------
    conditions
        By query group. Rows of other groups are dropped.
    """

    def __init__(self, conditions: Mapping[int, Scalar]) -> None:
        different = {predicate: place for place, predicate in enumerate(dict.fromkeys(conditions.values()))}
        self._predicates = [compile_scalar(predicate) for predicate in different]
        self._groups = list(conditions)
        self._places = [different[predicate] for predicate in conditions.values()]

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the rows that meet their group's condition, in their order."""
        del port
        rows = batch.rows
        if len(self._predicates) == 1 or not rows.height:
            known = pl.col(QUERY_GROUP.name).is_in(self._groups)
            return Batch(rows.filter(known, self._predicates[0]), batch.watermark_us)
        condition = pl.col(QUERY_GROUP.name).replace_strict(
            self._groups, self._places, default=None, return_dtype=pl.Int32
        )
        numbered = rows.with_row_index(_ROW).with_columns(condition.alias(_CONDITION))
        pieces = numbered.drop_nulls(_CONDITION).partition_by(_CONDITION, as_dict=True, include_key=False)
        kept = [piece.filter(self._predicates[place]) for (place,), piece in pieces.items()]
        if not kept:
            return Batch(rows.clear(), batch.watermark_us)
        return Batch(pl.concat(kept).sort(_ROW).drop(_ROW), batch.watermark_us)


@final
class RunningPerQueryFilter(PassesRows, KeepsNothing, Subscribed[kinds.PerQueryFilter]):
    """Of each query group's rows those that meet its own condition."""

    def operator(self, operation: kinds.PerQueryFilter, fragment: Fragment) -> Operator:
        """Return the operator for the conditions of the queries."""
        return PerQueryFilter({each.group: each.choices[operation.place] for each in fragment.subscribers})

    def with_origins(self, operation: kinds.PerQueryFilter, context: RuntimeContext) -> Operator:
        """Return the operator itself, which passes on rows as they are."""
        return self.instantiate(operation, context)
