"""How much work planning one statement may take: counted in steps, and ended by a clock.

A statement from outside is planned within :func:`limited`; the loops of the layers below call :func:`spend`, which
raises when nothing is left. Threads cannot be killed, but they stop here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cluster.errors import PlanError


class PlanningLimitError(PlanError):
    """A statement that takes too much work to plan."""


class Budget:
    """What is left for one statement.

    Parameters
    ----------
    seconds
        How long planning may take from now on.
    clock
        Seconds, from any beginning.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps = 0
        """Steps taken so far."""
        self._seconds = seconds
        self._clock = clock
        self._deadline = clock() + seconds
        self._cancelled = False

    def cancel(self) -> None:
        """Let the next step be the last: no caller waits for the plan any more."""
        self._cancelled = True

    def spend(self, steps: int) -> None:
        """Take some steps.

        Raises
        ------
        PlanningLimitError
            If there is no time left for them.
        """
        self.steps += steps
        if self._cancelled or self._clock() > self._deadline:
            raise PlanningLimitError(
                f"planning this statement takes longer than the {self._seconds:g} s that one may take",
                hint="make several queries of it, or start the cluster with a higher --planning-seconds",
            )


_current: ContextVar[Budget | None] = ContextVar("planning_budget", default=None)


@contextmanager
def limited(budget: Budget) -> Iterator[Budget]:
    """Plan within a budget."""
    token = _current.set(budget)
    try:
        yield budget
    finally:
        _current.reset(token)


def spend(steps: int = 1) -> None:
    """Take some steps of the budget within which the caller plans, if there is one.

    Raises
    ------
    PlanningLimitError
        If nothing is left of it.
    """
    budget = _current.get()
    if budget is not None:
        budget.spend(steps)
