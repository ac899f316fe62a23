"""Publishes spooled batches and passes acknowledgements on: the shell around :mod:`proxy.running.stream_deliveries`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from protocols.event_log import get_logger, is_logged
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.batches import Ack, Resumption, without_writer
from protocols.wire.frames import VERSION, encode
from proxy.errors import ContestedError, StoreError
from proxy.running.link_interface import Clocks, Publisher
from proxy.running.metrics import ProxyMetrics
from proxy.running.stream_deliveries import (
    AckRefused,
    BatchesLost,
    BatchesStored,
    BatchRejected,
    Contested,
    Notice,
    PublishBatch,
    PublishResumption,
    ReadsWriters,
    SendingAgain,
    StreamDeliveries,
)
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
    cluster
        The one cluster whose acknowledgements count; empty for the one of the spool, else the first.
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
        cluster: str = "",
    ) -> None:
        self._proxy = proxy
        self._stores = stores
        self._link = link
        self._metrics = metrics
        self._clocks = clocks
        self._wake = asyncio.Event()
        self._streams = StreamDeliveries(
            proxy,
            stores.spool.epoch,
            in_flight=in_flight,
            resend_after_us=resend_after_us,
            cluster=cluster or stores.spool.cluster,
        )
        self._streams.reads_writers = stores.spool.writers_read
        first, writers = stores.spool.first_waiting(), stores.spool.writers()
        for each in stores.spool.progress():
            acknowledged = first.get(each.stream, each.sequence + 1) - 1
            self._streams.restore(
                each.stream,
                acknowledged=acknowledged,
                spooled=each.sequence,
                writers=writers.get(each.stream, ()),
            )

    def spooled(self, batches: Iterable[SpooledBatch], now_us: int) -> None:
        """Note that batches are on disk."""
        for each in batches:
            self._metrics.count("batches_spooled")
            self._note(self._streams.spooled(each.stream, each.sequence, now_us, each.writer))

    def acknowledged(self, ack: Ack, now_us: int) -> None:
        """Handle an acknowledgement of the cluster.

        Raises
        ------
        ContestedError
            The cluster has stored other batches than those of this proxy's data folder, under its name.
        """
        self._note(self._streams.acknowledged(ack, now_us))

    def connected(self, now_us: int) -> None:
        """Note a new connection: send from the last acknowledged batch on."""
        self._note(self._streams.connected(now_us))

    def cluster_began(self, now_us: int) -> None:
        """Note that a cluster has started: it may lack batches published before."""
        self._note(self._streams.cluster_began(now_us))

    def disconnected(self, now_us: int) -> None:
        """Note that the connection is lost."""
        self._note(self._streams.disconnected(now_us))

    def time_passed(self, now_us: int) -> None:
        """Send batches again that are due."""
        self._note(self._streams.time_passed(now_us))

    @property
    def cluster(self) -> str | None:
        """The cluster whose acknowledgements count, as its name and identity; None before the first."""
        return self._streams.cluster

    @property
    def packed(self) -> bool:
        """Whether the cluster has shown that it reads packed batches."""
        return self._streams.packed

    @property
    def reads_writers(self) -> bool:
        """Whether the cluster has shown that it reads the writers of batches."""
        return self._streams.reads_writers

    def take_deletions(self) -> dict[str, int]:
        """Remove and return, by stream, the last batch that can be deleted from the spool."""
        return self._streams.take_deletions()

    def put_back_deletions(self, deletions: Mapping[str, int]) -> None:
        """Put back deletions that failed."""
        self._streams.put_back_deletions(deletions)

    async def send(self, publish_offers: Callable[[], Awaitable[None]]) -> None:
        """Publish the batches that are due, one after another, until the connection breaks.

        Parameters
        ----------
        publish_offers
            Publishes outstanding offers of streams: the cluster needs the present schema before it checks a batch.
        """
        topic = topics.batches(self._proxy)
        while True:
            match self._streams.next():
                case None:
                    self._wake.clear()
                    await self._wake.wait()
                case PublishResumption(stream, first):
                    resumption = Resumption(VERSION, self._proxy, self._stores.spool.epoch, stream, first)
                    await self._link.publish(Message(topics.resumptions(self._proxy), encode(resumption)))
                case PublishBatch(stream, sequence):
                    payload = await self._read(stream, sequence)
                    if payload is not None:
                        await publish_offers()
                        if not self._streams.reads_writers:
                            payload = without_writer(payload)
                        # Quality of service 0: the cluster acknowledges what is on its disk, which no broker can.
                        self._streams.published(stream, sequence, len(payload))
                        await self._link.publish(Message(topic, payload, qos=0))
                        self._metrics.count("batches_sent")

    async def _read(self, stream: str, sequence: int) -> bytes | None:
        """Return the bytes of a batch; None if it is acknowledged meanwhile, or cannot be read."""
        try:
            return await self._stores.in_thread(self._stores.spool.read, stream, sequence)
        except DamagedBatchError as error:
            self._leave_out(error)
        except StoreError as error:
            self._note(self._streams.unreadable(stream, self._clocks.radio()))
            times = self._metrics.count("store_errors")
            if is_logged(times):
                log.error("cannot read a batch", stream=stream, batch=sequence, error=str(error), times=times)  # noqa: TRY400 (explained)
        return None

    def _leave_out(self, error: DamagedBatchError) -> None:
        """Skip a damaged batch: count it, put its bytes into the quarantine, and let the cluster skip it, too."""
        stream, sequence = error.batch.stream, error.batch.sequence
        if not self._streams.awaits(stream, sequence):
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
        self._note(self._streams.damaged(stream, sequence, self._clocks.radio()))

    def _note(self, notices: Iterable[Notice]) -> None:
        """Count and log what was decided, and wake the sender if something is due."""
        for each in notices:
            match each:
                case BatchesLost(stream, first):
                    self._metrics.count("resumptions")
                    log.error("the cluster has lost batches that it acknowledged", stream=stream, resumes_with=first)
                case SendingAgain(stream, first, reason):
                    self._metrics.count("resends", reason)
                    # Of a cluster that is only busy, one batch is sent again, and nothing has to be done about it.
                    show = log.info if reason == "silence" else log.warning
                    show("sending batches again", stream=stream, first=first, reason=reason)
                case BatchRejected(stream, sequence, reason):
                    self._metrics.count("batches_rejected")
                    log.error("cluster rejected a batch", stream=stream, batch=sequence, reason=reason)
                case BatchesStored(_, batches):
                    self._metrics.count("batches_acknowledged", by=batches)
                case AckRefused():
                    self._note_refused(each)
                case Contested(stream, through, spooled):
                    self._metrics.count("acks_refused", "contested")
                    folder = self._stores.spool.path.parent
                    raise ContestedError(folder, self._proxy, stream, through=through, spooled=spooled)
                case ReadsWriters():
                    pass
        if self._streams.due:
            self._wake.set()

    def _note_refused(self, ack: AckRefused) -> None:
        times = self._metrics.count("acks_refused", ack.reason)
        if not is_logged(times):
            return
        if ack.reason == "cluster":
            log.error("an acknowledgement is of another cluster", stream=ack.stream, problem=ack.problem, times=times)
        elif ack.reason in {"epoch", "stream"}:
            log.warning("an acknowledgement is not for this proxy", stream=ack.stream, problem=ack.problem, times=times)
        else:
            log.error("an acknowledgement cannot be right", stream=ack.stream, problem=ack.problem, times=times)
