"""Multiplex: passes its input to all its outputs (papers/fjords.md section 2); and where pipelines end."""

from __future__ import annotations

from typing import NoReturn, TypeVar, final

from cluster.fjord.batch import Batch
from cluster.fjord.operator import Operator
from cluster.fjord.row_flow import RowFlow, lasting
from cluster.fjord.running_kind import (
    Alone,
    InputFlows,
    KeepsNothing,
    PassesNoOrigins,
    PassesRows,
    RunningKind,
    RuntimeContext,
    refuse_alone,
)
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


E = TypeVar("E", bound=kinds.Exchange | kinds.Sink)


class _PipelineEnd(PassesRows, KeepsNothing, PassesNoOrigins, RunningKind[E]):
    """What both have in common."""

    def instantiate(self, operation: E, context: RuntimeContext) -> NoReturn:
        """Raise an error: there is no operator."""
        del context
        refuse_alone(operation)


@final
class RunningExchange(_PipelineEnd[kinds.Exchange]):
    """Rows cross to the bucket of their values (:mod:`cluster.fjord.exchange`)."""


@final
class RunningSink(_PipelineEnd[kinds.Sink]):
    """Rows become answers of each subscriber (:mod:`cluster.fjord.answers`)."""
