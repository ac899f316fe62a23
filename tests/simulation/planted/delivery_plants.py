"""Faults that are planted between a proxy's samples and the cluster: spool, numbers of batches, acknowledgements."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from protocols.sealing import seals
from protocols.sealing.seals import COUNTER_BYTES, MARK, SIGNATURE_BYTES
from proxy.errors import StoreError
from proxy.running.delivery_window import Connected, DeliveryEvent, DeliveryInstruction, DeliveryWindow, Send
from proxy.running.service import ProxyService
from proxy.running.stream_deliveries import Notice, StreamDeliveries
from proxy.storage import spool
from proxy.storage.spool import Spool
from tests.simulation.planted.plant import Plants, Simulation, put

if TYPE_CHECKING:
    from pathlib import Path

    from protocols.wire.batches import Ack

PLANTS = Plants(Simulation.PROXIES)


@PLANTS.planted("spool deleted when sent", "a batch is deleted only when the cluster has acknowledged it")
def _deleted_when_sent() -> None:
    handle = StreamDeliveries._handle

    def handled(self: StreamDeliveries, stream: str, event: DeliveryEvent, now_us: int) -> list[Notice]:
        before = len(self._to_send)
        notices = handle(self, stream, event, now_us)
        if len(self._to_send) > before:
            self._deletions[stream] = self.windows[stream].sent
        return notices

    put(StreamDeliveries, "_handle", handled)


@PLANTS.planted("spool not synced", "a batch that was spooled survives a power cut")
def _spool_not_synced() -> None:
    open_database = spool.open_database  # type: ignore[attr-defined] # imported there

    def unsynced(path: Path, kind: Any, *, durable: bool) -> Any:
        del durable
        return open_database(path, kind, durable=False)

    put(spool, "open_database", unsynced)


@PLANTS.planted("batches stored without progress", "numbers of batches and watermarks go on after a restart")
def _without_progress() -> None:
    append = Spool.append
    put(Spool, "append", lambda self, batches, _=(), *more, **also: append(self, batches, (), *more, **also))


@PLANTS.planted("failed write given up", "a write that failed is made again, with the same batches")
def _failed_write_given_up() -> None:
    flush = ProxyService._flush_batches

    async def given_up(self: ProxyService) -> None:
        try:
            await flush(self)
        except StoreError:
            self._unwritten.written()
            raise

    put(ProxyService, "_flush_batches", given_up)


@PLANTS.planted("batches sent once", "what is not acknowledged is sent again, also over a new connection")
def _sent_once() -> None:
    handle = DeliveryWindow.handle

    def handled(self: DeliveryWindow, event: DeliveryEvent, now_us: int) -> list[DeliveryInstruction]:
        sent = self.sent
        found = handle(self, event, now_us)
        if isinstance(event, Connected):
            self.sent = max(sent, self.sent)
            return [each for each in found if not isinstance(each, Send) or each.sequence > sent]
        return found

    put(DeliveryWindow, "handle", handled)
    put(DeliveryWindow, "_go_back", lambda *_: [])
    put(DeliveryWindow, "_look_whether_silent", lambda *_: [])


@PLANTS.planted("lost batches not sent again", "what the broker loses is sent again, over the same connection")
def _lost_not_sent_again() -> None:
    put(DeliveryWindow, "_go_back", lambda *_: [])
    put(DeliveryWindow, "_look_whether_silent", lambda *_: [])


@PLANTS.planted("acknowledgement of another spool obeyed", "only acknowledgements of the proxy's own spool count")
def _foreign_acknowledgement() -> None:
    acknowledged = StreamDeliveries.acknowledged

    def obeyed(self: StreamDeliveries, ack: Ack, now_us: int) -> list[Notice]:
        return acknowledged(self, _as_own(self, ack), now_us)

    put(StreamDeliveries, "acknowledged", obeyed)


@PLANTS.planted("forged acknowledgement obeyed", "with keys, only what the cluster has signed counts")
def _forged_acknowledgement() -> None:
    put(seals, "open_sealed", lambda key, topic, payload: (next(_COUNTER), _unsealed(payload)))


_COUNTER = count(2**63)


def _unsealed(payload: bytes) -> bytes:
    sealed = payload[:1] == bytes([MARK])
    return payload[1 + COUNTER_BYTES : -SIGNATURE_BYTES] if sealed else payload


def _as_own(deliveries: StreamDeliveries, ack: Ack) -> Ack:
    from msgspec.structs import replace as replaced

    return replaced(ack, proxy=deliveries._proxy, epoch=deliveries._epoch, cluster=deliveries.cluster)


@PLANTS.planted("acknowledgement of another cluster obeyed", "only acknowledgements of the proxy's own cluster count")
def _acknowledgement_of_another_cluster() -> None:
    acknowledged = StreamDeliveries.acknowledged

    def obeyed(self: StreamDeliveries, ack: Ack, now_us: int) -> list[Notice]:
        from msgspec.structs import replace as replaced

        return acknowledged(self, replaced(ack, cluster=self.cluster or ack.cluster), now_us)

    put(StreamDeliveries, "acknowledged", obeyed)
