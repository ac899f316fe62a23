"""Stores one stream: collects admitted batches, commits them together, then acknowledges."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from cluster.errors import StorageError
from cluster.ingest.admission import StreamAdmission, WaitedFor
from cluster.ingest.arrow_batches import to_arrow
from cluster.ingest.batch_reception import (
    ADMITTED,
    AcknowledgeNow,
    BatchReception,
    Commit,
    CommitCycle,
    CommitSoon,
    Decision,
    GiveUpLost,
    Lane,
    LeaveOutLate,
    LeaveToProxy,
    RefuseCopy,
    Reject,
    ToAcknowledge,
    Waiting,
)
from cluster.storage.appending import OutcomeUnknownError
from cluster.storage.stream_tables import StreamTable
from cluster.storage.synced_files import Troubles
from protocols.event_log import SparingLog, get_logger
from protocols.wire.batches import Ack, PackedBatch, Rejection, Resumption
from protocols.wire.frames import VERSION

log = get_logger(__name__)


class StreamWriter:
    """The only writer of one stream's table.

    Parameters
    ----------
    table
        The stream's table.
    acknowledge
        Sends an acknowledgement to its proxy.
    quarantine
        Keeps what was rejected: (kind, reason, origin, content).
    commit_interval_seconds
        Least time between two commits, so that a busy stream does not write a file per batch.
    gone_after
        See :class:`StreamAdmission`.
    troubles
        Counts what could not be written.
    cluster
        Named in acknowledgements; None in none.
    """

    def __init__(
        self,
        table: StreamTable,
        *,
        acknowledge: Callable[[Ack], Awaitable[None]],
        quarantine: Callable[[str, str, str, bytes], None],
        commit_interval_seconds: float = 0.1,
        gone_after: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        troubles: Troubles | None = None,
        cluster: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._troubles = troubles or Troubles()
        self.table = table
        self.admission = StreamAdmission(table.position(), gone_after)
        self.admission.expect_known_proxies(clock())
        self.admission.note_stamp(table.latest_stamp())
        self._acknowledge = acknowledge
        self._quarantine = quarantine
        self._interval = commit_interval_seconds
        self._clock = clock
        self._commits = CommitCycle(self.admission)
        self._reception = BatchReception(table.schema, self._commits, commit_interval_seconds)
        self._work = asyncio.Event()
        self._sparing = SparingLog()
        self.storing = asyncio.Lock()
        """Held while a commit is made, and to let none be made."""
        self.last_rejection: str | None = None
        """Why samples were last rejected."""

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self.table.schema.name

    @property
    def _waiting(self) -> Waiting:
        """What waits for the next commit."""
        return self._commits.waiting

    @property
    def waiting_bytes(self) -> int:
        """Bytes in memory that wait for the next commit."""
        return self._waiting.bytes

    def receive(self, batch: PackedBatch, *, offer_fits: bool = True) -> Ack | None:
        """Admit a batch; it is acknowledged once it is stored. Return what to acknowledge now.

        Parameters
        ----------
        batch
            Of this stream.
        offer_fits
            Whether its proxy offers the stream as it is declared: then a batch that does not fit is of an older offer
            and never will. If not, such a batch is left to the proxy until the offer or the declaration changes.
        """
        lane = (batch.proxy, batch.epoch)
        self._open(lane)
        found = self._reception.receive(batch, self._clock(), offer_fits=offer_fits)
        return self._carry_out(found, lane)

    def resume(self, resumption: Resumption) -> Ack | None:
        """Continue after lost batches, acknowledged or not: log and count them, and expect the next one.

        Return what to acknowledge now.
        """
        lane = (resumption.proxy, resumption.epoch)
        self._open(lane)
        return self._carry_out(self._reception.resume(resumption), lane)

    def time_passed(self, online: Collection[str], *, counted_seconds: float, anew: bool = False) -> None:
        """Let time pass for the proxies; see :meth:`StreamAdmission.time_passed`."""
        if self._commits.time_passed(online, self._clock(), counted_seconds=counted_seconds, anew=anew):
            self._work.set()

    @property
    def waited_for(self) -> WaitedFor | None:
        """The proxy that the stream waits for; None for none."""
        return self.admission.waited_for(self._clock())

    async def run(self) -> None:
        """Commit waiting batches, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            # A busy broker takes its time to confirm acknowledgements: the next commit is made meanwhile.
            sending = tasks.create_task(self._send([]))
            while True:
                # Not with wait_for: it may miss a cancellation that comes together with work, and the cluster never
                # ends.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._work.wait()
                began = self._clock()
                if not self._commits.due(began, work=self._work.is_set()):
                    continue
                acks = await self._store()
                await sending
                sending = tasks.create_task(self._send(acks))
                await asyncio.sleep(max(0.0, self._interval - (self._clock() - began)))

    async def commit(self) -> None:
        """Store all waiting batches in one commit and acknowledge them."""
        await self._send(await self._store())

    async def _store(self) -> list[Ack]:
        """Store all waiting batches in one commit; return what to acknowledge."""
        async with self.storing:
            return await self._store_alone()

    async def _store_alone(self) -> list[Ack]:
        acks: list[Ack] = []
        if self._commits.in_doubt is not None:
            resolved = await self._resolve(self._commits.in_doubt)
            if resolved is None:
                return []
            acks = resolved
        commit = self._commits.begin()
        self._work.clear()
        try:
            await asyncio.to_thread(self._append, commit)
        except OutcomeUnknownError as error:
            log.warning("the outcome of a commit is unknown", stream=self.stream, error=str(error))
            self._commits.unknown(commit)
            return acks
        except StorageError as error:
            self._troubles.note("commit", error.message)
            self._commits.failed(commit, self._clock())
            return acks
        return acks + self._acks(self._commits.made(commit))

    async def _resolve(self, doubt: Commit) -> list[Ack] | None:
        """Check whether a commit succeeded; return what to acknowledge, None if that is still unknown."""
        try:
            made = await asyncio.to_thread(self.table.holds, doubt.waiting.sequences)
        except StorageError:
            return None
        log.warning("outcome of a commit is known", stream=self.stream, made=made)
        return self._acks(self._commits.known(made=made))

    def _acks(self, stored: ToAcknowledge) -> list[Ack]:
        for lane, _ in stored:
            self._open(lane)  # it may be one of which nothing was ever received
        return [self._ack(lane, rejected) for lane, rejected in stored]

    async def _send(self, acks: Sequence[Ack]) -> None:
        await asyncio.gather(*map(self._acknowledge, acks))

    def _append(self, commit: Commit) -> None:
        waiting = commit.waiting
        rows = [to_arrow(waiting.admitted, self.table.schema)] if waiting.admitted else []
        self.table.append(rows, commit.position, waiting.sequences)

    def _open(self, lane: Lane) -> None:
        if self._reception.lacks(lane):
            self.admission.open_lane(*lane, self.table.last_sequence(*lane))

    def _carry_out(self, decisions: Sequence[Decision], lane: Lane) -> Ack | None:
        """Log and quarantine what was decided of a message of a lane; return what to acknowledge now."""
        if decisions is ADMITTED:
            self._work.set()
            return None
        proxy, ack = lane[0], None
        for each in decisions:
            match each:
                case CommitSoon():
                    self._work.set()
                case AcknowledgeNow():
                    ack = self._ack(lane)
                case LeaveToProxy(reason):
                    self._keep("batch", reason, proxy)
                    log.warning("batch is left to its proxy", stream=self.stream, proxy=proxy, reason=reason)
                case Reject(reason):
                    self.last_rejection = reason
                    self._keep("batch", reason, proxy)
                    log.warning("batch rejected", stream=self.stream, proxy=proxy, reason=reason)
                case RefuseCopy():
                    self._contested(proxy, each)
                case LeaveOutLate(reason, rows):
                    for row in rows:
                        self._keep("late sample", reason, proxy, row)
                case GiveUpLost(reason):
                    log.error("batches are lost", stream=self.stream, proxy=proxy, reason=reason)
                    self._keep("lost batches", reason, proxy)
        return ack

    def _contested(self, proxy: str, refused: RefuseCopy) -> None:
        """Report a second process that runs as this proxy, not with each of its batches."""
        if times := self._sparing.due(proxy, self._clock()):
            self._keep("batch", refused.reason, proxy)
            log.error(
                "two processes run as one proxy", proxy=proxy, stream=self.stream, reason=refused.reason, times=times
            )

    def _keep(self, kind: str, reason: str, proxy: str, content: bytes = b"") -> None:
        self._quarantine(kind, reason, f"{proxy}/{self.stream}", content)

    def _ack(self, lane: Lane, rejected: tuple[Rejection, ...] = ()) -> Ack:
        proxy, epoch = lane
        stored, writer = self.admission.stored(*lane), self.admission.writer(*lane)
        return Ack(VERSION, proxy, epoch, self.stream, stored, rejected[:64], self._cluster, packed=True, writer=writer)
