"""Queues: one input operator, one output operator, push or pull; an operator does not see which it has.

A push queue holds what was put until it is taken. A pull queue holds nothing: taking from it makes its producer work.
Both answer "nothing yet" with None (papers/fjords.md section 2).

Today scans are read through pull queues, and all operators are connected by push queues of the policy
:attr:`WhenFull.WAIT`: what they read is stored, and nothing may be lost. No queue drops rows yet.
:attr:`WhenFull.DROP_OLDEST` is for quality of service: a query that prefers recent answers to complete ones will have
queues that drop, and the rows dropped will be part of its answer's quality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cluster.errors import PlanError
from cluster.fjord.batch import Batch


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
