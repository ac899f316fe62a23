"""The link of a part that is recorded or replayed: what it receives are inputs, what it sends is noted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from protocols.mqtt.link import LinkError, Message
from protocols.recording.entries import Connected, Disconnected

Arrival = Sequence[Message] | Connected
Handle = Callable[[Arrival], Awaitable[None]]
"""Handles messages that arrived together, or a connect; raises LinkError."""


class Surroundings(Protocol):
    """What a link is connected to."""

    @property
    def trouble(self) -> str | None:
        """Why there is no connection, if that is known."""
        ...

    @property
    def hangs_total(self) -> int:
        """How many connections were given up because the broker sent nothing any more."""
        ...

    def publish(self, message: Message, nth: int) -> None:
        """Publish a message; what becomes of it is an input."""
        ...

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of a session that lasts."""
        ...

    async def run_link(self, handle: Handle) -> None:
        """Keep the connection, and let all that arrives be handled, one after another, until cancelled."""


class TapedLink:
    """A link, as :class:`protocols.mqtt.link.MqttLink` to what uses it.

    Parameters
    ----------
    timeline
        Which messages come from.
    on_connect
        Called after each connect.
    """

    def __init__(self, timeline: Surroundings, on_connect: Callable[[], Awaitable[None]] | None) -> None:
        self.connected = asyncio.Event()
        self.connects_total = self.hangs_total = 0
        self._timeline = timeline
        self._on_connect = on_connect
        self._connections = self._lost = 0
        self._sent: Counter[str] = Counter()
        self._outstanding: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._early: dict[tuple[str, int], LinkError | None] = {}

    @property
    def trouble(self) -> str | None:
        """Why there is no connection, if that is known."""
        return self._timeline.trouble

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Handle connects and messages, one after another, until cancelled."""

        async def handle(arrival: Arrival) -> None:
            if isinstance(arrival, Connected):
                await self._begin()
            else:
                await take(arrival)

        await self._timeline.run_link(handle)

    async def publish(self, message: Message) -> None:
        """Publish, and wait until the broker has it; raises LinkError."""
        topic = message.topic
        self._sent[topic] += 1
        key = topic, self._sent[topic]
        self._timeline.publish(message, key[1])
        if key in self._early:
            error = self._early.pop(key)
            if error is not None:
                raise error
            return
        outcome = self._outstanding[key] = asyncio.get_running_loop().create_future()
        try:
            await outcome
        finally:
            self._outstanding.pop(key, None)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages of a session that lasts; a replay has no broker that would send them again."""
        self._timeline.acknowledge(numbers)

    def connection(self, entry: Connected | Disconnected) -> None:
        """Note that there is a connection, which is handled next, or that it is lost."""
        self.hangs_total = self._timeline.hangs_total
        if isinstance(entry, Disconnected):
            self._lost = self._connections
            self.connected.clear()
        else:
            self._connections += 1

    def settle(self, topic: str, nth: int, error: LinkError | None) -> None:
        """Let it be known what has become of a message."""
        outcome = self._outstanding.get((topic, nth))
        if outcome is None:
            if nth > self._sent[topic]:  # it is sent later than when it was recorded
                self._early[topic, nth] = error
        elif not outcome.done():
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

    async def _begin(self) -> None:
        if self._lost == self._connections:
            return  # lost meanwhile
        self.connects_total += 1
        self.connected.set()
        if self._on_connect is not None:
            await self._on_connect()
