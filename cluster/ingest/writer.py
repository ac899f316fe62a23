"""Stores one stream: collects admitted batches, commits them together, then acknowledges."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence

from cluster.errors import StorageError
from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.ingest.arrow_batches import AdmittedRows, first_and_last, late_rows, memory_bytes, to_arrow
from cluster.ingest.batch_layouts import Layout, Layouts
from cluster.ingest.commit_cycle import Commit, CommitCycle, ToAcknowledge, Waiting
from cluster.storage.appending import OutcomeUnknownError
from cluster.storage.stream_tables import StreamTable
from cluster.storage.synced_files import Troubles
from protocols.errors import SchemaError
from protocols.event_log import get_logger
from protocols.wire.batches import Ack, Batch, Rejection, Resumption
from protocols.wire.frames import VERSION

log = get_logger(__name__)

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Batches of a stream that may wait for a commit, in memory, beside those of the commit that is being made.

More are left to their proxies, which send them again.
"""
REJECTION_BYTES = 1024
"""What a rejected batch takes of this."""
LATE_KEPT = 10
"""Rows of a batch that go into the quarantine if they come too late."""


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
    silence_seconds
        See :class:`StreamAdmission`.
    troubles
        Counts what could not be written.
    """

    def __init__(
        self,
        table: StreamTable,
        *,
        acknowledge: Callable[[Ack], Awaitable[None]],
        quarantine: Callable[[str, str, str, bytes], None],
        commit_interval_seconds: float = 0.1,
        silence_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        troubles: Troubles | None = None,
    ) -> None:
        self._troubles = troubles or Troubles()
        self.table = table
        self.admission = StreamAdmission(table.position(), silence_seconds)
        self.admission.expect_known_proxies(clock())
        self.admission.note_stamp(table.latest_stamp())
        self._acknowledge = acknowledge
        self._quarantine = quarantine
        self._interval = commit_interval_seconds
        self._clock = clock
        self._layouts = Layouts(table.schema)
        self._commits = CommitCycle(self.admission)
        self._work = asyncio.Event()
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

    def receive(self, batch: Batch, *, offer_fits: bool = True) -> Ack | None:
        """Admit a batch; it is acknowledged once it is stored. Return what to acknowledge now.

        Parameters
        ----------
        batch
            Of this stream.
        offer_fits
            Whether its proxy offers the stream as it is declared: then a batch that does not fit is of an older offer
            and never will. If not, such a batch is left to the proxy until the offer or the declaration changes.
        """
        admission, lane = self.admission, (batch.proxy, batch.epoch)
        if self._commits.in_doubt is not None:
            return None  # It is unknown what is stored, and so which batch is next.
        if not admission.has_lane(*lane):
            admission.open_lane(*lane, self.table.last_sequence(*lane))
        admission.proxy_active(batch.proxy, self._clock())
        if self._waiting.bytes >= MAX_WAITING_BYTES:
            admission.counters.deferred += 1
            return None  # Not acknowledged, so the proxy keeps it and sends it again.
        mismatch = None if offer_fits else self._layouts.mismatch(batch)
        held_before = admission.holds(batch.proxy)
        verdict = admission.decide(*lane, batch.sequence, fits=mismatch is None)
        if verdict is Verdict.HOLD:
            if mismatch is not None and not held_before:
                self._quarantine("batch", mismatch, f"{batch.proxy}/{batch.stream}", b"")
                log.warning("batch is left to its proxy", stream=self.stream, proxy=batch.proxy, reason=mismatch)
            return None
        if verdict is not Verdict.ACCEPT:
            return self._ack(lane) if admission.answers(*lane, self._clock(), self._interval) else None
        self._admit(batch, lane)
        self._work.set()
        return None

    def resume(self, resumption: Resumption) -> Ack | None:
        """Continue after lost batches, acknowledged or not: log and count them, and expect the next one.

        Return what to acknowledge now.
        """
        lane = (resumption.proxy, resumption.epoch)
        if self._commits.in_doubt is not None:
            return None
        if not self.admission.has_lane(*lane):
            self.admission.open_lane(*lane, self.table.last_sequence(*lane))
        lost = self.admission.resume(*lane, resumption.first)
        if not lost:
            return self._ack(lane)
        reason = f"{lost:,} batches before {resumption.first} are lost: their proxy does not have them any more"
        log.error("batches are lost", stream=self.stream, proxy=resumption.proxy, reason=reason)
        self._quarantine("lost batches", reason, f"{resumption.proxy}/{self.stream}", b"")
        self._waiting.sequences[lane] = resumption.first - 1
        self._waiting.lost += lost
        self._work.set()
        return None

    def proxy_alive(self, proxy: str) -> None:
        """Note that a proxy is connected, though it may have nothing to send."""
        self.admission.proxy_active(proxy, self._clock())

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
            self._commits.failed()
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
        return [self._ack(lane, rejected) for lane, rejected in stored]

    async def _send(self, acks: Sequence[Ack]) -> None:
        await asyncio.gather(*map(self._acknowledge, acks))

    def _append(self, commit: Commit) -> None:
        waiting = commit.waiting
        rows = [to_arrow(waiting.admitted, self.table.schema)] if waiting.admitted else []
        self.table.append(rows, commit.position, waiting.sequences)

    def _admit(self, batch: Batch, lane: tuple[str, str]) -> None:
        waiting = self._waiting
        waiting.sequences[lane] = batch.sequence
        if batch.rows:
            try:
                layout = self._layouts.of(batch)
            except SchemaError as error:
                self._reject(batch, lane, error.message)
                return
            self._admit_rows(batch, layout)
        self.admission.advance(batch.proxy, batch.watermark_us, sampling=batch.sampling, now_seconds=self._clock())

    def _admit_rows(self, batch: Batch, layout: Layout) -> None:
        """Let rows wait as they came: they are converted with those of all other batches of the commit."""
        waiting, counters = self._waiting, self.admission.counters
        first_us, last_us = first_and_last(batch, layout)
        watermark_us, rows = self.admission.watermark_us, batch.rows
        if watermark_us is None or first_us >= watermark_us:
            waiting.admitted.append(AdmittedRows(batch.columns, rows, layout))
        else:
            rows -= self._leave_out_late(batch, layout, watermark_us)
            if not rows:
                return
            waiting.admitted.append(AdmittedRows(batch.columns, batch.rows, layout, watermark_us))
        waiting.bytes += memory_bytes(batch)
        counters.rows += rows
        self.admission.note_stamp(last_us)

    def _leave_out_late(self, batch: Batch, layout: Layout, watermark_us: int) -> int:
        """Count rows that come too late, and quarantine the first of them; return how many there are."""
        late = late_rows(batch, layout, self.table.schema, watermark_us)
        count: int = late.num_rows
        self.admission.counters.late_rows += count
        reason = f"stamped before the stream's watermark {watermark_us}"
        for row in late.slice(0, LATE_KEPT).to_pylist():
            self._quarantine("late sample", reason, f"{batch.proxy}/{batch.stream}", repr(row).encode())
        return count

    def _reject(self, batch: Batch, lane: tuple[str, str], reason: str) -> None:
        """Reject a batch for good: its number counts as stored, or it would block those after it."""
        counters = self.admission.counters
        counters.rejected += 1
        counters.rejected_rows += batch.rows
        self.last_rejection = reason
        self._waiting.bytes += REJECTION_BYTES
        self._waiting.rejected.setdefault(lane, []).append(Rejection(batch.sequence, reason[:512]))
        self._quarantine("batch", reason, f"{batch.proxy}/{batch.stream}", b"")
        log.warning("batch rejected", stream=self.stream, proxy=batch.proxy, reason=reason)

    def _ack(self, lane: tuple[str, str], rejected: tuple[Rejection, ...] = ()) -> Ack:
        proxy, epoch = lane
        return Ack(VERSION, proxy, epoch, self.stream, self.admission.stored(*lane), rejected[:64])
