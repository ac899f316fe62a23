"""Publishing many messages at a time: a window of those in flight slides over their frames."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from protocols.mqtt.broker_socket import BrokerSocket
from protocols.mqtt.in_flight import InFlight

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
