"""Which messages of the devices' session may be acknowledged to the broker, and which it has sent again.

Pure. A message is acknowledged once what it led to is on disk, in the order in which messages came::

    received       1 2 3 4 5 6 7      5 waits in a driver to be merged with another
    cut            - - - -   - -      what they led to is in batches, if they led to anything
    written        - - - -   - -      their numbers and digests are on disk with these batches
    acknowledged   - - - -            those behind 5 are acknowledged after it

After a crash the broker sends again what was not acknowledged, marked as such: all but 5 are known by their numbers and
digests.
The same payload under another number, or without the mark, is another message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

from protocols.mqtt.connection import LARGEST_NUMBER
from protocols.mqtt.messages import Message
from proxy.storage.spool import MOST_SESSION_MESSAGES, SessionMessage

DIGEST_BYTES = 8
QUIET_US = 2_000_000
"""How long nothing comes from a broker that has sent all that has waited."""
PAUSE_US = 3_000_000
"""A process that has not looked at its clock for so long has stood still: it does so twice a second."""


class _Fate(IntEnum):
    """How far what a message led to has come."""

    HANDLED = 0
    CUT = 1
    WRITTEN = 2


@dataclass(slots=True)
class _Received:
    number: int
    message: SessionMessage | None
    """None if it was sent again, and is known."""
    fate: _Fate = _Fate.HANDLED


class SessionMessages:
    """The messages that are not acknowledged, and the latest of all.

    Parameters
    ----------
    stored
        Those that led to what is on disk, the latest last.
    most
        How many of the latest are known again.
    """

    def __init__(self, stored: Iterable[SessionMessage] = (), most: int = MOST_SESSION_MESSAGES) -> None:
        self._most = most
        self._known: OrderedDict[int, bytes] = OrderedDict()
        self._handling: list[tuple[int, SessionMessage | None]] = []
        self._waiting: list[_Received] = []
        self._held: dict[int, Callable[[], bool]] = {}
        """By number: messages that wait to be merged, and whether they still do."""
        for each in stored:
            self._note(each)

    def __len__(self) -> int:
        """Return how many are not acknowledged yet."""
        return len(self._waiting) + len(self._handling)

    @property
    def is_handling(self) -> bool:
        """Whether there are messages of which it is not known that they were handled."""
        return bool(self._handling)

    def began(self) -> None:
        """Note that the broker has begun a new session: it gives the numbers of the one before to other messages."""
        self._known.clear()

    def received(self, message: Message) -> bool:
        """Note a message; return whether it is to be handled: else what it led to is on disk, or soon will be."""
        found = SessionMessage(message.number & LARGEST_NUMBER, _digest(message))
        known = message.again and self._known.get(found.number) == found.digest
        self._handling.append((message.number, None if known else found))
        if known and self._held:  # it waits still, under the number that it has on this connection
            for waits in [waits for each, waits in self._held.items() if _same(each, message.number)]:
                self._held[message.number] = waits
        if not known:
            self._note(found)
        return not known

    def hold(self, message: Message, waits: Callable[[], bool]) -> None:
        """Note that a message is to be merged with others: it has led to nothing yet, and may while it `waits`."""
        if message.number:
            self._held[message.number] = waits

    def handled(self) -> None:
        """Note that all messages noted so far were handled."""
        self._waiting += [_Received(*each) for each in self._handling]
        self._handling.clear()

    def cut(self) -> list[SessionMessage]:
        """Note that all that messages led to was cut into batches; return the messages to store with these."""
        self._held = {number: waits for number, waits in self._held.items() if waits()}
        cut = [each for each in self._waiting if each.fate is _Fate.HANDLED and each.number not in self._held]
        for each in cut:
            each.fate = _Fate.CUT
        return [each.message for each in cut if each.message is not None]

    def written(self) -> None:
        """Note that what was cut is on disk."""
        for each in self._waiting:
            if each.fate is _Fate.CUT:
                each.fate = _Fate.WRITTEN

    def take(self) -> list[int]:
        """Remove and return the numbers by which messages may be acknowledged now, in order."""
        count = next((n for n, each in enumerate(self._waiting) if each.fate is not _Fate.WRITTEN), len(self._waiting))
        numbers = [each.number for each in self._waiting[:count]]
        del self._waiting[:count]
        return numbers

    def _note(self, message: SessionMessage) -> None:
        self._known[message.number] = message.digest
        self._known.move_to_end(message.number)
        if len(self._known) > self._most:
            self._known.popitem(last=False)


class Backlog:
    """Whether messages of devices from before may still wait at the broker.

    While they may, no low watermark of a device moves: what has waited there is older than a device's own messages may
    be late. The broker does not say which message was the last that waited. So the proxy publishes a marker once it is
    connected, and receives it in the same session: brokers send what they queue for a client in the order in which it
    came. It does the same after its process has stood still. A broker drops messages of a full queue, so that markers
    are sent until one comes. Where none ever does, the backlog ends once all that came was acknowledged and nothing
    more comes for a while.

    Parameters
    ----------
    waits
        Whether the broker may have kept messages while there was no proxy.
    start
        Tells the markers of this start of the proxy from those of others, which may wait at the broker as well.
    """

    def __init__(self, *, waits: bool, start: str = "0") -> None:
        self.waits = waits
        self._start = start
        self._connected = False
        self._latest_us = 0
        self._noted_us: int | None = None
        self._markers = 0
        self._sent: set[str] = set()
        """Markers of this connection."""
        self._sent_us = 0

    def lost(self) -> None:
        """Note that the connection is lost: from now on messages wait at the broker."""
        self.waits, self._connected = True, False
        self._sent.clear()

    def opened(self, radio_us: int, *, kept: bool) -> None:
        """Note a connection; `kept` is whether the broker has kept messages for it."""
        self.waits, self._connected, self._latest_us, self._noted_us = kept, True, radio_us, radio_us
        self._sent.clear()

    def paused(self, radio_us: int) -> bool:
        """Return whether this process has just stood still for so long that messages have waited for it meanwhile.

        To be called before messages are handled, and with each tick of the clock.
        """
        before_us, self._noted_us = self._noted_us, radio_us
        if not self._connected or before_us is None or radio_us - before_us < PAUSE_US:
            return False
        self.waits, self._latest_us = True, radio_us
        self._sent.clear()
        return True

    def next_marker(self, radio_us: int) -> str | None:
        """Return the marker to publish now, if one is due."""
        if not self.waits or not self._connected or (self._sent and radio_us - self._sent_us < QUIET_US):
            return None
        self._markers += 1
        self._sent_us = radio_us
        marker = f"{self._start}-{self._markers}"
        self._sent.add(marker)
        return marker

    def marker_received(self, marker: str) -> None:
        """Note a marker, after all messages before it were handled."""
        if marker in self._sent:
            self.waits = False

    def received(self, radio_us: int) -> None:
        """Note messages of the connection."""
        self._latest_us = radio_us

    def time_passed(self, radio_us: int, unacknowledged: int) -> None:
        """Note the time, and how many messages are not acknowledged yet."""
        if unacknowledged:
            self._latest_us = radio_us
        elif self._connected and radio_us - self._latest_us >= QUIET_US:
            self.waits = False


def _same(number: int, other: int) -> bool:
    """Return whether two numbers are one packet's, on different connections."""
    return number & LARGEST_NUMBER == other & LARGEST_NUMBER


def _digest(message: Message) -> bytes:
    digest = blake2b(message.topic.encode(errors="replace"), digest_size=DIGEST_BYTES)
    digest.update(b"\0")
    digest.update(message.payload)
    return digest.digest()
