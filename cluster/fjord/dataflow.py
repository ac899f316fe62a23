"""A dataflow: operators, the queues between them, and the scheduler that runs them until no input is left.

**Queues: one input operator, one output operator, push or pull; an operator does not see which it has.**

A push queue holds what was put until it is taken. A pull queue holds nothing: taking from it makes its producer work.
Both answer "nothing yet" with None (papers/fjords.md section 2).

Today scans are read through pull queues, and all operators are connected by push queues of the policy
:attr:`WhenFull.WAIT`: what they read is stored, and nothing may be lost. No queue drops rows yet.
:attr:`WhenFull.DROP_OLDEST` is for quality of service: a query that prefers recent answers to complete ones will have
queues that drop, and the rows dropped will be part of its answer's quality.

**The contract of queues, and its check.**

    batch 1    rows 10 11 14            watermark 12
    batch 2    rows 12 13 30            watermark 12      after 14: no order from batch to batch is guaranteed,
    batch 3    no rows                  watermark 20      but no row before a watermark announced earlier
    batch 4    rows 20 20               watermark 25

Start order over all batches would let one group with a long answer delay every other one. So an operator has to be
right under exactly this contract; one that needs more sorts its rows itself
(:class:`~cluster.fjord.operators.ordered_output.StartOrdered`).

**Schedulers: which operator makes its next transition.**

Every dataflow uses :class:`RoundRobin` today, as the paper's system did (papers/fjords.md section 2): it runs until no
operator has input, so that the order matters little. :class:`Tickets` charges operators for the time that they use. It
is for quality of service: when there is less time than work, operators of queries with a higher priority will hold more
tickets, and no query's operators will be starved.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.at_work import NOW
from cluster.fjord.batch import ALWAYS, END, START, Batch
from cluster.fjord.operator import Operator
from protocols.errors import FjordError


class WhenFull(Enum):
    """What a bounded queue does with one batch too many."""

    WAIT = "wait"
    """Its producer is not run until there is room: nothing is lost. For queues whose input can be read again."""
    DROP_OLDEST = "drop oldest"
    """The rows that have waited longest are dropped and counted; their watermark stays. No query uses this yet."""


@dataclass(slots=True)
class QueueCounters:
    """What happened in a queue since it was made; rows in and out are counted by its operators."""

    rows_dropped: int = 0
    deepest: int = 0
    """Most batches that waited in it."""


class Queue(ABC):
    """The consumer's side of every queue."""

    def __init__(self) -> None:
        self.counters = QueueCounters()

    @abstractmethod
    def get(self) -> Batch | None:
        """Return the next batch, or None if there is nothing now. Never blocks."""

    @property
    @abstractmethod
    def pending(self) -> bool:
        """True if `get` may find something."""

    def wake(self) -> None:  # noqa: B027 - most queues need not be woken
        """Note that time has passed: a source that had nothing may have something again."""


class PushQueue(Queue):
    """Filled by its producer, emptied by its consumer.

    Parameters
    ----------
    capacity
        Batches that may wait.
    when_full
        What happens to one more.
    """

    def __init__(self, *, capacity: int = 64, when_full: WhenFull = WhenFull.WAIT) -> None:
        super().__init__()
        if capacity < 1:
            raise PlanError(f"a queue must hold at least one batch, not {capacity}")
        self._capacity = capacity
        self._when_full = when_full
        self._waiting: deque[Batch] = deque()

    @property
    def pending(self) -> bool:
        """True if a batch waits."""
        return bool(self._waiting)

    @property
    def ready(self) -> bool:
        """True if a producer may put one more batch."""
        return self._when_full is WhenFull.DROP_OLDEST or len(self._waiting) < self._capacity

    def put(self, batch: Batch) -> None:
        """Add a batch at the end.

        Raises
        ------
        PlanError
            If the queue is full and its policy is to wait: its producer should not have been run.
        """
        if not self.ready:
            raise PlanError(f"a full queue of {self._capacity} batches was given one more")
        self._waiting.append(batch)
        if len(self._waiting) > self._capacity:
            oldest = self._waiting.popleft()
            self.counters.rows_dropped += oldest.rows.height
            # Rows may go, progress may not: a lost watermark would stall everything downstream.
            following = self._waiting[0]
            self._waiting[0] = Batch(following.rows, max(oldest.watermark_us, following.watermark_us))
        self.counters.deepest = max(self.counters.deepest, len(self._waiting))

    def get(self) -> Batch | None:
        """Return the oldest batch, or None."""
        return self._waiting.popleft() if self._waiting else None


class PullQueue(Queue):
    """Empty until read: a `get` calls down into the producer.

    Parameters
    ----------
    produce
        Returns the producer's next batch, or None if it has nothing now.
    """

    def __init__(self, produce: Callable[[], Batch | None]) -> None:
        super().__init__()
        self._produce = produce
        self._dry = False

    @property
    def pending(self) -> bool:
        """True until the producer has returned nothing."""
        return not self._dry

    def wake(self) -> None:
        """Ask the producer again, although it had nothing."""
        self._dry = False

    def get(self) -> Batch | None:
        """Make the producer work and return what it gives."""
        batch = self._produce()
        self._dry = batch is None
        return batch


class BrokenContractError(PlanError):
    """A batch on a queue violates the contract of queues: answers computed from it might be wrong."""


class QueueContract:
    """Remembers the guarantees given by the batches of one queue.

    The rows of a batch are sorted by start; none starts before a watermark announced earlier; each is valid at some
    instant; the watermark never goes back.
    """

    def __init__(self) -> None:
        self.watermark_us = ALWAYS
        """The last watermark announced."""

    def check(self, batch: Batch, whose: str) -> None:
        """Check one more batch.

        Parameters
        ----------
        batch
            The next one on the queue.
        whose
            Words for the message, such as "operator q1/0 Distinct answered".

        Raises
        ------
        BrokenContractError
            If the batch violates the contract; the message gives the violation.
        """
        fault = self._fault(batch)
        if fault is not None:
            raise BrokenContractError(
                f"{whose} {fault}",
                hint="this is a fault of Fjord itself: the query is stopped because its answers could be wrong",
            )
        self.watermark_us = batch.watermark_us

    def _fault(self, batch: Batch) -> str | None:
        promised_us = self.watermark_us
        if batch.watermark_us < promised_us:
            return f"the watermark {batch.watermark_us} after {promised_us}"
        if batch.empty:
            return None
        starts = batch.rows[START]
        if starts.null_count() or not starts.is_sorted():
            return "rows that are not in the order of their starts"
        if starts[0] < promised_us:
            return f"a row that starts at {starts[0]}, before the watermark {promised_us} announced earlier"
        if not (starts < batch.rows[END]).all(ignore_nulls=False):
            never = batch.rows.filter((pl.col(START) < pl.col(END)).not_().fill_null(value=True))
            return f"a row that is never valid, from {never.item(0, START)} to {never.item(0, END)}"
        return None


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
