"""Whether a socket is read. Pure.

waiting messages    ....:::::||||||||||::::      | more bytes than may wait
answers awaited                  ^--^            a handler publishes: the answer comes on the same socket
socket              reads    --  reads  --  reads

So what the broker may send without an acknowledgement is bounded by bytes, too, except while an answer is awaited.
"""

from __future__ import annotations

from collections.abc import Callable

from protocols.mqtt.inbox import MOST_BYTES


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
