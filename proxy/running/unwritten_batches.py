"""When waiting tuples are cut into batches, and what a flush writes: what could not be written before comes first.

**What a flush writes to the spool: what could not be written before, else what the fleet cuts now.**

Batches are numbered when they are cut, so those of a failed write must be written before any other::

    cut 1 2 --> failed    1 2 --> 1 written    2 --> written    cut 3 --> ...      a full spool: nothing is cut
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.fleet.batching import CutBatch
from proxy.fleet.fleet import Fleet
from proxy.records.waiting_tuples import MotePosition
from proxy.storage.spool import NO_STATES

POSITIONS_EVERY_US = 30_000_000
"""How often the positions of motes are written, at least when a batch is: they spare questions after a restart."""


ENOUGH_UNACKNOWLEDGED = 8
"""With fewer, a broker does not wait for acknowledgements: Mosquitto waits from 20 on, unless it has another limit."""
STALL_SECONDS = 0.004
"""After so long without a message it may."""


@dataclass(slots=True)
class FlushSchedule:
    """The schedule of a proxy's flushes.

    Parameters
    ----------
    longest_seconds
        How long a tuple waits for its batch, at most.
    positions_us
        When the positions of motes were written last, by the radio's clock.
    """

    longest_seconds: float
    positions_us: int
    _waiting_since: float | None = None
    """When the first of the tuples came that wait for a batch, in seconds of a clock that never goes back."""
    _has_cut: bool = False
    """Whether the last flush had a batch to cut: then the next one waits for as long as the settings say."""
    _held_long_enough: bool = False
    _stalls_at: float | None = None
    """When the broker seems to wait for acknowledgements; None if it need not."""

    def received(self, now: float, *, waits: bool) -> None:
        """Note that messages were received, and whether tuples wait for a batch since."""
        if self._waiting_since is None and waits:
            self._waiting_since = now

    def unacknowledged(self, now: float, count: int) -> None:
        """Note how many messages of devices the broker has sent that are not acknowledged, as another has come.

        A broker that sends no more may do so because it has sent as many as it may: then a flush is due.
        """
        self._stalls_at = now + STALL_SECONDS if count >= ENOUGH_UNACKNOWLEDGED else None

    def pause_left(self, until: float, now: float) -> float:
        """Return the seconds that a pause before the next flush still lasts, given its end."""
        return (until if self._stalls_at is None else min(until, self._stalls_at)) - now

    def seconds_left(self, began: float, now: float, *, complete: bool) -> float:
        """Return the seconds until the next flush; 0 or less if it is due.

        Parameters
        ----------
        began
            When the wait for it began.
        now
            The present, by the same clock.
        complete
            Whether tuples wait, and no mote is expected to send more of them.
        """
        if complete:
            return 0.0
        first = began if self._waiting_since is None else self._waiting_since
        return self.pause_left(first + self.longest_seconds, now)

    def cut(self, *, batches: bool) -> None:
        """Note that what waited was cut, and whether that made batches."""
        self._waiting_since = None
        self._has_cut = batches

    def pauses(self, *, waits: bool, unwritten: bool) -> bool:
        """Return whether there is a pause before the next flush: batches become larger, and a full disk is spared."""
        return self._has_cut or waits or unwritten

    def takes_positions(self, now_us: int, *, stopping: bool) -> bool:
        """Return whether the positions of motes are to be written now; if so, they are next due later."""
        due = stopping or now_us - self.positions_us >= POSITIONS_EVERY_US
        if due:
            self.positions_us = now_us
        return due

    def holds_back(self, *, flushing: bool, nearly_full: bool) -> bool:
        """Return whether messages stay at the broker until the present flush has made room."""
        return flushing and nearly_full and not self._held_long_enough

    def held_long_enough(self) -> None:
        """Note that the present flush takes too long to wait for it."""
        self._held_long_enough = True

    def flushed(self) -> None:
        """Note the end of a flush, also of one that could not write."""
        self._stalls_at = None
        self._held_long_enough = False


ChangedStates = Callable[[Sequence[CutBatch], Sequence[MotePosition]], Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Write:
    """Write batches, positions and states of motes, and until when samples of them are missing.

    Each batch is written in one transaction.
    """

    batches: Sequence[CutBatch]
    positions: Sequence[MotePosition]
    losses: Mapping[str, int]
    states: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpoolFull:
    """Write nothing, as the spool is full: tuples wait in the bounded queues of their streams."""


class UnwrittenBatches:
    """What is not in the spool yet.

    Parameters
    ----------
    fleet
        Cuts batches.
    schedule
        When batches are cut, and positions are due.
    most_spool_bytes
        The spool is full from this size on.
    changed_states
        Returns what drivers keep of the motes of batches and positions, where that has changed since the last time.
    """

    def __init__(
        self,
        fleet: Fleet,
        schedule: FlushSchedule,
        most_spool_bytes: int,
        changed_states: ChangedStates = lambda _, __: NO_STATES,
    ) -> None:
        self._fleet = fleet
        self._schedule = schedule
        self._most_spool_bytes = most_spool_bytes
        self._changed_states = changed_states
        self._unwritten = Write((), (), {})

    def __bool__(self) -> bool:
        """Return whether batches of a failed write wait for the next."""
        return bool(self._unwritten.batches)

    def next(self, radio_us: int, *, spool_bytes: int, stopping: bool) -> Write | SpoolFull | None:
        """Return what to write now; None if there is nothing.

        Parameters
        ----------
        radio_us
            Radio clock now.
        spool_bytes
            The size of the spool's files, without what can be used again.
        stopping
            Whether this is the last flush.
        """
        if self._unwritten.batches:
            return self._unwritten
        if spool_bytes >= self._most_spool_bytes:
            return SpoolFull()
        batches, positions = self._fleet.cut(radio_us), self._unwritten.positions
        self._schedule.cut(batches=bool(batches))
        if self._schedule.takes_positions(radio_us, stopping=stopping):
            positions = self._fleet.positions()
        # What a mote has not sent must not be forgotten by a restart behind a position that is stored now.
        losses = {**self._unwritten.losses, **self._fleet.new_losses()}
        # No tuples wait any more: what drivers keep is as of all tuples that are in these batches, and before.
        states = {**self._unwritten.states, **self._changed_states(batches, positions)}
        self._unwritten = Write(batches, positions, losses, states)
        return self._unwritten if batches or positions else None

    def written(self, batches: int | None = None) -> None:
        """Note that the last :class:`Write` is on disk; of one that failed, only the first batches."""
        if batches is None:
            self._unwritten = Write((), (), {})
        elif batches:
            left = self._unwritten
            self._unwritten = Write(left.batches[batches:], left.positions, left.losses, left.states)
