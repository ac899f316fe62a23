"""Where pipelines end: what is placed in a plan, but is no operator, because hosts take the rows there."""

from __future__ import annotations

from typing import NoReturn, TypeVar, final

from cluster.fjord.running_kind import (
    KeepsNothing,
    PassesNoOrigins,
    PassesRows,
    RunningKind,
    RuntimeContext,
    refuse_alone,
)
from cluster.physical import operations as kinds

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
