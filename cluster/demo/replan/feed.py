"""Sends the readings of the road as a proxy does, and keeps them: answers are compared with what was sent."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from uuid import uuid4

from cluster.demo.replan.road import RAIN, SCHEMAS, SECOND_US, VALUES, Reading, readings
from protocols.errors import FrameError
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Batch, decode_ack, encode_batch, make_columns
from protocols.wire.catalog import Presence, Status, StreamOffer
from protocols.wire.frames import VERSION, encode

PROXY = "road"
TICK_US = SECOND_US // 4
"""A batch of each stream has the readings of so long."""
AFTER_US = 86_400 * SECOND_US
"""By which watermarks move on after the last reading, so that windows close."""


class Feed:
    """The road's proxy.

    Parameters
    ----------
    broker
        Takes the batches.
    """

    def __init__(self, broker: BrokerAddress) -> None:
        self.rates: Mapping[str, int] = RAIN
        """Readings a second; another stream may take these from the next batch on."""
        self.sent: dict[str, list[Reading]] = {stream: [] for stream in VALUES}
        self._epoch = uuid4().hex
        self._sequences = dict.fromkeys(VALUES, 0)
        self._stored = dict.fromkeys(VALUES, 0)
        self._dice = random.Random(1)  # noqa: S311 - no secret
        online = Status(VERSION, PROXY, Presence.ONLINE, self._epoch, _now_us())
        self._link = MqttLink(
            broker,
            client_id="fjord-demo-road",
            subscriptions=[Subscription(topics.acks(PROXY))],
            births=[
                Message(topics.proxy_status(PROXY), encode(online), retain=True),
                *(
                    Message(
                        topics.stream_offer(PROXY, stream), encode(StreamOffer(VERSION, PROXY, schema)), retain=True
                    )
                    for stream, schema in SCHEMAS.items()
                ),
            ],
        )

    @property
    def is_stored(self) -> bool:
        """Whether the cluster has acknowledged every batch."""
        return self._stored == self._sequences

    async def connect(self) -> None:
        """Keep the connection and offer the streams, until cancelled."""
        await self._link.run(self._receive)

    async def send(self, stop: asyncio.Event) -> None:
        """Send readings of the present until `stop`, then let the windows close."""
        await self._link.connected.wait()
        begin_us = _now_us() // TICK_US * TICK_US
        while not stop.is_set():
            end_us = begin_us + TICK_US
            await asyncio.sleep(max(0.0, (end_us - _now_us()) / 1e6))
            for stream, rate in self.rates.items():
                found = readings(self._dice, rate, begin_us, end_us)
                self.sent[stream] += found
                await self._publish(stream, found, end_us, sampling=True)
            begin_us = end_us
        for stream in VALUES:
            await self._publish(stream, [], begin_us + AFTER_US, sampling=False)

    async def _publish(self, stream: str, found: list[Reading], watermark_us: int, *, sampling: bool) -> None:
        self._sequences[stream] += 1
        sequence, rows = self._sequences[stream], len(found)
        stamps, segments, measured = zip(*found, strict=True) if found else ((), (), ())
        columns = make_columns(
            SCHEMAS[stream], stamps, [f"{stream}-{each}" for each in segments], [True] * rows,
            {"segment": segments, VALUES[stream]: measured},
        )  # fmt: skip
        batch = Batch(VERSION, PROXY, self._epoch, stream, sequence, watermark_us, sampling, rows, columns)
        await self._link.publish(Message(topics.batches(PROXY), encode_batch(batch)))

    async def _receive(self, message: Message) -> None:
        try:
            ack = decode_ack(message.payload)
        except FrameError:
            return
        if ack.epoch == self._epoch and ack.stream in self._stored:
            self._stored[ack.stream] = max(self._stored[ack.stream], ack.through)


def _now_us() -> int:
    return time.time_ns() // 1_000
