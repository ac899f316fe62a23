"""Which message to a device is published next, and which are given up.

Pure. Drivers send again what was not confirmed, so a message that comes too late, or one too many, is given up::

    added     1   2 until 5 s   3 ... 1,024   1,025
    4 s       1                                        1,025 finds no room
    6 s           given up      3
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from proxy.drivers.driver import Publication

MOST_WAITING = 1_024
"""Messages to devices that may wait to be published; more are dropped, and drivers send them again."""


class DeviceMessages:
    """The messages to devices of one proxy that have not been published."""

    def __init__(self) -> None:
        self._waiting: deque[Publication] = deque()

    def add(self, publications: Iterable[Publication]) -> int:
        """Let messages wait; return how many found no room."""
        unsent = 0
        for each in publications:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(each)
            else:
                unsent += 1
        return unsent

    def next(self, radio_us: int) -> tuple[Publication | None, int]:
        """Return what to publish now, None for nothing, and how many messages were given up as too late.

        Parameters
        ----------
        radio_us
            Radio clock now.
        """
        late = 0
        while self._waiting:
            each = self._waiting.popleft()
            if each.before_radio_us is None or radio_us < each.before_radio_us:
                return each, late
            late += 1
        return None, late
