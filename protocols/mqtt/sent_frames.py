"""The frames that a client sends, and which of its messages the broker has acknowledged (section 3 of MQTT 5). Pure.

**Which messages of one connection the broker has acknowledged: a window that slides over them.**

    sent           1 2 3 4 5 6 7 8 9          numbers on the wire: FIRST, FIRST + 1, ..., and again from FIRST
    acknowledged   - - - -     -              the first four, and one ahead of its turn

Brokers acknowledge in order, mostly many at once: then one comparison of bytes does for all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from protocols.mqtt.frames import (
    LARGEST_FRAME_BYTES,
    NO_PROPERTIES,
    Properties,
    Property,
    UnsendableError,
    binary_octets,
    length_octets,
    text_octets,
    two_octets,
    write_properties,
)
from protocols.mqtt.messages import Message, Subscription, Version

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Count = TypeVar("Count", int, NDArray[np.int64])

FIRST, NUMBERS = 0x8000, 0x8000
"""Numbers from here on belong to messages sent in this way, the lower ones to single messages and subscriptions."""
ACKNOWLEDGEMENT_BYTES = 4
_PUBACK_TYPE = struct.Struct("!BBH")
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
    return b"".join(_PUBACK_TYPE.pack(0x40, 2, number_of(sent)) for sent in range(NUMBERS)) * 2


CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE = 0x10, 0x30, 0x82, 0xA2
PING = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"
_CLEAN, _WILL, _PASSWORD, _USERNAME, _WILL_RETAIN = 0x02, 0x04, 0x40, 0x80, 0x20
_WILL_QOS_PLACE = 3
_PUBACK = b"\x40\x02"
LARGEST_EXPIRY_SECONDS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Connect:
    """What a client connects with.

    Parameters
    ----------
    client_id
        Name of the client.
    username, password
        Of the client; None for none.
    will
        What the broker publishes when the client vanishes.
    keep_alive_seconds
        The client sends something at least so often.
    receive_maximum
        Messages that the broker may send before they are acknowledged. Only in MQTT 5.
    largest_frame_bytes
        What the broker may send in one frame. Only in MQTT 5.
    session_seconds
        How long the session outlives the connection; None for a session that begins and ends with it.
    """

    client_id: str
    username: str | None = None
    password: str | None = None
    will: Message | None = None
    keep_alive_seconds: int = 60
    receive_maximum: int = 1_000
    largest_frame_bytes: int = LARGEST_FRAME_BYTES
    session_seconds: int | None = None

    def frame(self, version: Version) -> bytes:
        """Return the frame; raises UnsendableError."""
        flags, content = _CLEAN if self.session_seconds is None else 0, [text_octets(self.client_id)]
        if self.will is not None:
            flags |= _WILL | self.will.qos << _WILL_QOS_PLACE | (_WILL_RETAIN if self.will.retain else 0)
            properties = _properties(version, _of_message(self.will))
            content += [properties, topic_octets(self.will.topic), binary_octets(self.will.payload)]
        if self.username is not None:
            flags |= _USERNAME
            content.append(text_octets(self.username))
            if self.password is not None:
                flags |= _PASSWORD
                content.append(binary_octets(self.password.encode()))
        limits = {
            Property.RECEIVE_MAXIMUM: self.receive_maximum,
            Property.MAXIMUM_PACKET_SIZE: self.largest_frame_bytes,
        }
        if self.session_seconds is not None:
            limits[Property.SESSION_EXPIRY] = min(self.session_seconds, LARGEST_EXPIRY_SECONDS)
        head = text_octets("MQTT") + bytes((version, flags)) + two_octets(self.keep_alive_seconds)
        return _frame(CONNECT, head + _properties(version, limits) + b"".join(content))


def publish_frame(version: Version, message: Message, number: int) -> bytes:
    """Return a PUBLISH.

    Parameters
    ----------
    version
        Of MQTT.
    message
        What is published.
    number
        By which the broker acknowledges it; no matter with a quality of service of 0.

    Raises
    ------
    UnsendableError
        If MQTT has no frame for the message.
    """
    topic = topic_octets(message.topic)
    if message.qos:
        topic += number.to_bytes(2, "big")
    if version is Version.V5:
        plain = message.expiry_seconds is None and not message.user_properties
        topic += b"\0" if plain else write_properties(_of_message(message))
    first = PUBLISH | message.qos << 1 | message.retain
    return b"".join((bytes((first,)), length_octets(len(topic) + len(message.payload)), topic, message.payload))


def subscribe_frame(version: Version, subscriptions: Iterable[Subscription], number: int) -> bytes:
    """Return a SUBSCRIBE, with a quality of service of 1 at most; raises UnsendableError."""
    filters = [text_octets(each.filter) + bytes((min(each.qos, 1),)) for each in subscriptions]
    return _frame(SUBSCRIBE, two_octets(number) + _properties(version, NO_PROPERTIES) + b"".join(filters))


def unsubscribe_frame(version: Version, filters: Iterable[str], number: int) -> bytes:
    """Return an UNSUBSCRIBE; raises UnsendableError."""
    content = b"".join(map(text_octets, filters))
    return _frame(UNSUBSCRIBE, two_octets(number) + _properties(version, NO_PROPERTIES) + content)


def acknowledgements(numbers: Sequence[int]) -> bytes:
    """Return a PUBACK for each number that is not 0; they are alike in both versions."""
    return b"".join([_PUBACK + number.to_bytes(2, "big") for number in numbers if number])


def disconnect_frame(version: Version, reason: int) -> bytes:
    """Return a DISCONNECT; only MQTT 5 has a place for a reason."""
    return _frame(DISCONNECT[0], bytes((reason,))) if version is Version.V5 and reason else DISCONNECT


@lru_cache(maxsize=65_536)
def topic_octets(topic: str) -> bytes:
    """Return a topic as it is written; raises UnsendableError if messages cannot be published on it."""
    if not topic or "+" in topic or "#" in topic:
        raise UnsendableError(f"no message can be published on the topic {topic[:80]!r}")
    return text_octets(topic)


def _of_message(message: Message) -> Properties:
    found: dict[Property, Any] = {}
    if message.expiry_seconds is not None:
        found[Property.MESSAGE_EXPIRY] = min(max(0, message.expiry_seconds), LARGEST_EXPIRY_SECONDS)
    if message.user_properties:
        found[Property.USER_PROPERTY] = message.user_properties
    return found


def _properties(version: Version, properties: Properties) -> bytes:
    return write_properties(properties) if version is Version.V5 else b""


def _frame(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + length_octets(len(body)) + body
