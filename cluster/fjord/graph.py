"""A dataflow: operators, the queues between them, run until no input is left."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.at_work import NOW
from cluster.fjord.batch import Batch
from cluster.fjord.contract import BrokenContractError, QueueContract
from cluster.fjord.operator import Operator
from cluster.fjord.queues import PushQueue, Queue
from cluster.fjord.scheduler import RoundRobin, Scheduler
from protocols.errors import FjordError


@dataclass(slots=True)
class OperatorCounters:
    """The counters of an operator since the dataflow was built."""

    transitions: int = 0
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    evicted: int = 0
    """Tuples that were dropped for lack of room."""
    accuracies: float = 0.0
    """Sum of the estimated accuracies of rows after transitions, which were so many:"""
    estimated: int = 0
    companions: int = 0
    """For each row that entered an extent, how many rows of its key there were."""
    neighbours: int = 0
    linked: int = 0
    """Pairs of neighbours that an extent compared, and those of them that are coalesced."""
    broken: int = 0
    """Batches, received or emitted, that violated the contract of queues."""


@dataclass(slots=True)
class RunningOperator:
    """An operator in its place: its queues, counters and contracts.

    Batches of other operators are checked where they are emitted; `received` are the contracts of other inputs.
    """

    name: str
    owner: str
    place: int
    """How many operators were added to the dataflow before it."""
    operator: Operator
    inputs: list[Queue]
    outputs: list[PushQueue] = field(default_factory=list)
    counters: OperatorCounters = field(default_factory=OperatorCounters)
    next_port: int = 0
    beside: list[RunningOperator] = field(default_factory=list, repr=False, compare=False)
    """Those that it takes from, and those that take from it: its transitions give them input, or room."""
    received: dict[int, QueueContract] = field(default_factory=dict)
    emitted: QueueContract = field(default_factory=QueueContract)
    empty: pl.DataFrame | None = None
    """No rows, with the columns of its answers; None before its first transition."""

    def transition(self, port: int, batch: Batch) -> Batch:
        """Make one transition, and check its input and output.

        Raises
        ------
        BrokenContractError
            If either violates the contract of queues.
        """
        try:
            if port in self.received:
                self.received[port].check(batch, f"operator {self.name} of query {self.owner} was given")
            emitted = self.operator.transition(port, batch)
            self.emitted.check(emitted, f"operator {self.name} of query {self.owner} answered")
        except BrokenContractError:
            self.counters.broken += 1
            raise
        if self.empty is None:
            self.empty = emitted.rows.clear()
        return emitted


class OperatorFailedError(FjordError):
    """An operator's transition raised; `owner` is the query it belongs to."""

    def __init__(self, owner: str, name: str, cause: Exception) -> None:
        # Our own errors have messages that need no addition.
        ours = isinstance(cause, FjordError)
        reason = str(cause) if ours else f"operator {name} of query {owner} failed: {type(cause).__name__}: {cause}"
        super().__init__(reason)
        self.owner = owner
        self.name = name


class Dataflow:
    """A graph of operators that is built up, fed, and run to quiescence.

    Parameters
    ----------
    scheduler
        Chooses the next operator; round robin by default.
    clock
        Seconds, for the operators' counters: those of the processor, which other programs do not lengthen; a process
        runs one dataflow at a time, and Polars computes in threads of its own.
    """

    def __init__(self, *, scheduler: Scheduler | None = None, clock: Callable[[], float] = time.process_time) -> None:
        self._scheduler = scheduler or RoundRobin()
        self._clock = clock
        self._placed: list[RunningOperator] = []
        self._failed: dict[str, OperatorFailedError] = {}
        self._warnings: dict[str, OperatorFailedError] = {}

    @property
    def operators(self) -> Sequence[RunningOperator]:
        """All operators with their queues, in the order in which they were added."""
        return self._placed

    @property
    def failures(self) -> dict[str, OperatorFailedError]:
        """By query, the error that made it fail; a failed query's operators do not run any more."""
        return self._failed

    def stop(self, owner: str, reason: str) -> None:
        """Let a query's operators not run, as if they had failed."""
        self._failed[owner] = OperatorFailedError(owner, "", PlanError(reason))

    @property
    def warnings(self) -> dict[str, OperatorFailedError]:
        """By query, what an operator could not do in the last run although it went on."""
        return self._warnings

    def add(
        self, name: str, operator: Operator, inputs: Sequence[Queue | RunningOperator], *, owner: str
    ) -> RunningOperator:
        """Place an operator behind queues or other operators; the latter are connected by a new push queue."""
        if len(inputs) != operator.input_count:
            raise PlanError(f"operator {name} has {operator.input_count} inputs, but was given {len(inputs)}")
        queues: list[Queue] = []
        placed = RunningOperator(name, owner, len(self._placed), operator, queues)
        for source in inputs:
            if isinstance(source, RunningOperator):
                queue = PushQueue()
                source.outputs.append(queue)
                queues.append(queue)
                source.beside.append(placed)
                placed.beside.append(source)
            else:
                queues.append(source)
        if not operator.repairs_disorder:
            placed.received = {port: QueueContract() for port, each in enumerate(inputs) if isinstance(each, Queue)}
        self._placed.append(placed)
        return placed

    def outlet(self, source: RunningOperator) -> PushQueue:
        """Return a new queue that receives an operator's output."""
        queue = PushQueue(capacity=1 << 20)
        source.outputs.append(queue)
        return queue

    def run(self) -> None:
        """Make transitions until no operator has input.

        An operator that raises an error stops its own query only; see :attr:`failures`. A warning stops nothing.
        """
        self._warnings = {}
        for placed in self._placed:
            for queue in placed.inputs:
                queue.wake()
        while ready := self._able():
            failed = len(self._failed)
            while ready and len(self._failed) == failed:
                placed = self._placed[self._scheduler.choose(ready)]
                self._step(placed)
                for each in (placed, *placed.beside):
                    self._note(each, ready)

    def _able(self) -> list[int]:
        """Return the places of operators that can work, in ascending order."""
        return [each.place for each in self._placed if self._can_work(each)]

    def _note(self, placed: RunningOperator, ready: list[int]) -> None:
        """Add an operator to the places in `ready`, or remove it: looking at all takes long where they are many."""
        at = bisect_left(ready, placed.place)
        there = at < len(ready) and ready[at] == placed.place
        able = self._can_work(placed)
        if able and not there:
            ready.insert(at, placed.place)
        elif there and not able:
            del ready[at]

    def _can_work(self, placed: RunningOperator) -> bool:
        return (
            placed.owner not in self._failed
            and any(queue.pending for queue in placed.inputs)
            and all(queue.ready for queue in placed.outputs)
        )

    def _step(self, placed: RunningOperator) -> None:
        port, batch = _take(placed)
        if batch is None:
            return
        operator = placed.operator
        evicted, companions = operator.evictions.tuples, operator.companions
        neighbours, linked = operator.neighbours, operator.linked
        began = self._clock()
        NOW.begin(placed.owner, type(placed.operator).__name__)
        try:
            emitted = placed.transition(port, batch)
        except Exception as error:  # noqa: BLE001 - whatever one query's operator raises must not stop the others
            self._failed[placed.owner] = OperatorFailedError(placed.owner, placed.name, error)
            return
        finally:
            NOW.operator = None
        if placed.operator.warning is not None:
            self._warnings[placed.owner] = OperatorFailedError(placed.owner, placed.name, placed.operator.warning)
        used = self._clock() - began
        self._scheduler.charge(placed.place, used)
        counters = placed.counters
        counters.transitions += 1
        counters.seconds += used
        counters.rows_in += batch.rows.height
        counters.rows_out += emitted.rows.height
        counters.companions += operator.companions - companions
        counters.neighbours += operator.neighbours - neighbours
        counters.linked += operator.linked - linked
        evictions = operator.evictions
        counters.evicted += evictions.tuples - evicted
        if evictions.accuracy is not None:
            counters.accuracies += evictions.accuracy
            counters.estimated += 1
        for queue in placed.outputs:
            queue.put(emitted)


def _take(placed: RunningOperator) -> tuple[int, Batch | None]:
    """Take from the inputs in turn, so that no port starves another."""
    ports = len(placed.inputs)
    for offset in range(ports):
        port = (placed.next_port + offset) % ports
        batch = placed.inputs[port].get()
        if batch is not None:
            placed.next_port = (port + 1) % ports
            return port, batch
    return 0, None
