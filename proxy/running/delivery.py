"""Publishes spooled batches and handles acknowledgements: the shell around :mod:`proxy.running.delivery_window`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from protocols.event_log import get_logger
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.batches import Ack, Resumption
from protocols.wire.frames import VERSION, encode
from proxy.errors import StoreError
from proxy.running.delivery_window import (
    AckReceived,
    BatchDamaged,
    BatchSpooled,
    Connected,
    DeleteThrough,
    DeliveryEvent,
    DeliveryWindow,
    Disconnected,
    ImpossibleAck,
    Resending,
    Resume,
    Send,
    Skip,
    TimePassed,
)
from proxy.running.link_interface import Clocks, Publisher
from proxy.running.metrics import ProxyMetrics
from proxy.storage.quarantine import LONGEST_PAYLOAD_BYTES, RejectedFrame
from proxy.storage.spool import DamagedBatchError, SpooledBatch
from proxy.storage.stores import Stores

log = get_logger(__name__)


class Delivery:
    """Delivery of all streams.

    Parameters
    ----------
    proxy
        Name of the proxy.
    stores
        Hold the batches.
    link
        Publishes them.
    metrics
        Counted there.
    clocks
        Give the time.
    in_flight, resend_after_us
        As in :class:`proxy.running.delivery_window.DeliveryWindow`.
    """

    def __init__(
        self,
        proxy: str,
        stores: Stores,
        link: Publisher,
        metrics: ProxyMetrics,
        clocks: Clocks,
        *,
        in_flight: int,
        resend_after_us: int,
    ) -> None:
        self._proxy = proxy
        self._stores = stores
        self._link = link
        self._metrics = metrics
        self._clocks = clocks
        self._in_flight = in_flight
        self._resend_after_us = resend_after_us
        self._connected = False
        self._to_send: deque[tuple[str, int]] = deque()
        self._to_resume: dict[str, int] = {}
        """By stream, the batch with which the cluster continues, as earlier ones will not arrive."""
        self._wake = asyncio.Event()
        self._deletions: dict[str, int] = {}
        first = stores.spool.first_waiting()
        self.windows = {
            each.stream: self._window(first.get(each.stream, each.sequence + 1) - 1, each.sequence)
            for each in stores.spool.progress()
        }

    def spooled(self, batches: Iterable[SpooledBatch], now_us: int) -> None:
        """Note that batches are on disk."""
        for each in batches:
            self._metrics.count("batches_spooled")
            window = self.windows.get(each.stream)
            if window is None:
                window = self.windows[each.stream] = self._window(each.sequence - 1, each.sequence - 1)
            self._handle(each.stream, window, BatchSpooled(each.sequence), now_us)

    def acknowledged(self, ack: Ack, now_us: int) -> None:
        """Handle an acknowledgement of the cluster."""
        if ack.proxy != self._proxy or ack.epoch != self._stores.spool.epoch:
            self._reject_ack(ack, "epoch", f"is for proxy {ack.proxy!r}, epoch {ack.epoch!r}")
            return
        window = self.windows.get(ack.stream)
        if window is None:
            self._reject_ack(ack, "stream", "is for a stream of which nothing was sent")
            return
        before = window.acknowledged
        for rejection in ack.rejected:
            if before < rejection.sequence <= min(ack.through, window.spooled):
                self._metrics.count("batches_rejected")
                log.error(
                    "cluster rejected a batch", stream=ack.stream, batch=rejection.sequence, reason=rejection.reason
                )
        self._handle(ack.stream, window, AckReceived(ack.through), now_us)
        if window.acknowledged > before:
            self._metrics.count("batches_acknowledged", by=window.acknowledged - before)

    def connected(self, now_us: int) -> None:
        """Note a new connection: send from the last acknowledged batch on."""
        self._connected = True
        self._to_send.clear()
        self._all(Connected(), now_us)

    def cluster_began(self, now_us: int) -> None:
        """Note that a cluster has started: it may lack batches published before."""
        if self._connected:
            self.connected(now_us)

    def disconnected(self, now_us: int) -> None:
        """Note that the connection is lost."""
        self._connected = False
        self._to_send.clear()
        self._all(Disconnected(), now_us)

    def time_passed(self, now_us: int) -> None:
        """Send batches again that are due."""
        self._all(TimePassed(), now_us)

    def take_deletions(self) -> dict[str, int]:
        """Remove and return, by stream, the last batch that can be deleted from the spool."""
        deletions, self._deletions = self._deletions, {}
        return deletions

    async def send(self, publish_offers: Callable[[], Awaitable[None]]) -> None:
        """Publish the batches that are due, one after another, until the connection breaks.

        Parameters
        ----------
        publish_offers
            Publishes outstanding offers of streams: the cluster needs the present schema before it checks a batch.
        """
        topic = topics.batches(self._proxy)
        while True:
            while self._to_resume:
                await self._resume(*self._to_resume.popitem())
            if not self._to_send:
                self._wake.clear()
                await self._wake.wait()
                continue
            stream, sequence = self._to_send.popleft()
            if sequence <= self.windows[stream].acknowledged:
                continue
            try:
                payload = await self._stores.in_thread(self._stores.spool.read, stream, sequence)
            except DamagedBatchError as error:
                self._leave_out(error)
                continue
            except StoreError as error:
                self._put_off(stream, sequence, error)
                continue
            if payload is None:
                continue  # acknowledged meanwhile
            await publish_offers()
            await self._link.publish(Message(topic, payload))
            self._metrics.count("batches_sent")

    def _leave_out(self, error: DamagedBatchError) -> None:
        """Skip a damaged batch: count it, put its bytes into the quarantine, and let the cluster skip it, too."""
        stream, sequence = error.batch.stream, error.batch.sequence
        window = self.windows[stream]
        if sequence <= window.acknowledged:
            return
        self._metrics.count("batches_damaged")
        self._metrics.count("rows_damaged", by=error.batch.rows)
        self._metrics.count("quarantined")
        log.error("a batch is damaged and skipped", stream=stream, batch=sequence, rows=error.batch.rows)
        topic = topics.batches(self._proxy)
        self._stores.quarantine.put(
            RejectedFrame(
                self._clocks.real(), topic, "damaged", error.message, error.batch.payload[:LONGEST_PAYLOAD_BYTES]
            )
        )
        self._to_send = deque(each for each in self._to_send if each[0] != stream or each[1] < sequence)
        self._handle(stream, window, BatchDamaged(sequence), self._clocks.radio())

    def _put_off(self, stream: str, sequence: int, error: StoreError) -> None:
        """Pause a stream whose next batch cannot be read: it is sent again, as it is never acknowledged."""
        self._to_send = deque(each for each in self._to_send if each[0] != stream)
        times = self._metrics.count("store_errors")
        if times & (times - 1) == 0:
            log.error("cannot read a batch", stream=stream, batch=sequence, error=str(error), times=times)

    async def _resume(self, stream: str, first: int) -> None:
        resumption = Resumption(VERSION, self._proxy, self._stores.spool.epoch, stream, first)
        await self._link.publish(Message(topics.resumptions(self._proxy), encode(resumption)))

    def _window(self, acknowledged: int, spooled: int) -> DeliveryWindow:
        return DeliveryWindow(acknowledged, spooled, self._in_flight, self._resend_after_us, connected=self._connected)

    def _all(self, event: DeliveryEvent, now_us: int) -> None:
        for stream, window in self.windows.items():
            self._handle(stream, window, event, now_us)

    def _handle(self, stream: str, window: DeliveryWindow, event: DeliveryEvent, now_us: int) -> None:
        for instruction in window.handle(event, now_us):
            match instruction:
                case Send(sequence):
                    self._to_send.append((stream, sequence))
                case DeleteThrough(sequence):
                    self._deletions[stream] = sequence
                case Resume(first):
                    self._to_resume[stream] = first
                    self._metrics.count("resumptions")
                    log.error("the cluster has lost batches that it acknowledged", stream=stream, resumes_with=first)
                case Skip(sequence):
                    self._to_resume[stream] = sequence + 1
                case Resending(sequence, reason):
                    self._to_send = deque(each for each in self._to_send if each[0] != stream)
                    self._metrics.count("resends", reason)
                    log.warning("sending batches again", stream=stream, first=sequence, reason=reason)
                case ImpossibleAck(through, reason):
                    label = "regressed" if through < window.acknowledged else "ahead"
                    count = self._metrics.count("acks_refused", label)
                    if count & (count - 1) == 0:
                        log.error("an acknowledgement cannot be right", stream=stream, problem=reason, times=count)
        if self._to_send or self._to_resume:
            self._wake.set()

    def _reject_ack(self, ack: Ack, label: str, problem: str) -> None:
        count = self._metrics.count("acks_refused", label)
        if count & (count - 1) == 0:
            log.warning("an acknowledgement is not for this proxy", stream=ack.stream, problem=problem, times=count)
