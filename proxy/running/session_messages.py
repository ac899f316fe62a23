"""Which messages of the devices' session may be acknowledged to the broker, and which it has sent again.

Pure. A message is acknowledged once what it led to is on disk, in the order in which messages came::

    received       1 2 3 4 5 6 7      5 waits in a driver to be merged with another
    cut            - - - - |          what 1 to 4 led to is in batches, if they led to anything
    written        - - - - |          their numbers and digests are on disk with these batches
    acknowledged   - - - -

After a crash between the last two the broker sends 1 to 4 again, marked as such: they are known by number and digest.
The same payload under another number, or without the mark, is another message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from protocols.mqtt.connection import LARGEST_NUMBER
from protocols.mqtt.messages import Message
from proxy.storage.spool import MOST_SESSION_MESSAGES, SessionMessage

DIGEST_BYTES = 8
QUIET_US = 2_000_000
"""How long nothing comes from a broker that has sent all that has waited."""


@dataclass(slots=True)
class _Received:
    number: int
    message: SessionMessage | None
    """None if it was sent again, and is known."""
    handled_us: int


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
        self._cut = self._written = 0
        """How many of those that wait belong to the last cut, and how many of these are on disk."""
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
        if not known:
            self._note(found)
        return not known

    def handled(self, now_us: int) -> None:
        """Note that all messages noted so far were handled by now, on a clock that never goes back."""
        self._waiting += [_Received(*each, now_us) for each in self._handling]
        self._handling.clear()

    def cut(self, held_since_us: int | None = None) -> list[SessionMessage]:
        """Note that all that waited was cut into batches; return the messages to store with these.

        Parameters
        ----------
        held_since_us
            When the first message was received that has not led to a tuple yet, and may; None if there is none.
        """
        before, count = self._cut, len(self._waiting)
        if held_since_us is not None:
            while count > before and self._waiting[count - 1].handled_us >= held_since_us:
                count -= 1
        self._cut = max(before, count)
        return [each.message for each in self._waiting[before : self._cut] if each.message is not None]

    def written(self) -> None:
        """Note that what was cut last is on disk."""
        self._written = self._cut

    def take(self) -> list[int]:
        """Remove and return the numbers by which messages may be acknowledged now, in order."""
        numbers = [each.number for each in self._waiting[: self._written]]
        del self._waiting[: self._written]
        self._cut -= self._written
        self._written = 0
        return numbers

    def _note(self, message: SessionMessage) -> None:
        self._known[message.number] = message.digest
        self._known.move_to_end(message.number)
        if len(self._known) > self._most:
            self._known.popitem(last=False)


class Backlog:
    """Whether messages of devices from before may still wait at the broker.

    While they may, no low watermark of a device moves: what has waited there is older than a device's own messages may
    be late. The broker does not say which message was the last that waited. But it sends all of them as fast as they
    are acknowledged, so that none is left once all were acknowledged and nothing came for a while.

    Parameters
    ----------
    waits
        Whether the broker may have kept messages while there was no proxy.
    """

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        self._connected = False
        self._latest_us = 0

    def lost(self) -> None:
        """Note that the connection is lost: from now on messages wait at the broker."""
        self.waits, self._connected = True, False

    def opened(self, radio_us: int, *, kept: bool) -> None:
        """Note a connection; `kept` is whether the broker has kept messages for it."""
        self.waits, self._connected, self._latest_us = kept, True, radio_us

    def received(self, radio_us: int) -> None:
        """Note messages of the connection."""
        self._latest_us = radio_us

    def time_passed(self, radio_us: int, unacknowledged: int) -> None:
        """Note the time, and how many messages are not acknowledged yet."""
        if unacknowledged:
            self._latest_us = radio_us
        elif self._connected and radio_us - self._latest_us >= QUIET_US:
            self.waits = False


def _digest(message: Message) -> bytes:
    digest = blake2b(message.topic.encode(errors="replace"), digest_size=DIGEST_BYTES)
    digest.update(b"\0")
    digest.update(message.payload)
    return digest.digest()
