"""Stores one stream: collects admitted batches, commits them together, then acknowledges."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import StorageError
from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.ingest.arrow_batches import batch_mismatch, split_late, to_arrow
from cluster.storage.appending import OutcomeUnknownError
from cluster.storage.stream_tables import StreamPosition, StreamTable
from cluster.storage.synced_files import Troubles
from protocols.errors import SchemaError
from protocols.event_log import get_logger
from protocols.wire.batches import START_COLUMN, Ack, Batch, Rejection, Resumption
from protocols.wire.frames import VERSION

log = get_logger(__name__)

MAX_WAITING = 256
"""Batches that may wait for a commit; more are left to the proxy, which sends them again."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""As above: the rows of a stream that wait for a commit, beside those of the commit that is being made."""


@dataclass(slots=True)
class _Waiting:
    rows: list[pa.Table] = field(default_factory=list)
    sequences: dict[tuple[str, str], int] = field(default_factory=dict)
    rejected: dict[tuple[str, str], list[Rejection]] = field(default_factory=dict)
    count: int = 0
    bytes: int = 0
    lost: int = 0
    """Batches that will never come."""


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """A commit whose outcome is unknown."""

    waiting: _Waiting
    position: StreamPosition


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
        self._waiting = _Waiting()
        self._in_doubt: _InDoubt | None = None
        self._work = asyncio.Event()
        self.last_rejection: str | None = None
        """Why samples were last rejected."""

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self.table.schema.name

    @property
    def waiting_bytes(self) -> int:
        """Bytes in memory that wait for the next commit."""
        return self._waiting.bytes

    async def receive(self, batch: Batch, *, offer_fits: bool = True) -> None:
        """Admit a batch; it is acknowledged once it is stored.

        Parameters
        ----------
        batch
            Of this stream.
        offer_fits
            Whether its proxy offers the stream as it is declared: then a batch that does not fit is of an older offer
            and never will. If not, such a batch is left to the proxy until the offer or the declaration changes.
        """
        admission, lane = self.admission, (batch.proxy, batch.epoch)
        if self._in_doubt is not None:
            return  # It is unknown what is stored, and so which batch is next.
        if not admission.has_lane(*lane):
            admission.open_lane(*lane, self.table.last_sequence(*lane))
        admission.proxy_active(batch.proxy, self._clock())
        if self._waiting.count >= MAX_WAITING or self._waiting.bytes >= MAX_WAITING_BYTES:
            admission.counters.deferred += 1
            return  # Not acknowledged, so the proxy keeps it and sends it again.
        mismatch = None if offer_fits else batch_mismatch(batch, self.table.schema)
        held_before = admission.holds(batch.proxy)
        verdict = admission.decide(*lane, batch.sequence, fits=mismatch is None)
        if verdict is Verdict.HOLD:
            if mismatch is not None and not held_before:
                self._quarantine("batch", mismatch, f"{batch.proxy}/{batch.stream}", b"")
                log.warning("batch is left to its proxy", stream=self.stream, proxy=batch.proxy, reason=mismatch)
            return
        if verdict is not Verdict.ACCEPT:
            await self._acknowledge(self._ack(lane))
            return
        self._admit(batch, lane)
        self._work.set()

    async def resume(self, resumption: Resumption) -> None:
        """Continue after lost batches, acknowledged or not: log and count them, and expect the next one."""
        lane = (resumption.proxy, resumption.epoch)
        if self._in_doubt is not None:
            return
        if not self.admission.has_lane(*lane):
            self.admission.open_lane(*lane, self.table.last_sequence(*lane))
        lost = self.admission.resume(*lane, resumption.first)
        if not lost:
            await self._acknowledge(self._ack(lane))
            return
        reason = f"{lost:,} batches before {resumption.first} are lost: their proxy does not have them any more"
        log.error("batches are lost", stream=self.stream, proxy=resumption.proxy, reason=reason)
        self._quarantine("lost batches", reason, f"{resumption.proxy}/{self.stream}", b"")
        self._waiting.sequences[lane] = resumption.first - 1
        self._waiting.lost += lost
        self._work.set()

    def proxy_alive(self, proxy: str) -> None:
        """Note that a proxy is connected, though it may have nothing to send."""
        self.admission.proxy_active(proxy, self._clock())

    async def run(self) -> None:
        """Commit waiting batches, until cancelled."""
        while True:
            # Not with wait_for: it may miss a cancellation that comes together with work, and the cluster never ends.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._work.wait()
            began = self._clock()
            # For busy streams too, or a proxy that is silent stalls them.
            moved = self.admission.exclude_silent_proxies(began)
            if not moved and not self._work.is_set() and self._in_doubt is None:
                continue
            await self.commit()
            await asyncio.sleep(max(0.0, self._interval - (self._clock() - began)))

    async def commit(self) -> None:
        """Store all waiting batches in one commit and acknowledge them."""
        if self._in_doubt is not None and not await self._resolve(self._in_doubt):
            return
        waiting, self._waiting = self._waiting, _Waiting()
        self._work.clear()
        position = self.admission.current_position()
        try:
            await asyncio.to_thread(self.table.append, waiting.rows, position, waiting.sequences)
        except OutcomeUnknownError as error:
            log.warning("the outcome of a commit is unknown", stream=self.stream, error=str(error))
            self._in_doubt = _InDoubt(waiting, position)
            return
        except StorageError as error:
            # Nothing is acknowledged: the proxies still have all of it and send it again.
            self._troubles.note("commit", error.message)
            self.admission.roll_back()
            self._waiting = _Waiting()
            return
        await self._committed(waiting, position)

    async def _resolve(self, doubt: _InDoubt) -> bool:
        """Check whether a commit succeeded; return False if that is still unknown."""
        try:
            succeeded = await asyncio.to_thread(self.table.holds, doubt.waiting.sequences)
        except StorageError:
            return False
        self._in_doubt = None
        log.warning("outcome of a commit is known", stream=self.stream, made=succeeded)
        if succeeded:
            await self._committed(doubt.waiting, doubt.position)
        # What came after the commit in doubt was not kept.
        self.admission.roll_back()
        self._waiting = _Waiting()
        return True

    async def _committed(self, waiting: _Waiting, position: StreamPosition) -> None:
        self.admission.committed(waiting.sequences, position)
        self.admission.counters.lost_batches += waiting.lost
        for lane in waiting.sequences:
            await self._acknowledge(self._ack(lane, tuple(waiting.rejected.get(lane, ()))))

    def _admit(self, batch: Batch, lane: tuple[str, str]) -> None:
        waiting, counters = self._waiting, self.admission.counters
        waiting.count += 1
        waiting.sequences[lane] = batch.sequence
        try:
            rows = to_arrow(batch, self.table.schema)
        except SchemaError as error:
            # Its sequence number counts as stored: a batch that never fits must not block those after it.
            counters.rejected += 1
            counters.rejected_rows += batch.rows
            self.last_rejection = error.message
            waiting.rejected.setdefault(lane, []).append(Rejection(batch.sequence, error.message[:512]))
            self._quarantine("batch", error.message, f"{batch.proxy}/{batch.stream}", b"")
            log.warning("batch rejected", stream=self.stream, proxy=batch.proxy, reason=error.message)
            return
        in_time, late = split_late(rows, self.admission.watermark_us)
        if late.num_rows:
            counters.late_rows += late.num_rows
            for row in late.slice(0, 10).to_pylist():
                reason = f"stamped before the stream's watermark {self.admission.watermark_us}"
                self._quarantine("late sample", reason, f"{batch.proxy}/{batch.stream}", repr(row).encode())
        if in_time.num_rows:
            counters.rows += in_time.num_rows
            waiting.rows.append(in_time)
            waiting.bytes += in_time.nbytes
            self.admission.note_stamp(pc.max(in_time.column(START_COLUMN)).as_py())
        self.admission.advance(batch.proxy, batch.watermark_us, sampling=batch.sampling, now_seconds=self._clock())

    def _ack(self, lane: tuple[str, str], rejected: tuple[Rejection, ...] = ()) -> Ack:
        proxy, epoch = lane
        return Ack(VERSION, proxy, epoch, self.stream, self.admission.stored(*lane), rejected[:64])
