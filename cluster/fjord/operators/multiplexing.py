"""Multiplex: passes its input to all its outputs (papers/fjords.md section 2). It makes sharing a scan possible."""

from __future__ import annotations

from typing import final

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.row_flow import RowFlow, lasting
from cluster.fjord.running_kind import Alone, InputFlows, KeepsNothing, PassesNoOrigins
from cluster.physical import operations as kinds


class Multiplex(Operator):
    """Stateless; the dataflow puts what an operator emits into every output queue, so there is nothing to do."""

    def transition(self, port: int, batch: Batch) -> Batch:
        """Return the batch itself; it is shared, not copied."""
        del port
        return batch


@final
class RunningScan(KeepsNothing, PassesNoOrigins, Alone[kinds.Scan]):
    """A scan, which pipelines share."""

    def operator(self, operation: kinds.Scan) -> Operator:
        """Return what passes on its rows."""
        del operation
        return Multiplex()

    def flow(self, operation: kinds.Scan, inputs: InputFlows) -> RowFlow:
        """Return as many rows as its stream brings."""
        return lasting(RowFlow(1, 1, inputs.rates.get(operation.stream, 0.0), 1, 0.0, 0.0), 1)


@final
class RunningScanAggregates(KeepsNothing, PassesNoOrigins, Alone[kinds.ScanAggregates]):
    """A scan of aggregates that devices have computed."""

    def operator(self, operation: kinds.ScanAggregates) -> Operator:
        """Return what passes on its rows."""
        del operation
        return Multiplex()

    def flow(self, operation: kinds.ScanAggregates, inputs: InputFlows) -> RowFlow:
        """Return no rows: they replace samples, which are counted."""
        del operation, inputs
        return RowFlow(0, 0, 0.0, 1, 0.0, 0.0)
