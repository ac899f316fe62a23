"""What of all streams is published next, which acknowledgements count, and which batches are deleted.

Pure, one per proxy, over a :class:`proxy.running.delivery_window.DeliveryWindow` per stream::

    on disk      a1 a2 a3 a4   b1 b2
    queue        a2 b1 a3 b2          those that their windows let out, as they came; resumptions go before them
    deletions    a1                   what the cluster has acknowledged

The queue holds each batch once at most, and those of a stream in order: when a window begins again, what the queue
holds of its stream is dropped. Batches of a stream that has many bytes on their way wait in it: a broker keeps what its
subscriber does not read, and bounds that by messages only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from protocols.wire.batches import Ack
from proxy.running.delivery_window import (
    AckReceived,
    BatchDamaged,
    BatchSpooled,
    BatchUnreadable,
    Connected,
    DeleteThrough,
    DeliveryEvent,
    DeliveryWindow,
    Disconnected,
    ImpossibleAck,
    Resending,
    Resume,
    Send,
    SendAgain,
    Skip,
    TimePassed,
)

MOST_PUBLISHED_BYTES = 4 * 1024**2
"""Of batches of a stream that are published and not acknowledged, or the first one, if it has more."""


@dataclass(frozen=True, slots=True)
class PublishBatch:
    """Publish a batch."""

    stream: str
    sequence: int


@dataclass(frozen=True, slots=True)
class PublishResumption:
    """Let the cluster continue with batch `first`, as earlier ones will not arrive."""

    stream: str
    first: int


@dataclass(frozen=True, slots=True)
class BatchesLost:
    """The cluster has lost batches that it acknowledged, and is to resume with batch `first`."""

    stream: str
    first: int


@dataclass(frozen=True, slots=True)
class SendingAgain:
    """Batch `first` is published again, and unless `reason` is "silence", those behind it.

    `reason` is as in :class:`proxy.running.delivery_window.Resending`.
    """

    stream: str
    first: int
    reason: str


@dataclass(frozen=True, slots=True)
class BatchRejected:
    """The cluster has rejected a batch for good."""

    stream: str
    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class BatchesStored:
    """The cluster has stored so many batches more."""

    stream: str
    batches: int


@dataclass(frozen=True, slots=True)
class AckRefused:
    """An acknowledgement has changed nothing.

    `reason` is "ahead" or "regressed" if it cannot be right, "epoch" or "stream" if it is not for this proxy, "cluster"
    if it is of another cluster than the one that this proxy obeys.
    """

    stream: str
    reason: str
    problem: str


@dataclass(frozen=True, slots=True)
class Contested:
    """The cluster has stored a batch that another process wrote: this one runs on a copy of its folder.

    `through` is the last that the cluster has, `spooled` the last of this proxy.
    """

    stream: str
    through: int
    spooled: int


@dataclass(frozen=True, slots=True)
class ReadsWriters:
    """The cluster has shown that it reads writers, so batches name theirs from now on."""


ToPublish = PublishBatch | PublishResumption
Notice = BatchesLost | SendingAgain | BatchRejected | BatchesStored | AckRefused | Contested | ReadsWriters


class StreamDeliveries:
    """The delivery of all streams of a proxy.

    Parameters
    ----------
    proxy, epoch
        Its name, and that of its spool: acknowledgements of others do not count.
    in_flight, resend_after_us
        As in :class:`proxy.running.delivery_window.DeliveryWindow`.
    cluster
        The one cluster whose acknowledgements count; None for the first that names itself.
    """

    def __init__(
        self, proxy: str, epoch: str, *, in_flight: int, resend_after_us: int, cluster: str | None = None
    ) -> None:
        self.cluster = cluster
        self.packed = False
        """Whether the last acknowledgement of something new says that the cluster reads packed batches."""
        self.reads_writers = False
        """Whether the cluster has shown that it reads the writers of batches."""
        self.windows: dict[str, DeliveryWindow] = {}
        self._proxy = proxy
        self._epoch = epoch
        self._in_flight = in_flight
        self._resend_after_us = resend_after_us
        self._connected = False
        self._to_send: deque[tuple[str, int]] = deque()
        self._to_resume: dict[str, int] = {}
        """By stream, the batch with which the cluster continues, as earlier ones will not arrive."""
        self._deletions: dict[str, int] = {}
        self._writers: dict[str, list[tuple[int, bytes]]] = {}
        """By stream: the writers of the batches that wait, each with its first."""

    def restore(
        self, stream: str, *, acknowledged: int, spooled: int, writers: Iterable[tuple[int, bytes]] = ()
    ) -> None:
        """Begin with what the spool has: all batches up to `acknowledged` are stored, those up to `spooled` wait.

        `writers` are those of the batches that wait, each with its first.
        """
        self._writers[stream] = list(writers)
        self.windows[stream] = DeliveryWindow(
            acknowledged, spooled, self._in_flight, self._resend_after_us, connected=self._connected
        )

    def spooled(self, stream: str, sequence: int, now_us: int, writer: bytes = b"") -> list[Notice]:
        """Note that a batch is on disk, and which process wrote it."""
        if stream not in self.windows:
            self.restore(stream, acknowledged=sequence - 1, spooled=sequence - 1)
        known = self._writers[stream]
        if not known or known[-1][1] != writer:
            known.append((sequence, writer))
        return self._handle(stream, BatchSpooled(sequence), now_us)

    def acknowledged(self, ack: Ack, now_us: int) -> list[Notice]:
        """Note an acknowledgement of the cluster."""
        if ack.proxy != self._proxy or ack.epoch != self._epoch:
            return [AckRefused(ack.stream, "epoch", f"is for proxy {ack.proxy!r}, epoch {ack.epoch!r}")]
        if self.cluster not in {None, ack.cluster}:
            other = "a cluster that does not name itself" if ack.cluster is None else f"cluster {ack.cluster!r}"
            return [AckRefused(ack.stream, "cluster", f"is of {other}, this proxy obeys {self.cluster!r}")]
        window = self.windows.get(ack.stream)
        if window is None:
            return [AckRefused(ack.stream, "stream", "is for a stream of which nothing was sent")]
        if ack.writer and self._is_contested(ack, window, ack.writer):
            return [Contested(ack.stream, ack.through, window.spooled)]
        before = window.acknowledged
        notices: list[Notice] = [] if ack.writer is None or self.reads_writers else [ReadsWriters()]
        self.reads_writers = ack.writer is not None
        notices += [
            BatchRejected(ack.stream, each.sequence, each.reason)
            for each in ack.rejected
            if before < each.sequence <= min(ack.through, window.spooled)
        ]
        notices += self._handle(ack.stream, AckReceived(ack.through), now_us)
        if notices and isinstance(notices[0], ReadsWriters):
            # What was sent without its writer is not accepted behind batches that name theirs.
            notices += self.connected(now_us) if self._connected else []
        if window.acknowledged > before:
            self.cluster, self.packed = ack.cluster, ack.packed
            notices.append(BatchesStored(ack.stream, window.acknowledged - before))
        return notices

    def _is_contested(self, ack: Ack, window: DeliveryWindow, writer: bytes) -> bool:
        """Return whether the last batch that the cluster has is not the one of this number here."""
        if ack.through <= window.acknowledged:
            return False  # it is here no more, or was before the cluster lost some
        own = [found for first, found in self._writers[ack.stream] if first <= ack.through]
        return ack.through > window.spooled or not own or own[-1] != writer

    def connected(self, now_us: int) -> list[Notice]:
        """Note a new connection: each stream is sent from its last acknowledged batch on."""
        self._connected = True
        self._to_send.clear()
        return self._all(Connected(), now_us)

    def cluster_began(self, now_us: int) -> list[Notice]:
        """Note that a cluster has started: it may lack batches published before."""
        return self.connected(now_us) if self._connected else []

    def disconnected(self, now_us: int) -> list[Notice]:
        """Note that the connection is lost."""
        self._connected = False
        self._to_send.clear()
        return self._all(Disconnected(), now_us)

    def time_passed(self, now_us: int) -> list[Notice]:
        """Note that time has passed: some streams may be due again."""
        return self._all(TimePassed(), now_us)

    @property
    def due(self) -> bool:
        """Whether something may be to publish."""
        return bool(self._to_send or self._to_resume)

    def next(self) -> ToPublish | None:
        """Remove and return what to publish next; None if nothing is due."""
        if self._to_resume:
            return PublishResumption(*self._to_resume.popitem())
        full: list[tuple[str, int]] = []
        found: PublishBatch | None = None
        while self._to_send and found is None:
            stream, sequence = self._to_send.popleft()
            if not self.awaits(stream, sequence):
                continue
            if self.windows[stream].is_full(sequence, MOST_PUBLISHED_BYTES):
                full.append((stream, sequence))
            else:
                found = PublishBatch(stream, sequence)
        self._to_send.extendleft(reversed(full))
        return found

    def published(self, stream: str, sequence: int, size: int) -> None:
        """Note that a batch of so many bytes was published."""
        self.windows[stream].published(sequence, size)

    def awaits(self, stream: str, sequence: int) -> bool:
        """Return whether a batch is still to be acknowledged."""
        return sequence > self.windows[stream].acknowledged

    def damaged(self, stream: str, sequence: int, now_us: int) -> list[Notice]:
        """Note that a batch that was to be published is damaged: it is left out, and the cluster skips it, too."""
        self._to_send = deque(each for each in self._to_send if each[0] != stream or each[1] < sequence)
        return self._handle(stream, BatchDamaged(sequence), now_us)

    def unreadable(self, stream: str, now_us: int) -> list[Notice]:
        """Note that a batch of a stream cannot be read now: the stream pauses until it is due again."""
        self._drop(stream)
        return self._handle(stream, BatchUnreadable(), now_us)

    def take_deletions(self) -> dict[str, int]:
        """Remove and return, by stream, the last batch that can be deleted from the spool."""
        deletions, self._deletions = self._deletions, {}
        return deletions

    def put_back_deletions(self, deletions: Mapping[str, int]) -> None:
        """Put back deletions that failed; there may be later ones since."""
        self._deletions = {**deletions, **self._deletions}

    def _all(self, event: DeliveryEvent, now_us: int) -> list[Notice]:
        return [notice for stream in self.windows for notice in self._handle(stream, event, now_us)]

    def _handle(self, stream: str, event: DeliveryEvent, now_us: int) -> list[Notice]:
        window, notices = self.windows[stream], list[Notice]()
        for instruction in window.handle(event, now_us):
            match instruction:
                case Send(sequence):
                    self._to_send.append((stream, sequence))
                case SendAgain(sequence):
                    if (stream, sequence) not in self._to_send:
                        self._to_send.appendleft((stream, sequence))
                    notices.append(SendingAgain(stream, sequence, "silence"))
                case DeleteThrough(sequence):
                    self._deletions[stream] = sequence
                case Resume(first):
                    self._to_resume[stream] = first
                    notices.append(BatchesLost(stream, first))
                case Skip(sequence):
                    self._to_resume[stream] = sequence + 1
                case Resending(sequence, reason):
                    self._drop(stream)
                    notices.append(SendingAgain(stream, sequence, reason))
                case ImpossibleAck(through, problem):
                    label = "regressed" if through < window.acknowledged else "ahead"
                    notices.append(AckRefused(stream, label, problem))
        return notices

    def _drop(self, stream: str) -> None:
        self._to_send = deque(each for each in self._to_send if each[0] != stream)
