"""Messages from live motes to the broker: a queue, so that a slow broker delays no sample."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from firmware_sim.mote.mote import Mote
from firmware_sim.mote.mote_events import SendPacket
from firmware_sim.radio.channel import Channel
from protocols.mqtt.link import LinkError, Message
from protocols.wire.frames import encode
from protocols.wire.packets import Packet

MOST_WAITING = 20_000
"""Most messages that may wait for the broker before motes have to wait as well."""


class Publishes(Protocol):
    """A link to the broker."""

    async def publish(self, message: Message) -> None:
        """Publish a message; raises LinkError."""


@dataclass(frozen=True, slots=True)
class _Outgoing:
    message: Message
    mote: Mote | None = None
    packet: Packet | None = None


class Air:
    """Carries packets from motes to the broker, through a bad channel if there is one.

    Parameters
    ----------
    link
        To the broker.
    channel
        The radio channel with its faults; None for a perfect one.
    clock
        Radio time in microseconds.
    """

    def __init__(self, link: Publishes, channel: Channel | None, clock: Callable[[], int]) -> None:
        self._link = link
        self._channel = channel
        self._clock = clock
        self._outgoing: deque[_Outgoing] = deque()
        self._on_air: list[tuple[int, int, Message]] = []
        self._deliveries = 0
        self._something = asyncio.Event()
        self._less = asyncio.Event()
        self.lost = 0
        """Messages that were lost because there was no broker."""

    @property
    def next_delivery_us(self) -> int | None:
        """The arrival time of the next delayed packet; None if there is none."""
        return self._on_air[0][0] if self._on_air else None

    def send(self, mote: Mote, topic: str, sent: SendPacket) -> None:
        """Send a packet, at once or through the channel. A listen window begins when the packet has been sent."""
        message = Message(topic, encode(sent.packet), qos=0)
        if self._channel is None:
            self._put(_Outgoing(message, mote, sent.packet))
            return
        radio = mote.meter.profile.radio
        carried = self._channel.carry(
            mote.description.name,
            message.payload,
            at_us=self._clock(),
            airtime_us=radio.airtime_us(sent.payload_bits),
            maximum_attempts=round(radio.maximum_attempts),
        )
        mote.meter.repeated(sent.payload_bits, carried.attempts - 1)
        for delivery in carried.deliveries:
            self._deliveries += 1
            held_up = Message(topic, delivery.payload, qos=0)
            heapq.heappush(self._on_air, (delivery.at_us, self._deliveries, held_up))

    def announce(self, topic: str, payload: bytes) -> None:
        """Send an announcement."""
        self._put(_Outgoing(Message(topic, payload, qos=0)))

    def deliver_due(self) -> None:
        """Deliver packets whose time has come."""
        while self._on_air and self._on_air[0][0] <= self._clock():
            self._put(_Outgoing(heapq.heappop(self._on_air)[2]))

    async def room(self) -> None:
        """Wait while too many messages wait for the broker."""
        while len(self._outgoing) > MOST_WAITING:
            self._less.clear()
            await self._less.wait()

    async def drain(self) -> None:
        """Wait until all due messages have been passed to the broker."""
        while self._outgoing:
            self._less.clear()
            await self._less.wait()

    async def run(self) -> None:
        """Pass messages to the broker, in order, until cancelled."""
        while True:
            await self._something.wait()
            self._something.clear()
            while self._outgoing:
                each = self._outgoing[0]
                try:
                    await self._link.publish(each.message)
                except LinkError:
                    self.lost += 1  # no receiver was in range, as happens with real radios
                if each.mote is not None and each.packet is not None:
                    each.mote.transmitted(each.packet, self._clock())
                self._outgoing.popleft()
                self._less.set()

    def _put(self, outgoing: _Outgoing) -> None:
        self._outgoing.append(outgoing)
        self._something.set()
