"""Messages that were received and wait for their handler."""

from __future__ import annotations

from protocols.event_log import get_logger
from protocols.mqtt.messages import Message

log = get_logger(__name__)


class Inbox:
    """Messages, with the numbers to acknowledge them by: 0 for no acknowledgement.

    Parameters
    ----------
    max_waiting
        When so many wait, further ones that are not to be acknowledged are dropped and logged; the broker limits the
        others.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._dropped = 0
        self._messages: list[Message] = []
        self._numbers: list[int] = []

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: list[Message], numbers: list[int]) -> None:
        """Add messages, as many as there is room for."""
        if len(self._messages) + len(messages) > self._max_waiting:
            messages, numbers = self._fitting(messages, numbers)
        self._messages += messages
        self._numbers += numbers

    def take(self, most: int) -> tuple[list[Message], list[int]]:
        """Remove and return the first messages."""
        messages, self._messages = self._messages[:most], self._messages[most:]
        numbers, self._numbers = self._numbers[:most], self._numbers[most:]
        return messages, numbers

    def _fitting(self, messages: list[Message], numbers: list[int]) -> tuple[list[Message], list[int]]:
        kept: tuple[list[Message], list[int]] = [], []
        for message, number in zip(messages, numbers, strict=True):
            if number or len(self._messages) + len(kept[0]) < self._max_waiting:
                kept[0].append(message)
                kept[1].append(number)
                continue
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th ...
                log.warning("too many messages wait: dropped", topic=message.topic, dropped=self._dropped)
        return kept
