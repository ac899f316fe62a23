"""A client that records the messages of the broker: batches, their acknowledgements, and results."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Batch, decode_ack, decode_batch
from tests.faults.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

STREAM = "traffic"
"""Whose samples are noted; what becomes of a device's messages is seen by their numbers."""
SECONDS = 30.0


class Lane(NamedTuple):
    """A lane: its batches are numbered without gaps."""

    proxy: str
    epoch: str
    stream: str


@dataclass(frozen=True, slots=True)
class Received:
    """The messages that were received of a lane."""

    through: int
    """Batches up to this one are acknowledged."""
    samples: dict[int, tuple[Sample, ...]]
    """By number of the batch; some batches may not have been received."""


class BrokerTap:
    """Records in a thread of its own, as a context; it receives nothing while there is no broker.

    Parameters
    ----------
    broker
        Its address.
    proxy
        The proxy whose batches are recorded.
    queries
        The queries whose results are recorded.
    """

    def __init__(self, broker: BrokerAddress, proxy: str, queries: Iterable[str]) -> None:
        self.contradictions: list[str] = []
        """Batches that were sent again with other content."""
        self._samples: dict[Lane, dict[int, tuple[Sample, ...]]] = {}
        self._through: dict[Lane, int] = {}
        self._published: dict[str, set[int]] = {query: set() for query in queries}
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(broker, proxy), name="broker-tap", daemon=True)
        self._running: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._loop.call_soon_threadsafe(self._running.cancel)
        self._thread.join(SECONDS)

    def received(self) -> dict[Lane, Received]:
        """Return what has been received until now, by lane."""
        with self._lock:
            return {lane: Received(self._through.get(lane, 0), dict(each)) for lane, each in self._samples.items()}

    def published(self, query: str) -> set[int]:
        """Return the numbers of a query's results that have been received until now."""
        with self._lock:
            return set(self._published[query])

    def _run(self, broker: BrokerAddress, proxy: str) -> None:
        link = MqttLink(
            broker,
            client_id="broker-tap",
            subscriptions=[Subscription(topic) for topic in self._topics(proxy)],
            silence_seconds=5.0,
        )

        async def receive() -> None:
            self._running = asyncio.create_task(link.run(self._take))
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

        with contextlib.closing(self._loop):
            self._loop.run_until_complete(receive())

    def _topics(self, proxy: str) -> Iterable[str]:
        yield topics.batches(proxy)
        yield topics.acks(proxy)
        for query in self._published:
            yield topics.results(query)
            yield topics.query_errors(query)

    async def _take(self, message: Message) -> None:
        topic = topics.parse(message.topic)
        with self._lock:
            if topic.kind in ("results", "query_errors"):
                self._published[topic.names[0]].add(int(json.loads(message.payload)["sequence"]))
                return
            if topic.kind == "acks":
                ack = decode_ack(message.payload)
                lane = Lane(ack.proxy, ack.epoch, ack.stream)
                self._through[lane] = max(ack.through, self._through.get(lane, 0))
                return
            batch = decode_batch(message.payload)
            lane = Lane(batch.proxy, batch.epoch, batch.stream)
            samples = tuple(_samples(batch))
            before = self._samples.setdefault(lane, {}).setdefault(batch.sequence, samples)
            if before != samples:
                self.contradictions.append(f"batch {batch.sequence} was sent again with other samples")


def _samples(batch: Batch) -> Iterable[Sample]:
    columns = {column.name: column.values(batch.rows) for column in batch.columns}
    if not columns or batch.stream != STREAM:
        return
    fingerprints = columns.get("fjord_form", [None] * batch.rows)
    for fingerprint, start, mote, speed, flow in zip(
        fingerprints, columns["fjord_start_us"], columns["fjord_mote"], columns["speed"], columns["flow"], strict=True
    ):
        if fingerprint is None:
            yield Sample(str(mote), int(str(start)), float(str(speed)), float(str(flow)))
