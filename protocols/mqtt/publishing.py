"""Publishing many messages at a time, or single ones: a window of those in flight slides over their frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocols.mqtt.broker_socket import BrokerSocket
from protocols.mqtt.messages import LinkError
from protocols.mqtt.sent_frames import InFlight

if TYPE_CHECKING:
    from protocols.mqtt.publish_frames import PublishFrames

MOST_IN_FLIGHT = 1_000
"""Published messages that the broker may not have acknowledged yet; further ones wait."""
WRITTEN_AT_ONCE = MOST_IN_FLIGHT // 4
"""Of many frames, so many are written at a time, as soon as there is room for them."""


class BrokenWindowError(Exception):
    """The connection is gone before all messages were acknowledged.

    Parameters
    ----------
    acknowledged
        How many were, from the first on.
    """

    def __init__(self, acknowledged: int) -> None:
        super().__init__(acknowledged)
        self.acknowledged = acknowledged


class FramePublishing:
    """The frames of one connection.

    Parameters
    ----------
    window
        Which of them are acknowledged.
    socket
        Where they are written.
    """

    def __init__(self, window: InFlight, socket: BrokerSocket) -> None:
        self._window = window
        self._socket = socket
        self._lost = False
        self._moved = asyncio.Event()
        self._writing = asyncio.Lock()

    async def publish(self, frames: PublishFrames) -> None:
        """Publish messages in order, behind those of earlier calls, and wait until the broker has all of them.

        Raises
        ------
        BrokenWindowError
            If the connection breaks first.
        """
        window = self._window
        first = window.sent
        try:
            async with self._writing:
                first = window.sent
                written = 0
                while written < len(frames):
                    await self._wait_for_room(min(WRITTEN_AT_ONCE, len(frames) - written))
                    room = min(MOST_IN_FLIGHT - window.waiting, len(frames) - written)
                    self._socket.write(frames.numbered(written, written + room, window.sent))
                    self._socket.flush()
                    window.sent += room
                    written += room
                    await self._socket.drain()
            while window.acknowledged < first + len(frames):
                await self._move()
        except ConnectionError as error:
            raise BrokenWindowError(max(0, min(window.acknowledged - first, len(frames)))) from error

    def acknowledged(self) -> None:
        """Note that the window has moved."""
        self._moved.set()

    def lost(self) -> None:
        """Note that the connection is gone."""
        self._lost = True
        self._moved.set()

    async def _wait_for_room(self, count: int) -> None:
        while MOST_IN_FLIGHT - self._window.waiting < count:
            await self._move()
        if self._lost:
            raise ConnectionResetError

    async def _move(self) -> None:
        """Wait until the broker acknowledges more; raises ConnectionError when the connection is gone."""
        if self._lost:
            raise ConnectionResetError
        self._moved.clear()
        await self._moved.wait()


class SinglePublishing:
    """The single messages of one connection that the broker has not acknowledged.

    Parameters
    ----------
    on_sent
        Called when a message begins to wait for its answer.
    """

    def __init__(self, on_sent: Callable[[], None]) -> None:
        self._on_sent = on_sent
        self._room = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._answers: dict[int, asyncio.Future[int | None]] = {}
        """By number: the code with which a message is acknowledged, None when the connection is gone."""
        self._looks = 0
        self._sent_at: dict[int, int] = {}
        """By number: the look before."""

    def __len__(self) -> int:
        return len(self._answers)

    def limit(self, receive_maximum: int) -> None:
        """Let no more messages be in flight than the broker takes; before the first is."""
        self._room = asyncio.Semaphore(min(MOST_IN_FLIGHT, receive_maximum))

    async def publish(self, send: Callable[[], int]) -> int | None:
        """Send a message as soon as there is room; return the code of its answer, None when the connection is gone.

        Parameters
        ----------
        send
            Writes the message and returns its number; or raises LinkError, and the message needs no room.
        """
        await self._room.acquire()
        try:
            number = send()
        except LinkError:
            self._room.release()
            raise
        # The room is given back with the answer, even if nothing waits for it any more.
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._sent_at[number] = self._looks
        self._on_sent()
        return await answer

    def answered(self, number: int, code: int | None) -> None:
        """Note the answer to a message."""
        answer = self._answers.pop(number, None)
        if answer is not None:
            del self._sent_at[number]
            self._room.release()
            if not answer.done():
                answer.set_result(code)

    def lost(self) -> None:
        """Note that the connection is gone."""
        for number in list(self._answers):
            self.answered(number, None)

    def look(self) -> int:
        """Return for how many looks the oldest message has waited for its answer: not for how long, as in `silence`."""
        self._looks += 1
        return self._looks - next(iter(self._sent_at.values()), self._looks)
