"""One connection to the broker, from its beginning until it breaks.

Messages are handed over one after another, a burst at a time, and acknowledged to the broker after that: a broker with
a slow subscriber waits. When many messages come, reading pauses for a millisecond between bursts. A broker wakes its
subscriber for each message that it writes; read in bursts, they cost less than half the time (docs/dependencies.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from protocols.event_log import get_logger
from protocols.mqtt.client import Client, MQTTError
from protocols.mqtt.messages import BrokenOffError, BrokerAddress, LinkError, Message, Subscription

if TYPE_CHECKING:
    from protocols.mqtt.publish_frames import PublishFrames

log = get_logger(__name__)

ANSWER_SECONDS = 10.0
"""The broker answers a connect or a subscription within this time, or the connection is given up."""
FAREWELL_SECONDS = 2.0
MOST_IN_FLIGHT = 1_000
"""Published messages that the broker may not have acknowledged yet; further ones wait."""
WRITTEN_AT_ONCE = MOST_IN_FLIGHT // 4
"""Of many frames, so many are written at a time, as soon as there is room for them."""
BURST_MESSAGES = 256
"""The most messages that are handed over before other tasks run."""
SILENCE_SECONDS = 15.0
"""A broker that sends nothing for this long, even after a ping, has hung."""
LOOKS = 6
"""Checks per silence whether the broker has sent something; it gets a ping after a third of them."""
BUSY_MESSAGES = 16
BUSY_SECONDS = 0.01
"""More than so many messages within this time are many."""
PAUSE_SECONDS = 0.001
REFUSED = 128


class Connection:
    """One connection.

    Parameters
    ----------
    address, client_id, will, max_queued, silence_seconds
        As in :class:`protocols.mqtt.link.MqttLink`.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str,
        will: Message | None,
        max_queued: int,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._address = address
        self._max_queued = max_queued
        self._silence = silence_seconds
        self._quiet_looks = 0
        self.hung = False
        """True once the connection was given up because the broker sent nothing any more."""
        self._dropped = 0
        self._messages: list[Message] = []
        self._numbers: list[int] = []
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._room = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._writing_frames = asyncio.Lock()
        self._moved = asyncio.Event()
        self._subscribing: dict[int, asyncio.Future[tuple[int, ...]]] = {}
        self._busy_since = 0.0
        self._handed_over = 0
        self._client = Client(
            address,
            client_id,
            will,
            on_messages=self._arrived,
            on_bytes=self._received,
            on_acknowledged=self._acknowledged,
            on_lost=self._connection_lost,
            on_subscribed=self._subscribed,
        )

    async def open(self) -> None:
        """Connect; raises LinkError."""
        connecting = asyncio.create_task(self._client.open(), name="connect")
        losing = asyncio.create_task(self._lost.wait(), name="lost while connecting")
        try:
            await asyncio.wait({connecting, losing}, timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                raise LinkError(f"the broker at {self._address} did not answer")
            await connecting
        except (OSError, MQTTError) as error:
            raise LinkError(f"cannot connect to the broker at {self._address}: {error}") from error
        finally:
            connecting.cancel()
            losing.cancel()

    async def close(self) -> None:
        """Disconnect cleanly, so that the broker does not publish the will."""
        transport = self._client.transport
        if transport is None:
            return
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._client.disconnect()
        except (TimeoutError, OSError):
            transport.abort()
        self._connection_lost()

    async def watch(self) -> None:
        """Give up the connection once the broker has sent nothing for too long, even after a ping.

        Checks are counted, not seconds, and the socket is read between them: a process that was stopped or busy for
        long reads what the broker has sent meanwhile before it can consider it hung.
        """
        while not self._lost.is_set():
            await asyncio.sleep(self._silence / LOOKS)
            self._quiet_looks += 1
            if self._quiet_looks == LOOKS // 3:
                self._client.ping()
            elif self._quiet_looks >= LOOKS:
                self.hung = True
                transport = self._client.transport
                if transport is not None:
                    transport.abort()
                self._connection_lost()

    def _received(self) -> None:
        self._quiet_looks = 0

    async def publish(self, message: Message) -> None:
        """Publish, as :meth:`protocols.mqtt.link.MqttLink.publish` does."""
        if message.qos == 0:
            await self._write(message)
            return
        async with self._room:
            acknowledged = await self._write(message)
            if acknowledged is not None and not await acknowledged:
                raise self._failure(message)

    async def publish_frames(self, frames: PublishFrames) -> None:
        """Publish many messages, as :meth:`protocols.mqtt.link.MqttLink.publish_frames` does."""
        window = self._client.in_flight
        first = window.sent
        try:
            async with self._writing_frames:
                first = window.sent
                written = 0
                while written < len(frames):
                    await self._wait_for_room(min(WRITTEN_AT_ONCE, len(frames) - written))
                    room = min(MOST_IN_FLIGHT - window.waiting, len(frames) - written)
                    self._client.write_frames(frames.numbered(written, written + room, window.sent))
                    window.sent += room
                    written += room
                    await self._client.drain()
            while window.acknowledged < first + len(frames):
                await self._move()
        except ConnectionError as error:
            raise self._broken_off(min(window.acknowledged - first, len(frames))) from error

    async def _wait_for_room(self, count: int) -> None:
        while MOST_IN_FLIGHT - self._client.in_flight.waiting < count:
            await self._move()
        if self._lost.is_set():
            raise ConnectionResetError

    async def _move(self) -> None:
        """Wait until the broker acknowledges more; raises ConnectionError when the connection is gone."""
        if self._lost.is_set():
            raise ConnectionResetError
        self._moved.clear()
        await self._moved.wait()

    def _broken_off(self, acknowledged: int) -> BrokenOffError:
        return BrokenOffError(
            f"the broker at {self._address} did not take all messages: the connection {self._end}", max(0, acknowledged)
        )

    def _acknowledged(self) -> None:
        self._moved.set()

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Subscribe and wait until the broker has answered; raises LinkError."""
        if self._lost.is_set():
            raise LinkError(f"the connection to the broker at {self._address} is gone")
        answer: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        number = self._client.request(subscriptions)
        self._subscribing[number] = answer
        try:
            granted = await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError as error:
            raise LinkError(f"the broker at {self._address} did not answer a subscription") from error
        finally:
            self._subscribing.pop(number, None)
        if not granted:
            raise LinkError(f"the connection to the broker at {self._address} broke before it answered a subscription")
        for subscription, qos in zip(subscriptions, granted, strict=False):
            if qos >= REFUSED:
                log.error("the broker rejected a subscription", broker=str(self._address), filter=subscription.filter)

    async def receive(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Call `take` with one burst of messages after another; raises LinkError when the connection is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._messages:
                await self._hand_over(take)
            if self._lost.is_set():
                raise LinkError(f"the connection to the broker at {self._address} {self._end}")
            await self._let_pile_up()

    async def _hand_over(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Hand over one burst, and acknowledge it."""
        messages, self._messages = self._messages[:BURST_MESSAGES], self._messages[BURST_MESSAGES:]
        numbers, self._numbers = self._numbers[:BURST_MESSAGES], self._numbers[BURST_MESSAGES:]
        await take(messages)
        self._client.acknowledge(numbers)
        self._handed_over += len(messages)
        # A handler that never waits would starve the socket, timers and all other tasks.
        await asyncio.sleep(0)

    async def _let_pile_up(self) -> None:
        """Pause reading for a moment if there are many messages."""
        now = time.monotonic()
        if now - self._busy_since > BUSY_SECONDS:
            self._busy_since, self._handed_over = now, 0
        transport = self._client.transport
        if self._handed_over <= BUSY_MESSAGES or transport is None:
            return
        transport.pause_reading()
        try:
            await asyncio.sleep(PAUSE_SECONDS)
        finally:
            transport.resume_reading()

    async def _write(self, message: Message) -> asyncio.Future[bool] | None:
        if self._lost.is_set():
            raise self._failure(message)
        acknowledged = self._client.write(message)
        try:
            await self._client.drain()
        except ConnectionError as error:
            raise self._failure(message) from error
        return acknowledged

    @property
    def _end(self) -> str:
        return f"was given up: it sent nothing for {self._silence:g} s" if self.hung else "broke"

    def _failure(self, message: Message) -> LinkError:
        return LinkError(
            f"the broker at {self._address} did not take a message on {message.topic}: the connection {self._end}"
        )

    def _arrived(self, messages: list[Message], numbers: list[int]) -> None:
        if len(self._messages) + len(messages) > self._max_queued:
            messages, numbers = self._fitting(messages, numbers)
        self._messages += messages
        self._numbers += numbers
        self._wake.set()

    def _fitting(self, messages: list[Message], numbers: list[int]) -> tuple[list[Message], list[int]]:
        """Return the messages that fit, with their numbers; the broker limits those that are to be acknowledged."""
        kept: tuple[list[Message], list[int]] = [], []
        for message, number in zip(messages, numbers, strict=True):
            if number or len(self._messages) + len(kept[0]) < self._max_queued:
                kept[0].append(message)
                kept[1].append(number)
                continue
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                log.warning("too many messages wait: dropped", topic=message.topic, dropped=self._dropped)
        return kept

    def _subscribed(self, number: int, granted: tuple[int, ...]) -> None:
        answer = self._subscribing.get(number)
        if answer is not None and not answer.done():
            answer.set_result(granted)

    def _connection_lost(self) -> None:
        self._lost.set()
        self._wake.set()
        self._moved.set()
        self._client.outgoing.give_up()
        for number in list(self._subscribing):
            self._subscribed(number, ())


@contextlib.asynccontextmanager
async def connect(
    address: BrokerAddress,
    *,
    client_id: str,
    will: Message | None,
    max_queued: int,
    silence_seconds: float = SILENCE_SECONDS,
) -> AsyncIterator[Connection]:
    """Keep a connection while the block runs.

    Raises
    ------
    LinkError
        If the broker cannot be reached, or refuses.
    """
    connection = Connection(
        address, client_id=client_id, will=will, max_queued=max_queued, silence_seconds=silence_seconds
    )
    watching: asyncio.Task[None] | None = None
    try:
        await connection.open()
        watching = asyncio.create_task(connection.watch(), name=f"watch over the broker for {client_id}")
        yield connection
    finally:
        if watching is not None:
            watching.cancel()
        await connection.close()
