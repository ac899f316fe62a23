"""Whether a part has received all that was sent to it, so that the silence of others means something.

Pure. A connection that looks well may have been cut, and what was received may not have been handled yet. So the part
sends a message to itself through the broker, on a topic of its own. When that is back, everything that the broker
passed on before has been handled, as it keeps the order::

    10:00:00 sent -----> broker: packets, a status, the message -----> 10:00:01 handled: all is known up to 10:00:00

After a start, a new connection, or a pause in which the process was stopped, that begins anew.
"""

from __future__ import annotations

ECHO_EVERY_US = 1_000_000
"""A part sends itself a message at most this often."""
LONGEST_PAUSE_US = 5_000_000
"""A process that did not run for longer was stopped: what was sent meanwhile has not been handled yet."""


class Attention:
    """Since when, and up to when, one part has received everything.

    Parameters
    ----------
    started_us
        Radio clock now.
    """

    __slots__ = ("_sent_us", "_ticked_us", "since_us", "until_us")

    def __init__(self, started_us: int) -> None:
        self.since_us: int | None = None
        """From when on everything has been received; None while there is no connection."""
        self.until_us: int | None = None
        """Up to when; None if that is not known."""
        self._ticked_us = started_us
        self._sent_us: int | None = None

    def time_passed(self, radio_us: int, *, connected: bool) -> None:
        """Note that the process runs, and whether it is connected to the broker; to be called every second."""
        paused = radio_us - self._ticked_us > LONGEST_PAUSE_US
        self._ticked_us = radio_us
        if paused or not connected:
            self.lost()
        if connected and self.since_us is None:
            self.since_us = radio_us

    def lost(self) -> None:
        """Note that the connection was lost: what is sent until there is another may not be received in time."""
        self.since_us = self.until_us = self._sent_us = None

    def echo_due(self, radio_us: int) -> bool:
        """Return whether to send a message to oneself now."""
        known_us = self.since_us if self.until_us is None else self.until_us
        return known_us is not None and self._sent_us is None and radio_us - known_us >= ECHO_EVERY_US

    def echo_sent(self, radio_us: int) -> None:
        """Note that the message is being sent."""
        self._sent_us = radio_us

    def echoed(self) -> None:
        """Note that it has come back."""
        if self._sent_us is not None:
            self.until_us, self._sent_us = self._sent_us, None
