"""Which messages of one connection the broker has acknowledged: a window that slides over them. Pure.

    sent           1 2 3 4 5 6 7 8 9          numbers on the wire: FIRST, FIRST + 1, ..., and again from FIRST
    acknowledged   - - - -     -              the first four, and one ahead of its turn

Brokers acknowledge in order, mostly many at once: then one comparison of bytes does for all.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Count = TypeVar("Count", int, NDArray[np.int64])

FIRST, NUMBERS = 0x8000, 0x8000
"""Numbers from here on belong to messages sent in this way, the lower ones to single messages and subscriptions."""
ACKNOWLEDGEMENT_BYTES = 4
_PUBACK = struct.Struct("!BBH")
_PUBACK_BEGINS = b"\x40\x02"


def number_of(sent: Count) -> Count:
    """Return the number of the message before which so many were sent."""
    return FIRST + sent % NUMBERS


class InFlight:
    """The messages that were sent, and how many of them are acknowledged."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        """So many, from the first on without a gap."""
        self._ahead: set[int] = set()

    @property
    def waiting(self) -> int:
        """How many of them are not acknowledged yet, counted from the first such."""
        return self.sent - self.acknowledged

    def take(self, received: bytes, start: int) -> int:
        """Read the acknowledgements of such messages at the beginning.

        Parameters
        ----------
        received, start
            Bytes of the socket, and the place where a frame begins.

        Returns
        -------
        int
            Where the first other frame, or an incomplete one, begins.
        """
        length = min(len(received) - start, ACKNOWLEDGEMENT_BYTES * self.waiting)
        length -= length % ACKNOWLEDGEMENT_BYTES
        place = ACKNOWLEDGEMENT_BYTES * (self.acknowledged % NUMBERS)
        if length and not self._ahead and received[start : start + length] == _in_order()[place : place + length]:
            self.acknowledged += length // ACKNOWLEDGEMENT_BYTES
            return start + length
        return self._take_each(received, start)

    def _take_each(self, received: bytes, start: int) -> int:
        while received[start : start + 2] == _PUBACK_BEGINS and len(received) - start >= ACKNOWLEDGEMENT_BYTES:
            number = int.from_bytes(received[start + 2 : start + ACKNOWLEDGEMENT_BYTES], "big")
            if number < FIRST:
                break
            turn = self.acknowledged + (number - FIRST - self.acknowledged) % NUMBERS
            if turn < self.sent:  # else it acknowledges nothing that was sent
                self._ahead.add(turn)
                while self.acknowledged in self._ahead:
                    self._ahead.remove(self.acknowledged)
                    self.acknowledged += 1
            start += ACKNOWLEDGEMENT_BYTES
        return start


@cache
def _in_order() -> bytes:
    """Return the acknowledgements of twice as many messages as there are numbers."""
    return b"".join(_PUBACK.pack(0x40, 2, number_of(sent)) for sent in range(NUMBERS)) * 2
