"""Messages that were received and wait for their handler, and whether the socket is read meanwhile. Pure.

**Whether a socket is read.**

waiting messages    ....:::::||||||||||::::      | more bytes than may wait
answers awaited                  ^--^            a handler publishes: the answer comes on the same socket
socket              reads    --  reads  --  reads

So what the broker may send without an acknowledgement is bounded by bytes, too, except while an answer is awaited.
"""

from __future__ import annotations

from collections.abc import Callable

from protocols.event_log import get_logger, is_logged
from protocols.mqtt.messages import Message

log = get_logger(__name__)

MOST_BYTES = 64 * 1024**2
"""Payloads of waiting messages, added up, from which on no more are read, and messages that are not to be acknowledged
are dropped."""


class Inbox:
    """Messages, with the numbers to acknowledge them by: 0 for no acknowledgement.

    Parameters
    ----------
    max_waiting
        When so many wait, further ones that are not to be acknowledged are dropped and logged; the broker limits the
        others.
    max_bytes
        The same for the bytes of their payloads.
    """

    def __init__(self, max_waiting: int, max_bytes: int = MOST_BYTES) -> None:
        self._max_waiting = max_waiting
        self._max_bytes = max_bytes
        self.waiting_bytes = 0
        """Payloads of the waiting messages, added up."""
        self._dropped = 0
        self._messages: list[Message] = []
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: list[Message], numbers: list[int]) -> None:
        """Add messages, as many as there is room for."""
        count = _payload_bytes(messages)
        if len(self._messages) + len(messages) > self._max_waiting or self.waiting_bytes + count > self._max_bytes:
            messages, numbers = self._fitting(messages, numbers)
            count = _payload_bytes(messages)
        self.waiting_bytes += count
        self._messages += messages
        self._numbers += numbers

    def take(self, most: int) -> tuple[list[Message], list[int]]:
        """Remove and return the first messages."""
        messages, self._messages = self._messages[:most], self._messages[most:]
        numbers, self._numbers = self._numbers[:most], self._numbers[most:]
        self.waiting_bytes -= _payload_bytes(messages)
        return messages, numbers

    def _fitting(self, messages: list[Message], numbers: list[int]) -> tuple[list[Message], list[int]]:
        kept: tuple[list[Message], list[int]] = [], []
        held = self.waiting_bytes
        for message, number in zip(messages, numbers, strict=True):
            fits = len(self._messages) + len(kept[0]) < self._max_waiting
            if number or (fits and held + len(message.payload) <= self._max_bytes):
                kept[0].append(message)
                kept[1].append(number)
                held += len(message.payload)
                continue
            self._dropped += 1
            if is_logged(self._dropped):
                log.warning("too many messages wait: dropped", topic=message.topic, dropped=self._dropped)
        return kept


def _payload_bytes(messages: list[Message]) -> int:
    return sum([len(message.payload) for message in messages])


class ReadingGate:
    """Pauses and resumes reading.

    Parameters
    ----------
    pause, resume
        What does it; called when it changes.
    most_bytes
        Payloads of waiting messages, added up, from which on the socket is not read.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None], most_bytes: int = MOST_BYTES) -> None:
        self._pause = pause
        self._resume = resume
        self._most_bytes = most_bytes
        self._piling_up = False
        self._full = False
        self.closed = False
        """Whether the socket is not read."""

    def pile_up(self, *, wanted: bool) -> None:
        """Let what comes pile up in the kernel, or not."""
        self._piling_up = wanted
        self._move()

    def look(self, waiting_bytes: int, *, awaits_answers: bool) -> None:
        """Decide anew; call it whenever one of these has changed.

        Parameters
        ----------
        waiting_bytes
            Payloads of waiting messages, added up.
        awaits_answers
            Whether anything waits for an answer of the broker.
        """
        self._full = waiting_bytes > self._most_bytes and not awaits_answers
        self._move()

    def _move(self) -> None:
        closed = self._piling_up or self._full
        if closed != self.closed:
            self.closed = closed
            (self._pause if closed else self._resume)()
