"""Multiplex: passes its input to all its outputs (papers/fjords.md section 2). It makes sharing a scan possible."""

from __future__ import annotations

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator


class Multiplex(Operator):
    """Stateless; the dataflow puts what an operator emits into every output queue, so there is nothing to do."""

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the batch itself; it is shared, not copied."""
        del port
        return batch
