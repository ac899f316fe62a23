"""What becomes of a batch that arrives, what waits for a commit, and when one is made.

**What of a stream waits for a commit, when one is made, and what follows from its outcome.**

Batches that come while a commit is being made wait for the next one::

    begun ... made         it is acknowledged
    begun ... failed       what is not stored counts as never admitted, also what came meanwhile: proxies send it again
    begun ... unknown      nothing is admitted until it is known which of the two it was

A proxy without an answer sends again at growing intervals only. So lanes whose batches were left to their proxies are
acknowledged, too, as soon as a commit is made: after a failed one another is tried at intervals, with nothing in it if
nothing waits.

In this order::

    a commit is in doubt        left to its proxy until the next commit is made, as it is unknown which batch is next
    too much waits in memory    left to its proxy, in the same way
    not the next, or held       answered, but not every one of many; or left to its proxy until it fits the stream
    the next                    waits for a commit, without rows that come too late, or with none if it is malformed
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.ingest.arrow_batches import AdmittedRows, first_and_last, late_rows
from cluster.ingest.batch_layouts import Layout, Layouts
from cluster.storage.stream_tables import LastBatch, StreamPosition
from protocols.errors import SchemaError
from protocols.wire.batches import PackedBatch, Rejection, Resumption
from protocols.wire.streams import StreamSchema

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


MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Batches of a stream that may wait for a commit, in memory, beside those of the commit that is being made.

More are left to their proxies, which send them again.
"""
BATCH_BYTES: Final = 256
"""What a batch takes of this beside its buffer."""
COLUMN_BYTES: Final = 256
"""What a column takes of this, if a batch has others than the one before."""
REJECTION_BYTES: Final = 1024
"""What a rejected batch takes of this."""
LATE_KEPT: Final = 10
"""Rows of a batch that go into the quarantine if they come too late."""
_LONGEST_REASON: Final = 512


@dataclass(frozen=True, slots=True)
class AcknowledgeNow:
    """Acknowledge at once what is stored of the lane."""


@dataclass(frozen=True, slots=True)
class CommitSoon:
    """Something waits for a commit; it is acknowledged after that."""


@dataclass(frozen=True, slots=True)
class LeaveToProxy:
    """From this batch on, those of the proxy stay in its spool, as they do not fit the stream."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """None of the rows of the batch will be stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaveOutLate:
    """Rows come too late; `first` are some of them, as text."""

    reason: str
    first: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class GiveUpLost:
    """Batches will never come."""

    reason: str


@dataclass(frozen=True, slots=True)
class RefuseCopy:
    """The batch is of another process than the one whose batches are stored; both write as the same proxy."""

    sequence: int
    writer: str
    stored_writer: str

    @property
    def reason(self) -> str:
        """Why the batch is refused."""
        return (
            f"batch {self.sequence:,} is of process {self.writer}, and the batches stored before are of process "
            f"{self.stored_writer or 'unknown'}: two proxies run on copies of one data folder"
        )


Decision = AcknowledgeNow | CommitSoon | RefuseCopy | LeaveToProxy | Reject | LeaveOutLate | GiveUpLost
_COMMIT_SOON: Final = CommitSoon()
_ACKNOWLEDGE_NOW: Final = AcknowledgeNow()
ADMITTED: Final[tuple[Decision, ...]] = (_COMMIT_SOON,)
"""What follows from nearly all batches: one object, to be recognised by it."""
_NOTHING: Final[tuple[Decision, ...]] = ()


class BatchReception:
    """The reception of the batches of one stream.

    Parameters
    ----------
    schema
        Of the stream.
    commits
        Its commits, and its admission.
    interval_seconds
        In such a time, few batches that are not the next are answered.
    """

    def __init__(self, schema: StreamSchema, commits: CommitCycle, interval_seconds: float) -> None:
        self._schema = schema
        self._commits = commits
        self._admission = commits.admission
        self._interval = interval_seconds
        self._layouts = Layouts(schema)

    def lacks(self, lane: Lane) -> bool:
        """Return whether the lane is to be opened, with what the table has of it, before its first batch is received.

        While a commit is in doubt it is not: what the table has is not known.
        """
        return not self._admission.has_lane(*lane) and self._commits.in_doubt is None

    def receive(self, batch: PackedBatch, now_seconds: float, *, offer_fits: bool) -> Sequence[Decision]:
        """Decide what becomes of a batch.

        Parameters
        ----------
        batch
            Of this stream.
        now_seconds
            The present, of a clock that never goes back.
        offer_fits
            Whether its proxy offers the stream as it is declared: then a batch that does not fit is of an older offer
            and never will.
        """
        admission, lane = self._admission, (batch.proxy, batch.epoch)
        if self._commits.in_doubt is not None:
            self._commits.leave(lane)
            return []
        admission.proxy_active(batch.proxy, now_seconds)
        if self._commits.waiting.bytes >= MAX_WAITING_BYTES:
            admission.counters.deferred += 1
            self._commits.leave(lane)
            return []
        mismatch = None if offer_fits else self._layouts.mismatch(batch)
        held_before = admission.holds(batch.proxy)
        verdict = admission.decide(
            *lane, batch.sequence, fits=mismatch is None, writer=batch.writer, follows=batch.follows
        )
        if verdict is Verdict.ACCEPT:
            found = self._admit(batch, lane, now_seconds)
            return [*found, _COMMIT_SOON] if found else ADMITTED
        if verdict is Verdict.HOLD:
            return [] if mismatch is None or held_before else [LeaveToProxy(mismatch)]
        answers = admission.answers(*lane, now_seconds, self._interval)
        decided: list[Decision] = [_ACKNOWLEDGE_NOW] if answers else []
        if verdict is Verdict.CONTESTED:
            decided.append(RefuseCopy(batch.sequence, batch.writer.hex(), admission.writer(*lane).hex()))
        return decided

    def resume(self, resumption: Resumption) -> list[Decision]:
        """Decide what to do where a proxy says that batches before one will never come."""
        if self._commits.in_doubt is not None:
            return []
        lane = (resumption.proxy, resumption.epoch)
        lost = self._admission.resume(*lane, resumption.first)
        if not lost:
            return [_ACKNOWLEDGE_NOW]
        self._commits.waiting.sequences[lane] = resumption.first - 1
        self._commits.waiting.lost += lost
        reason = f"{lost:,} batches before {resumption.first} are lost: their proxy does not have them any more"
        return [GiveUpLost(reason), _COMMIT_SOON]

    def _admit(self, batch: PackedBatch, lane: Lane, now_seconds: float) -> Sequence[Decision]:
        self._commits.waiting.sequences[lane] = batch.sequence
        found: Sequence[Decision] = _NOTHING
        last = LastBatch(batch.epoch, batch.sequence, batch.writer.hex()) if batch.writer else None
        if batch.rows:
            try:
                layout = self._layouts.of(batch)
            except SchemaError as error:
                self._admission.note_last(batch.proxy, last)
                return [self._reject(batch, lane, error.message)]
            found = self._admit_rows(batch, layout)
        self._admission.advance(
            batch.proxy, batch.watermark_us, sampling=batch.sampling, now_seconds=now_seconds, last=last
        )
        return found

    def _admit_rows(self, batch: PackedBatch, layout: Layout) -> Sequence[Decision]:
        """Let rows wait as they came: they are converted with those of all other batches of the commit."""
        waiting, counters = self._commits.waiting, self._admission.counters
        first_us, last_us = first_and_last(batch, layout)
        last_layout = waiting.admitted[-1].layout if waiting.admitted else None
        watermark_us, rows = self._admission.watermark_us, batch.rows
        late: Sequence[Decision] = _NOTHING
        if watermark_us is None or first_us >= watermark_us:
            waiting.admitted.append(AdmittedRows(batch.data, rows, layout))
        else:
            too_late = late_rows(batch, layout, self._schema, watermark_us)
            rows -= too_late.num_rows
            self._admission.note_late(batch.proxy, too_late.num_rows)
            first = tuple(repr(row).encode() for row in too_late.slice(0, LATE_KEPT).to_pylist())
            late = [LeaveOutLate(f"stamped before the stream's watermark {watermark_us}", first)]
            if not rows:
                return late
            waiting.admitted.append(AdmittedRows(batch.data, batch.rows, layout, watermark_us))
        waiting.bytes += len(batch.data) + BATCH_BYTES
        if layout is not last_layout:
            waiting.bytes += COLUMN_BYTES * len(layout.buffer.columns)
        counters.rows += rows
        self._admission.note_stamp(last_us)
        return late

    def _reject(self, batch: PackedBatch, lane: Lane, reason: str) -> Reject:
        """Reject a batch for good: its number counts as stored, or it would block those after it."""
        waiting, counters = self._commits.waiting, self._admission.counters
        counters.rejected += 1
        counters.rejected_rows += batch.rows
        waiting.bytes += REJECTION_BYTES
        waiting.rejected.setdefault(lane, []).append(Rejection(batch.sequence, reason[:_LONGEST_REASON]))
        return Reject(reason)
