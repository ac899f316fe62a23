"""What a flush writes to the spool: what could not be written before, else what the fleet cuts now.

Pure. Batches are numbered when they are cut, so those of a failed write must be written before any other::

    cut 1 2 --> failed    1 2 --> 1 written    2 --> written    cut 3 --> ...      a full spool: nothing is cut
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from proxy.fleet.batching import CutBatch
from proxy.fleet.fleet import Fleet
from proxy.records.waiting_tuples import MotePosition
from proxy.running.flush_schedule import FlushSchedule
from proxy.storage.spool import NO_STATES

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
