"""The constants of the cost model, measured with samples of the stream (papers/coalescing.md section 3.3).

Operations take microseconds, so each is timed many times, and the longest hundredth is left out: a pause of the process
is no cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.temporal.cost_model import STAMP_BYTES, Constants, Workload
from cluster.temporal.windows import CountWindow, Key, Link, Values
from tests.cluster.temporal.admission import Admission, Verdict
from tests.cluster.temporal.eager_extent import Counters, EagerExtent
from tests.cluster.temporal.lazy_extent import LazyExtent

SCANS = 5
"""How often an extent is read at the end."""

Sample = tuple[int, Key, Values]
Clock = Callable[[], int]


@dataclass(frozen=True)
class Measured:
    """What a stretch of a stream cost as it ran, both ways; nanoseconds.

    Parameters
    ----------
    constants
        Of single operations.
    eager_update, lazy_update
        Of one sample in a full window.
    eager_scan, lazy_scan
        Of reading the extent once.
    eager_bytes, lazy_bytes
        Of the extents at the end.
    coalescing, disorder
        Learned probabilities.
    """

    constants: Constants
    eager_update: float
    lazy_update: float
    eager_scan: float
    lazy_scan: float
    eager_bytes: int
    lazy_bytes: int
    coalescing: float
    disorder: float


def measured(
    samples: Sequence[Sample], window: int, link: Link, row_bytes: tuple[int, int], clock: Clock = time.perf_counter_ns
) -> Measured:
    """Run samples through an eager and a lazy extent, and time both.

    Parameters
    ----------
    samples
        As they come: stamp, group and values. Constants are of those after the first `window`.
    window
        Samples of the window, fewer than there are samples.
    link
        Which sample goes on with the one before.
    row_bytes
        Of a row of the eager extent, and of the lazy one.
    clock
        Nanoseconds.
    """
    admission = Admission(CountWindow(window))
    _, group, values = samples[0]
    places = tuple(range(len(group))), tuple(range(len(group), len(group) + len(values)))
    eager, lazy = _Eager(link, clock), _Lazy(link, places, clock)
    for number, (stamp, group, values) in enumerate(samples):
        if admission.admit(stamp, group) is not Verdict.ACCEPTED:
            continue
        eager.insert(stamp, group, values, timed=number >= window)
        lazy.insert(stamp, group, values, timed=number >= window)
        eager.expire(admission, timed=number >= window)
        lazy.expire(admission, timed=number >= window)
    eager_scan, lazy_scan = eager.scan(), lazy.scan()
    return Measured(
        _constants(eager, lazy, (eager_scan, lazy_scan), row_bytes[0]),
        _mean(eager.inserts) + _mean(eager.expiries),
        _mean(lazy.inserts) + _mean(lazy.expiries),
        eager_scan,
        lazy_scan,
        eager.extent.bytes(row_bytes[0]),
        lazy.extent.bytes(row_bytes[1]),
        eager.extent.counters.coalescing_probability,
        eager.extent.counters.disorder,
    )


def workload(found: Measured, window: int, row_bytes: tuple[int, int]) -> Workload:
    """Return what the model needs of a measured stretch, in the steady state."""
    return Workload(found.coalescing, found.disorder, window, None, *row_bytes)


class _Eager:
    """An eager extent whose operations are timed by what they turn out to be."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self.extent = EagerExtent(link)
        self._clock = clock
        self.by_kind: dict[str, list[int]] = {}
        self.inserts: list[int] = []
        self.expiries: list[int] = []

    def insert(self, stamp: int, group: Key, values: Values, *, timed: bool) -> None:
        before = _kinds(self.extent.counters)
        began = self._clock()
        self.extent.insert(stamp, group, values)
        taken = self._clock() - began
        self._note(self.inserts, before, taken, timed=timed)

    def expire(self, admission: Admission, *, timed: bool) -> None:
        before = _kinds(self.extent.counters)
        began = self._clock()
        self.extent.expire(admission.oldest)
        taken = self._clock() - began
        self._note(self.expiries, before, taken, timed=timed)

    def scan(self) -> float:
        return _median_of(self._clock, self.extent.scan)

    def _note(self, to: list[int], before: dict[str, int], taken: int, *, timed: bool) -> None:
        after = _kinds(self.extent.counters)
        kind = next((name for name, times in after.items() if times > before[name]), None)
        if timed and kind is not None:
            to.append(taken)
            self.by_kind.setdefault(kind, []).append(taken)


class _Lazy:
    """A lazy extent whose operations are timed; rows are the group and the values."""

    def __init__(self, link: Link, places: tuple[tuple[int, ...], tuple[int, ...]], clock: Clock) -> None:
        self.extent = LazyExtent()
        self._link = link
        self._places = places
        self._clock = clock
        self.inserts: list[int] = []
        self.expiries: list[int] = []

    def insert(self, stamp: int, group: Key, values: Values, *, timed: bool) -> None:
        began = self._clock()
        self.extent.insert(stamp, group, (*group, *values))
        if timed:
            self.inserts.append(self._clock() - began)

    def expire(self, admission: Admission, *, timed: bool) -> None:
        began = self._clock()
        self.extent.expire(admission.oldest)
        if timed:
            self.expiries.append(self._clock() - began)

    def scan(self) -> float:
        return _median_of(self._clock, lambda: self.extent.scan(*self._places, self._link))


def _kinds(counters: Counters) -> dict[str, int]:
    """Return counters by kind of operation; one that cuts a run also inserts, and comes first."""
    return {
        "split": counters.splits,
        "merge": counters.merges + counters.forward_merges,
        "insert": counters.inserts,
        "detach": counters.detaches,
        "delete": counters.deletes,
    }


def _constants(eager: _Eager, lazy: _Lazy, scans: tuple[float, float], row_bytes: int) -> Constants:
    """Return constants; an operation that did not occur costs as much as the nearest one that did."""
    cost = {kind: _mean(times) for kind, times in eager.by_kind.items()}
    insert = cost.get("insert", cost.get("merge", 0.0))
    delete = cost.get("delete", cost.get("detach", 0.0))
    counters, splits = eager.extent.counters, eager.by_kind.get("split", [])
    late_and_different = len(eager.inserts) * counters.disorder * (1 - counters.coalescing_probability)
    return Constants(
        insert=insert,
        delete=delete,
        merge=cost.get("merge", insert),
        # The model has every sample that is late and differs cut a run; some come between two.
        split=len(splits) * (_mean(splits) - insert) / max(1.0, late_and_different),
        detach=cost.get("detach", delete),
        # What the model counts as reads: bytes of the extent in rows.
        read=scans[0] / max(1.0, eager.extent.bytes(row_bytes, STAMP_BYTES) / row_bytes),
        # Here a sample that joins a run takes no longer than one that begins it.
        coalesce=0.0,
        lazy_insert=_mean(lazy.inserts),
        lazy_delete=_mean(lazy.expiries),
        lazy_read=scans[1] / max(1, len(lazy.extent)),
    )


def _mean(times: Sequence[int]) -> float:
    """Return the mean without the longest hundredth, which are pauses of the process."""
    if not times:
        return 0.0
    kept = sorted(times)[: max(1, len(times) - len(times) // 100)]
    return statistics.fmean(kept)


def _median_of(clock: Clock, scan: Callable[[], object]) -> float:
    taken = []
    for _ in range(SCANS):
        began = clock()
        scan()
        taken.append(clock() - began)
    return statistics.median(taken)
