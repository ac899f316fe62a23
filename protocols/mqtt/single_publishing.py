"""Publishing single messages of quality of service 1: as many at a time as the broker takes, each until its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocols.mqtt.frame_publishing import MOST_IN_FLIGHT
from protocols.mqtt.messages import LinkError


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
