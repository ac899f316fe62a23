"""What the operators of a running plan have done since the process began, and how fast: smoothed, and bounded.

    reports      60 rows |                  | 90 rows |           every second or so, of what was done since
    rates            -   |   60/s falling   |  rising |           of the last half minute, mostly

Operators that have left the plan are forgotten; only their broken batches count on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from cluster.fjord.counters import Counters, Totals, added

HALF_LIFE_SECONDS = 30.0
"""What happened so long ago counts half."""
OBSERVED_EVERY_SECONDS = 2.0


class Rates(msgspec.Struct, frozen=True):
    """What an operator does in a second of the cluster's own time.

    Parameters
    ----------
    rows_in_per_second, rows_out_per_second
        Rows that it takes and emits.
    busy
        The share of a processor that it takes, from 0 to 1; more if several workers run it.
    companions_per_second
        For each row that enters it, if it is an extent: how many rows of its key there are, with itself.
    neighbours_per_second, linked_per_second
        Pairs of neighbours that it compares, if it is an extent, and those of them that are coalesced.
    """

    rows_in_per_second: float = 0.0
    rows_out_per_second: float = 0.0
    busy: float = 0.0
    companions_per_second: float = 0.0
    neighbours_per_second: float = 0.0
    linked_per_second: float = 0.0

    @property
    def rows_out_per_row(self) -> float | None:
        """Rows that it emits for each that it takes: the selectivity of a filter; None while it takes none."""
        return self.rows_out_per_second / self.rows_in_per_second if self.rows_in_per_second else None

    @property
    def companions_per_row(self) -> float | None:
        """Rows of its key that a row meets in an extent, with itself; None while none enters."""
        if not (self.rows_in_per_second and self.companions_per_second):
            return None
        return self.companions_per_second / self.rows_in_per_second

    @property
    def linked_share(self) -> float | None:
        """The share of neighbours in an extent that are coalesced; None while none are compared."""
        return self.linked_per_second / self.neighbours_per_second if self.neighbours_per_second else None

    @property
    def microseconds_per_row(self) -> float | None:
        """Processor time for each row that it takes; None while it takes none."""
        return self.busy * 1e6 / self.rows_in_per_second if self.rows_in_per_second else None

    def approaching(self, newest: Rates, share: float) -> Rates:
        """Return rates that are so much nearer to the newest ones: by a share of the distance."""
        return Rates(
            self.rows_in_per_second + share * (newest.rows_in_per_second - self.rows_in_per_second),
            self.rows_out_per_second + share * (newest.rows_out_per_second - self.rows_out_per_second),
            self.busy + share * (newest.busy - self.busy),
            self.companions_per_second + share * (newest.companions_per_second - self.companions_per_second),
            self.neighbours_per_second + share * (newest.neighbours_per_second - self.neighbours_per_second),
            self.linked_per_second + share * (newest.linked_per_second - self.linked_per_second),
        )


NONE_YET = Rates()


class OperatorStatistics:
    """Counters and rates of operators; safe to use from several threads.

    Parameters
    ----------
    clock
        Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counters: Counters = {}
        self._observed: Counters = {}
        self._observed_at = clock()
        self._rates: dict[str, Rates] = {}
        self._broken_before = 0
        self._evicted_before = 0

    @property
    def counters(self) -> Counters:
        """What the operators of the plan have done."""
        return self._counters

    @property
    def broken(self) -> int:
        """How many batches broke the contract of queues, also of operators that have left the plan."""
        return self._broken_before + sum(totals.broken for totals in self._counters.values())

    @property
    def evicted(self) -> int:
        """How many tuples were dropped for lack of room (``KEEP``), also by operators that have left the plan."""
        return self._evicted_before + sum(totals.evicted for totals in self._counters.values())

    @property
    def due(self) -> bool:
        """Whether it is time to observe again."""
        return self._clock() - self._observed_at >= OBSERVED_EVERY_SECONDS

    def add(self, counters: Mapping[str, Totals]) -> None:
        """Add what operators did."""
        with self._lock:
            self._counters = added(self._counters, counters)

    def observe(self, owners: Iterable[str]) -> None:
        """Bring rates up to date, and forget operators that have left the plan.

        Parameters
        ----------
        owners
            Identities of all parts of the plan.
        """
        alive = frozenset(owners)
        with self._lock:
            now = self._clock()
            passed, self._observed_at = now - self._observed_at, now
            if passed <= 0:
                return
            share = 1 - 0.5 ** (passed / HALF_LIFE_SECONDS)
            kept = {name: totals for name, totals in self._counters.items() if totals.owner in alive}
            self._broken_before = self.broken - sum(totals.broken for totals in kept.values())
            self._evicted_before = self.evicted - sum(totals.evicted for totals in kept.values())
            self._rates = {
                name: self._newer(name, _between(self._observed.get(name), totals, passed), share)
                for name, totals in kept.items()
            }
            self._counters = self._observed = kept

    def rates(self, operator: str) -> Rates:
        """Return the smoothed rates of an operator; none before they have been observed."""
        return self._rates.get(operator, NONE_YET)

    def _newer(self, name: str, newest: Rates, share: float) -> Rates:
        known = self._rates.get(name)
        return newest if known is None else known.approaching(newest, share)


def _between(earlier: Totals | None, now: Totals, seconds: float) -> Rates:
    done = now if earlier is None else now.minus(earlier)
    counted = (done.rows_in, done.rows_out, done.seconds, done.companions, done.neighbours, done.linked)
    return Rates(*(each / seconds for each in counted))
