"""What of a stream waits for a commit, when one is made, and what follows from its outcome.

Pure. Batches that come while a commit is being made wait for the next one::

    begun ... made         it is acknowledged
    begun ... failed       what is not stored counts as never admitted, also what came meanwhile: proxies send it again
    begun ... unknown      nothing is admitted until it is known which of the two it was

A proxy without an answer sends again at growing intervals only. So lanes whose batches were left to their proxies are
acknowledged, too, as soon as a commit is made: after a failed one another is tried at intervals, with nothing in it if
nothing waits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cluster.ingest.admission import StreamAdmission
from cluster.ingest.arrow_batches import AdmittedRows
from cluster.storage.stream_tables import StreamPosition
from protocols.wire.batches import Rejection

Lane: TypeAlias = tuple[str, str]
"""A proxy, and its epoch."""
ToAcknowledge: TypeAlias = list[tuple[Lane, tuple[Rejection, ...]]]
"""Lanes whose batches are stored for good, and which of these were rejected."""
FIRST_PAUSE_SECONDS: Final = 1.0
"""After a failed commit the next is tried after this time at the latest, after further ones the time doubles."""
LONGEST_PAUSE_SECONDS: Final = 16.0
"""At most so long: proxies alone wait for up to three times as long."""
MOST_LEFT: Final = 65_536
"""Lanes that are remembered as left to their proxies; others send again after a while by themselves."""


@dataclass(slots=True)
class Waiting:
    """What waits for a commit.

    Parameters
    ----------
    admitted
        Rows, as they came.
    sequences
        By lane: the last batch.
    rejected
        By lane: batches whose rows are not stored.
    bytes
        What all of it takes in memory.
    lost
        Batches that will never come.
    """

    admitted: list[AdmittedRows] = field(default_factory=list)
    sequences: dict[Lane, int] = field(default_factory=dict)
    rejected: dict[Lane, list[Rejection]] = field(default_factory=dict)
    bytes: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that is being made: what it stores, and the position of the stream with it."""

    waiting: Waiting
    position: StreamPosition


@dataclass(slots=True)
class CommitCycle:
    """The commits of one stream, one at a time.

    Parameters
    ----------
    admission
        That of the stream: rolled back when a commit fails.
    """

    admission: StreamAdmission
    waiting: Waiting = field(default_factory=Waiting)
    in_doubt: Commit | None = None
    """A commit whose outcome is unknown: until it is known, nothing is admitted and no other begun."""
    _left: set[Lane] = field(default_factory=set)
    _pause_seconds: float = FIRST_PAUSE_SECONDS
    _retry_seconds: float = 0.0
    _moved: bool = False
    """Whether the watermark has moved as a proxy is not waited for now, and no commit has been begun since."""

    def leave(self, lane: Lane) -> None:
        """Note that a batch of a lane was left to its proxy: after the next commit it is asked for."""
        if len(self._left) < MOST_LEFT:
            self._left.add(lane)

    def time_passed(
        self, online: Collection[str], now_seconds: float, *, counted_seconds: float, anew: bool = False
    ) -> bool:
        """Let time pass for the proxies (:meth:`StreamAdmission.time_passed`); return whether a commit is due for it.

        While a commit is in doubt nothing is admitted, so that proxies that are back have no chance to show it.
        """
        if self.in_doubt is not None:
            counted_seconds = 0.0
        moved = self.admission.time_passed(online, now_seconds, counted_seconds=counted_seconds, anew=anew)
        self._moved |= moved
        return moved

    def due(self, now_seconds: float, *, work: bool) -> bool:
        """Return whether a commit is due: for work that waits, one in doubt, or a proxy that is not waited for now.

        Also to find out whether commits succeed again, when one has failed.
        """
        retried = bool(self._left) and now_seconds >= self._retry_seconds
        return self._moved or work or self.in_doubt is not None or retried

    def begin(self) -> Commit:
        """Return a commit of all that waits; raises ValueError while one is in doubt."""
        if self.in_doubt is not None:
            raise ValueError("a commit begins while another is in doubt")
        commit = Commit(self.waiting, self.admission.current_position())
        self.waiting, self._moved = Waiting(), False
        return commit

    def made(self, commit: Commit) -> ToAcknowledge:
        """Note that a commit is on disk; return what to acknowledge, to ask for what was left to proxies too."""
        self.admission.committed(commit.waiting.sequences, commit.position)
        self.admission.counters.lost_batches += commit.waiting.lost
        if commit.waiting.sequences:
            self._pause_seconds = FIRST_PAUSE_SECONDS
        stored = commit.waiting.sequences
        asked = sorted(self._left - stored.keys() - self.waiting.sequences.keys())
        self._left.clear()
        return [(lane, tuple(commit.waiting.rejected.get(lane, ()))) for lane in (*stored, *asked)]

    def failed(self, commit: Commit, now_seconds: float) -> None:
        """Note that a commit was not made: nothing is acknowledged, and the proxies send all of it again."""
        self._roll_back(commit)
        self._retry_seconds = now_seconds + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def unknown(self, commit: Commit) -> None:
        """Note that it is unknown whether a commit was made."""
        self.in_doubt = commit

    def known(self, *, made: bool) -> ToAcknowledge:
        """Note whether the commit in doubt was made; return what to acknowledge."""
        commit, self.in_doubt = self.in_doubt, None
        if commit is None:
            return []
        found = self.made(commit) if made else []
        self._roll_back(commit)  # what came after the commit in doubt was not kept
        return found

    def _roll_back(self, commit: Commit) -> None:
        for waiting in (commit.waiting, self.waiting):
            for lane, sequence in waiting.sequences.items():
                if self.admission.stored(*lane) < sequence:
                    self.leave(lane)
        self.admission.roll_back()
        self.waiting = Waiting()
