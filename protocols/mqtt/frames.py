"""Dividing the bytes of a broker into frames (sections 2.1 and 3.3 of MQTT 5, 2.2 and 3.3 of MQTT 3.1.1). Pure.

A frame is a byte with its kind, one to four bytes of length, lowest seven bits first, and its body. Most frames are
messages, so these are decoded here, many at a time. With MQTT 5 a message has properties, mostly none, before its
payload.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from protocols.mqtt.messages import Message, Version
from protocols.mqtt.octets import CACHED_TEXT_BYTES, LENGTH_BITS, LONGEST_LENGTH, MORE_BIT, MalformedFrameError, Octets
from protocols.mqtt.properties import Property, read_properties

KIND_BITS, PUBLISH = 0xF0, 0x30
RETAIN_BIT, QUALITY_BITS, TWICE_BIT, ONCE, AGAIN_BIT = 0x01, 0x06, 0x04, 0x02, 0x08
"""In the first byte of a PUBLISH: retained; quality of service; its bit for 2; all of it for 1; sent before."""
_AGAIN = PUBLISH | AGAIN_BIT
LARGEST_FRAME_BYTES = 32 * 1024**2
"""What a broker may send in one frame. Fjord's brokers allow half of it."""


class Bounds(NamedTuple):
    """Where the body of a frame begins and ends; the end may lie behind what was received."""

    body: int
    end: int


@lru_cache(maxsize=65_536)
def _known_topic(name: bytes) -> str:
    return name.decode(errors="replace")


def topic_of(name: bytes) -> str:
    """Return a topic as text; cached, since few motes send many packets, and known texts have their hashes."""
    return _known_topic(name) if len(name) <= CACHED_TEXT_BYTES else name.decode(errors="replace")


def take_messages(
    received: bytes, start: int, messages: list[Message], numbers: list[int], version: Version = Version.V3_1_1
) -> int:
    """Read the PUBLISH frames at the beginning.

    Parameters
    ----------
    received, start
        The bytes, and the place where a frame begins.
    messages, numbers
        Lists to append the messages to, and the numbers to acknowledge them by: 0 for a message with a quality of
        service of 0.
    version
        Of MQTT.

    Returns
    -------
    int
        Where the first frame of another kind, or an incomplete one, begins.

    Raises
    ------
    MalformedFrameError
        If the bytes are not MQTT, or a message has a quality of service of 2, to which Fjord never subscribes.
    """
    last = len(received) - 2
    has_properties = version is Version.V5
    while start <= last and received[start] & KIND_BITS == PUBLISH:
        length, body = received[start + 1], start + 2
        if length & MORE_BIT:
            body, end = _long_bounds(received, start)
        else:
            end = body + length
        if end > len(received):
            break
        first = received[start]
        name = body + 2
        payload = name_end = name + int.from_bytes(received[body:name], "big")
        number = 0
        if first & QUALITY_BITS:
            number = int.from_bytes(received[payload : payload + 2], "big")
            payload += 2
            if number == 0 or first & TWICE_BIT:
                raise MalformedFrameError("a message has no number, or a quality of service of 2")
        if payload > end or name_end == name:
            raise MalformedFrameError("a message is shorter than its topic, or has none")
        topic = topic_of(received[name:name_end])
        start, retain = end, bool(first & RETAIN_BIT)
        if has_properties:
            if payload < end and received[payload] == 0:
                payload += 1
            else:
                again = bool(first & AGAIN_BIT)
                octets = Octets(received, payload, end)
                messages.append(_message_with_properties(topic, octets, number, retain=retain, again=again))
                numbers.append(number)
                continue
        message = Message(topic, received[payload:end], 1 if number else 0, retain)
        messages.append(message if first < _AGAIN else msgspec.structs.replace(message, again=True))
        numbers.append(number)
    return start


def frame_bounds(received: bytes, start: int, largest: int = LARGEST_FRAME_BYTES) -> Bounds | None:
    """Return the bounds of the frame that begins at `start`; None if its length is not complete.

    Raises
    ------
    MalformedFrameError
        If its length is none, or more than `largest`.
    """
    if start + 2 > len(received):
        return None
    bounds = _long_bounds(received, start)
    if bounds.body > len(received):
        return None
    if bounds.end - start > largest:
        raise MalformedFrameError(f"a frame of {bounds.end - start:,} bytes is longer than {largest:,}")
    return bounds


def frame_end(received: bytes, start: int) -> int | None:
    """Return where the frame that begins at `start` ends, None if it is not complete; raises MalformedFrameError."""
    bounds = frame_bounds(received, start)
    return None if bounds is None or bounds.end > len(received) else bounds.end


class FrameBuffer:
    """Bytes of a frame that is not complete: however many pieces it comes in, it takes little more than its length.

    Parameters
    ----------
    largest
        Bytes of the longest frame that is accepted.
    """

    def __init__(self, largest: int = LARGEST_FRAME_BYTES) -> None:
        self._largest = largest
        self._held = bytearray()
        self._needed = 0

    def joined(self, data: bytes) -> bytes | None:
        """Return what is there with `data` behind it; None while that is no whole frame."""
        if not self._held:
            return data
        if len(self._held) + len(data) < self._needed:
            self._held += data
            return None
        found = b"".join((self._held, data))
        self._held = bytearray()
        return found

    def keep(self, received: bytes, start: int) -> None:
        """Keep the incomplete frame that begins at `start`, if there is one; raises MalformedFrameError."""
        if start < len(received):
            bounds = frame_bounds(received[start : start + 1 + LONGEST_LENGTH], 0, self._largest)
            self._held += memoryview(received)[start:]
            self._needed = len(self._held) + 1 if bounds is None else bounds.end


def _message_with_properties(topic: str, octets: Octets, number: int, *, retain: bool, again: bool) -> Message:
    properties = read_properties(octets)
    if Property.TOPIC_ALIAS in properties:
        raise MalformedFrameError("a message has a topic alias, which Fjord does not allow")
    return Message(
        topic,
        octets.raw(octets.left),
        1 if number else 0,
        retain,
        properties.get(Property.MESSAGE_EXPIRY),
        tuple(properties.get(Property.USER_PROPERTY, ())),
        again=again,
    )


def _long_bounds(received: bytes, start: int) -> Bounds:
    """Return the bounds of a frame; both behind the received bytes if its length is not complete."""
    length = 0
    for place in range(LONGEST_LENGTH):
        where = start + 1 + place
        if where >= len(received):
            return Bounds(len(received) + 1, len(received) + 1)
        length |= (received[where] & ~MORE_BIT) << LENGTH_BITS * place
        if not received[where] & MORE_BIT:
            return Bounds(where + 1, where + 1 + length)
    raise MalformedFrameError("a length has more than four bytes")
