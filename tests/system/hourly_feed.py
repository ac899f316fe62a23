"""A proxy whose readings are minutes apart, and sent a third of a second for each hour."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.batches import Batch, decode_ack, encode_batch, make_columns
from protocols.wire.catalog import Presence, Status, StreamOffer
from protocols.wire.frames import VERSION, encode
from protocols.wire.streams import Field, FieldType, StreamSchema

if TYPE_CHECKING:
    from types import TracebackType

HOUR_US = 3_600_000_000
PROXY = "hourly"
LANES = 3
SCHEMA = StreamSchema("hours", (Field("lane", FieldType.INTEGER),))
SECONDS = 60.0


class HourlyFeed:
    """The proxy; use it as a context.

    Parameters
    ----------
    broker
        Takes the batches.
    per_hour
        Readings in each hour, of random lanes at random instants.
    days_back
        How long before now the first hour begins.
    """

    def __init__(self, broker: BrokerAddress, *, per_hour: int, days_back: int) -> None:
        self.begins_us = (time.time_ns() // 1000 // HOUR_US - 24 * days_back) * HOUR_US
        self.ends_us = self.begins_us
        """Up to where readings have been sent."""
        self.sent: list[tuple[int, int]] = []
        """Stamps and lanes."""
        self._per_hour = per_hour
        self._dice = random.Random(7)
        self._epoch = uuid4().hex
        self._sequence = self._stored = 0
        online = Status(VERSION, PROXY, Presence.ONLINE, self._epoch, time.time_ns() // 1000)
        offer = StreamOffer(VERSION, PROXY, SCHEMA)
        self._link = MqttLink(
            broker,
            client_id=f"fjord-test-{PROXY}",
            subscriptions=[Subscription(topics.acks(PROXY))],
            births=[
                Message(topics.proxy_status(PROXY), encode(online), retain=True),
                Message(topics.stream_offer(PROXY, SCHEMA.name), encode(offer), retain=True),
            ],
        )

    async def __aenter__(self) -> Self:
        self._connection = asyncio.create_task(self._link.run(self._receive))
        await asyncio.wait_for(self._link.connected.wait(), SECONDS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._connection

    async def hour(self) -> None:
        """Send the readings of the next hour."""
        begin_us, self.ends_us = self.ends_us, self.ends_us + HOUR_US
        stamps = sorted(self._dice.sample(range(begin_us, self.ends_us), self._per_hour))
        found = [(stamp, self._dice.randrange(LANES)) for stamp in stamps]
        self.sent += found
        await self._publish(found, self.ends_us)

    async def end(self, hours: int) -> None:
        """Let so many hours pass without readings."""
        await self._publish([], self.ends_us + hours * HOUR_US)

    async def stored(self) -> None:
        """Wait until the cluster has stored all that was sent."""
        async with asyncio.timeout(SECONDS):
            while self._stored < self._sequence:  # noqa: ASYNC110 - acknowledgements come from elsewhere
                await asyncio.sleep(0.02)

    async def _publish(self, found: list[tuple[int, int]], watermark_us: int) -> None:
        self._sequence += 1
        stamps, lanes = zip(*found, strict=True) if found else ((), ())
        columns = make_columns(SCHEMA, stamps, ["m"] * len(found), [True] * len(found), {"lane": lanes})
        batch = Batch(
            VERSION, PROXY, self._epoch, SCHEMA.name, self._sequence, watermark_us, bool(found), len(found), columns
        )
        await self._link.publish(Message(topics.batches(PROXY), encode_batch(batch)))

    async def _receive(self, message: Message) -> None:
        ack = decode_ack(message.payload)
        if ack.epoch == self._epoch:
            self._stored = max(self._stored, ack.through)
