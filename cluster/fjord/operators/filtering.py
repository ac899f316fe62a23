"""Filter: the tuples for which a predicate is true (papers/pipes_algebra.md section 3)."""

from __future__ import annotations

from typing import final

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesRows, RuntimeContext
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import Scalar
from cluster.physical import operations as kinds


class Filter(Operator):
    """Stateless.

    Parameters
    ----------
    predicate
        Rows for which it is false or NULL are removed.
    """

    def __init__(self, predicate: Scalar) -> None:
        self._predicate = compile_scalar(predicate)

    def transition(self, port: int, batch: Batch) -> Batch:
        """Keep the rows for which the predicate is true."""
        del port
        return Batch(batch.rows.filter(self._predicate), batch.watermark_us)


@final
class RunningFilter(PassesRows, KeepsNothing, Alone[kinds.Filter]):
    """A filter."""

    def operator(self, operation: kinds.Filter) -> Operator:
        """Return the operator."""
        return Filter(operation.predicate)

    def with_origins(self, operation: kinds.Filter, context: RuntimeContext) -> Operator:
        """Return the operator itself, which passes on rows as they are."""
        return self.instantiate(operation, context)
