"""Schedulers: which operator makes its next transition.

Every dataflow uses :class:`RoundRobin` today, as the paper's system did (papers/fjords.md section 2): it runs until no
operator has input, so that the order matters little. :class:`Tickets` charges operators for the time that they use. It
is for quality of service: when there is less time than work, operators of queries with a higher priority will hold more
tickets, and no query's operators will be starved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Protocol


class Scheduler(Protocol):
    """Chooses among operators that can work. Operators are known by their position in the dataflow."""

    def choose(self, ready: Sequence[int]) -> int:
        """Return one of `ready` (ascending, never empty)."""
        ...

    def charge(self, operator: int, seconds: float) -> None:
        """Note that an operator's transition took this long."""
        ...


class RoundRobin:
    """Every operator in turn."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, ready: Sequence[int]) -> int:
        """Return the first ready operator after the one chosen last."""
        following = bisect_right(ready, self._last)
        self._last = ready[following] if following < len(ready) else ready[0]
        return self._last

    def charge(self, operator: int, seconds: float) -> None:
        """Do nothing: turns do not depend on time used."""


class Tickets:
    """Stride scheduling: time is shared in proportion to tickets.

    The deterministic form of lottery scheduling: the ready operator with the smallest time used per ticket goes first.
    No dataflow uses it yet, see above.

    Parameters
    ----------
    tickets
        Tickets by operator; those not named hold one.
    """

    def __init__(self, tickets: Mapping[int, int] | None = None) -> None:
        self._tickets = dict(tickets or {})
        self._passed: dict[int, float] = {}

    def choose(self, ready: Sequence[int]) -> int:
        """Return the ready operator that has had the least of its share."""
        return min(ready, key=lambda operator: (self._passed.get(operator, 0.0), operator))

    def charge(self, operator: int, seconds: float) -> None:
        """Charge the time used, divided by the operator's tickets."""
        self._passed[operator] = self._passed.get(operator, 0.0) + seconds / self._tickets.get(operator, 1)
