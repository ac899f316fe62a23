"""What operators and queues have done, as numbers that can be sent, added up and shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from cluster.fjord.dataflow import RunningOperator
from cluster.physical.nodes import Fragment, PhysicalPlan, Shed, Work
from cluster.physical.operations import KeptExtent, Sample

REPORT_EVERY_SECONDS = 1.0
"""A worker reports counters no more often; one that dies takes some of them along, but never an answer."""


class Totals(msgspec.Struct, frozen=True):
    """What one operator and its input queues did.

    Parameters
    ----------
    owner
        Identity of the part of the plan it belongs to.
    transitions
        How often it was run.
    rows_in, rows_out
        Rows it took and emitted.
    seconds
        Processor time it took, to save its state included.
    deepest
        Most batches that waited in one of its input queues.
    dropped
        Rows its input queues dropped because they were full.
    broken
        Batches that it took or emitted and that broke the contract of queues.
    evicted
        Tuples that it dropped for lack of room (``KEEP``).
    accuracies, estimated
        Sum of the accuracies of its rows, each estimated after a transition, and how many.
    companions
        For each row that entered it, if it is an extent: how many rows of its key there were, with itself.
    neighbours, linked
        Pairs of neighbours that it compared, if it is an extent, and those of them that are coalesced.
    """

    owner: str
    transitions: int = 0
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    deepest: int = 0
    dropped: int = 0
    broken: int = 0
    evicted: int = 0
    accuracies: float = 0.0
    estimated: int = 0
    companions: int = 0
    neighbours: int = 0
    linked: int = 0

    def plus(self, other: Totals) -> Totals:
        """Return both together."""
        return Totals(
            self.owner,
            self.transitions + other.transitions,
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.seconds + other.seconds,
            max(self.deepest, other.deepest),
            self.dropped + other.dropped,
            self.broken + other.broken,
            self.evicted + other.evicted,
            self.accuracies + other.accuracies,
            self.estimated + other.estimated,
            self.companions + other.companions,
            self.neighbours + other.neighbours,
            self.linked + other.linked,
        )

    def minus(self, earlier: Totals) -> Totals:
        """Return what came since `earlier`."""
        return Totals(
            self.owner,
            self.transitions - earlier.transitions,
            self.rows_in - earlier.rows_in,
            self.rows_out - earlier.rows_out,
            self.seconds - earlier.seconds,
            self.deepest,
            self.dropped - earlier.dropped,
            self.broken - earlier.broken,
            self.evicted - earlier.evicted,
            self.accuracies - earlier.accuracies,
            self.estimated - earlier.estimated,
            self.companions - earlier.companions,
            self.neighbours - earlier.neighbours,
            self.linked - earlier.linked,
        )


Counters = dict[str, Totals]
"""By name of the operator."""


def counters_of(operators: Iterable[RunningOperator]) -> Counters:
    """Return what operators have done since their dataflow was built."""
    return {
        placed.name: Totals(
            placed.owner,
            placed.counters.transitions,
            placed.counters.rows_in,
            placed.counters.rows_out,
            placed.counters.seconds,
            max((queue.counters.deepest for queue in placed.inputs), default=0),
            sum(queue.counters.rows_dropped for queue in placed.inputs),
            placed.counters.broken,
            placed.counters.evicted,
            placed.counters.accuracies,
            placed.counters.estimated,
            placed.counters.companions,
            placed.counters.neighbours,
            placed.counters.linked,
        )
        for placed in operators
    }


def since(now: Mapping[str, Totals], earlier: Mapping[str, Totals]) -> Counters:
    """Return what was done between two readings; operators that did nothing are left out."""
    found = {name: totals.minus(earlier[name]) if name in earlier else totals for name, totals in now.items()}
    return {name: totals for name, totals in found.items() if totals.transitions or totals.broken}


def added(one: Mapping[str, Totals], other: Mapping[str, Totals]) -> Counters:
    """Return both together."""
    together = dict(one)
    for name, totals in other.items():
        together[name] = together[name].plus(totals) if name in together else totals
    return together


def summed(counters: Iterable[Mapping[str, Totals]]) -> Counters:
    """Return all together."""
    together: Counters = {}
    for each in counters:
        together = added(together, each)
    return together


class CounterReports:
    """What operators did and what has not been reported: that is done now and then, not in every micro-batch.

    Parameters
    ----------
    clock
        Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: Counters = {}
        self._reported_at = clock()

    @property
    def due(self) -> bool:
        """Whether it is time for a report."""
        return self._clock() - self._reported_at >= REPORT_EVERY_SECONDS

    def add(self, counters: Mapping[str, Totals]) -> None:
        """Add what operators did."""
        self._waiting = added(self._waiting, counters)

    def report(self) -> Counters:
        """Return what operators did since the last report."""
        reported, self._waiting, self._reported_at = self._waiting, {}, self._clock()
        return reported


def owners_of(plan: PhysicalPlan) -> frozenset[str]:
    """Return the owners of all operators of a plan: its fragments, and the scans of its streams."""
    return frozenset(plan.by_identity).union(map(scan_owner, plan.streams))


def scan_owner(stream: str) -> str:
    """Return the owner of the operators that fragments share over a stream."""
    return f"stream {stream}"


def work_of(plan: PhysicalPlan, counters: Mapping[str, Totals]) -> dict[str, Work]:
    """Return, by fragment, what was done for it: what its pipelines took and what came to its sink."""
    seconds: dict[str, float] = {}
    for totals in counters.values():
        seconds[totals.owner] = seconds.get(totals.owner, 0.0) + totals.seconds
    found: dict[str, Work] = {}
    for fragment in plan.fragments:
        if fragment.identity in seconds:
            samples = (
                counters[each.id]
                for each in fragment.nodes
                if isinstance(each.operation, Sample) and each.id in counters
            )
            last = counters.get(fragment.sink.id) or counters.get(fragment.sink.inputs[0])
            answers = 0 if last is None else last.rows_out
            taken = sum(each.rows_in for each in samples)
            shed = shed_of(fragment, counters)
            found[fragment.identity] = Work(taken, answers, seconds[fragment.identity], shed)
    return found


def shed_of(fragment: Fragment, counters: Mapping[str, Totals]) -> Shed | None:
    """Return what a fragment has dropped for lack of room; None if it may drop nothing."""
    kept = [each.id for each in fragment.nodes if isinstance(each.operation, KeptExtent)]
    if not kept:
        return None
    totals = [counters[name] for name in kept if name in counters]
    estimated = sum(each.estimated for each in totals)
    accuracy = sum(each.accuracies for each in totals) / estimated if estimated else None
    return Shed(sum(each.evicted for each in totals), accuracy)
