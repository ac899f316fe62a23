"""Filter: the tuples for which a predicate is true (papers/pipes_algebra.md section 3)."""

from __future__ import annotations

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import Scalar


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
