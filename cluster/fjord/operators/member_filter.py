"""Member filter: of each member of a fold the tuples for which the member's own condition is true."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.scalars import compile_scalar
from cluster.language.algebra import MEMBER, Scalar

_ROW, _CONDITION = "fjord_row", "fjord_condition"


class MemberFilter(Operator):
    """Stateless. Each different condition is evaluated once, over the rows of all members that have it.

    Parameters
    ----------
    conditions
        By number of a member. Rows of others go.
    """

    def __init__(self, conditions: Mapping[int, Scalar]) -> None:
        different = {predicate: place for place, predicate in enumerate(dict.fromkeys(conditions.values()))}
        self._predicates = [compile_scalar(predicate) for predicate in different]
        self._members = list(conditions)
        self._places = [different[predicate] for predicate in conditions.values()]

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the rows whose member wants them, in their order."""
        del port
        rows = batch.rows
        if len(self._predicates) == 1 or not rows.height:
            known = pl.col(MEMBER.name).is_in(self._members)
            return Batch(rows.filter(known, self._predicates[0]), batch.watermark_us)
        condition = pl.col(MEMBER.name).replace_strict(self._members, self._places, default=None, return_dtype=pl.Int32)
        numbered = rows.with_row_index(_ROW).with_columns(condition.alias(_CONDITION))
        pieces = numbered.drop_nulls(_CONDITION).partition_by(_CONDITION, as_dict=True, include_key=False)
        kept = [piece.filter(self._predicates[place]) for (place,), piece in pieces.items()]
        if not kept:
            return Batch(rows.clear(), batch.watermark_us)
        return Batch(pl.concat(kept).sort(_ROW).drop(_ROW), batch.watermark_us)
