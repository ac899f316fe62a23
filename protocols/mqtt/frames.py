"""Frames of MQTT: elements, properties, and a broker's bytes divided (sections 1.5, 2, 3.3 of MQTT 5). Pure.

**Dividing the bytes of a broker into frames (sections 2.1 and 3.3 of MQTT 5, 2.2 and 3.3 of MQTT 3.1.1).**

A frame is a byte with its kind, one to four bytes of length, lowest seven bits first, and its body. Most frames are
messages, so these are decoded here, many at a time. With MQTT 5 a message has properties, mostly none, before its
payload.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from protocols.errors import ProtocolError
from protocols.mqtt.messages import Message, Version

MORE_BIT, LENGTH_BITS = 0x80, 7
"""Each byte of a length holds seven bits of it, the lowest first, and whether more follow."""
LONGEST_LENGTH = 4
"""Bytes of a length."""
LARGEST_LENGTH = (1 << LENGTH_BITS * LONGEST_LENGTH) - 1
LARGEST_TEXT_BYTES = 0xFFFF
CACHED_TEXT_BYTES = 256
"""Longer texts are not cached, so that the cache stays small."""
_TWO, _FOUR = struct.Struct("!H"), struct.Struct("!I")


class MalformedFrameError(ProtocolError):
    """Bytes of the broker that are not MQTT, or that MQTT forbids it to send."""


class UnsendableError(ProtocolError):
    """A message, name or filter that MQTT has no frame for."""


def length_octets(length: int) -> bytes:
    """Return a length as it is written.

    Raises
    ------
    UnsendableError
        If it is too long for a frame.

    Examples
    --------
    >>> length_octets(5).hex(), length_octets(300).hex()
    ('05', 'ac02')
    """
    if length < MORE_BIT:
        return length.to_bytes(1, "big")
    if length > LARGEST_LENGTH:
        raise UnsendableError(f"{length:,} bytes are too long for a frame of MQTT")
    found = bytearray()
    while length >= MORE_BIT:
        found.append(length & MORE_BIT - 1 | MORE_BIT)
        length >>= LENGTH_BITS
    found.append(length)
    return bytes(found)


def two_octets(number: int) -> bytes:
    """Return a number below 65,536 as it is written."""
    return _TWO.pack(number)


def four_octets(number: int) -> bytes:
    """Return a number of 32 bits as it is written."""
    return _FOUR.pack(number)


def binary_octets(data: bytes) -> bytes:
    """Return bytes with their length before them; raises UnsendableError if they are too long."""
    if len(data) > LARGEST_TEXT_BYTES:
        raise UnsendableError(f"{len(data):,} bytes are more than the {LARGEST_TEXT_BYTES:,} that MQTT allows")
    return _TWO.pack(len(data)) + data


@lru_cache(maxsize=65_536)
def _text_octets(text: str) -> bytes:
    if "\0" in text:
        raise UnsendableError(f"{text[:80]!r} contains a zero character")
    try:
        return binary_octets(text.encode())
    except UnicodeEncodeError as error:
        raise UnsendableError(f"{text[:80]!r} is not Unicode") from error


def text_octets(text: str) -> bytes:
    """Return a text as it is written; raises UnsendableError if it is too long, or contains what MQTT forbids."""
    # Few topics are published on many times.
    return _text_octets(text) if len(text) <= CACHED_TEXT_BYTES else _text_octets.__wrapped__(text)


class Octets:
    """Bytes that are read from the first to the last; whatever is missing is a :class:`MalformedFrameError`.

    Parameters
    ----------
    received
        Contains them.
    start, end
        Where they begin and end; `end` is inside of `received`.
    """

    __slots__ = ("_end", "_received", "place")

    def __init__(self, received: bytes, start: int, end: int) -> None:
        self._received = received
        self._end = end
        self.place = start
        """Where the next element begins."""

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self._end - self.place

    def raw(self, count: int) -> bytes:
        """Read so many bytes."""
        start, self.place = self.place, self.place + count
        if self.place > self._end:
            raise MalformedFrameError("a frame is shorter than its content")
        return self._received[start : self.place]

    def one(self) -> int:
        """Read a number of one byte."""
        return self.raw(1)[0]

    def two(self) -> int:
        """Read a number of two bytes."""
        return int.from_bytes(self.raw(2), "big")

    def four(self) -> int:
        """Read a number of four bytes."""
        return int.from_bytes(self.raw(4), "big")

    def length(self) -> int:
        """Read a length."""
        found = 0
        for place in range(LONGEST_LENGTH):
            octet = self.one()
            found |= (octet & ~MORE_BIT) << LENGTH_BITS * place
            if not octet & MORE_BIT:
                return found
        raise MalformedFrameError("a length has more than four bytes")

    def binary(self) -> bytes:
        """Read bytes with their length before them."""
        return self.raw(self.two())

    def text(self) -> str:
        """Read a text."""
        try:
            return self.binary().decode()
        except UnicodeDecodeError as error:
            raise MalformedFrameError("a text is not UTF-8") from error


class Property(IntEnum):
    """All properties, by their numbers on the wire."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


Properties: TypeAlias = Mapping[Property, Any]
"""A value each; a list of values of those that may be repeated."""

REPEATED = frozenset({Property.USER_PROPERTY, Property.SUBSCRIPTION_ID})
NO_PROPERTIES: Properties = MappingProxyType({})


def _pair_octets(pair: tuple[str, str]) -> bytes:
    return text_octets(pair[0]) + text_octets(pair[1])


def _pair(octets: Octets) -> tuple[str, str]:
    return octets.text(), octets.text()


_Kind: TypeAlias = "tuple[Callable[[Octets], Any], Callable[[Any], bytes]]"
_ONE: _Kind = (Octets.one, lambda number: bytes((number,)))
_TWO_BYTES: _Kind = (Octets.two, two_octets)
_FOUR_BYTES: _Kind = (Octets.four, four_octets)
_LENGTH: _Kind = (Octets.length, length_octets)
_BINARY: _Kind = (Octets.binary, binary_octets)
_TEXT: _Kind = (Octets.text, text_octets)
_KINDS: Mapping[Property, _Kind] = MappingProxyType(
    {
        **dict.fromkeys(Property, _ONE),
        **dict.fromkeys(
            (
                Property.SERVER_KEEP_ALIVE,
                Property.RECEIVE_MAXIMUM,
                Property.TOPIC_ALIAS_MAXIMUM,
                Property.TOPIC_ALIAS,
            ),
            _TWO_BYTES,
        ),
        **dict.fromkeys(
            (
                Property.MESSAGE_EXPIRY,
                Property.SESSION_EXPIRY,
                Property.WILL_DELAY,
                Property.MAXIMUM_PACKET_SIZE,
            ),
            _FOUR_BYTES,
        ),
        Property.SUBSCRIPTION_ID: _LENGTH,
        **dict.fromkeys((Property.CORRELATION_DATA, Property.AUTHENTICATION_DATA), _BINARY),
        **dict.fromkeys(
            (
                Property.CONTENT_TYPE,
                Property.RESPONSE_TOPIC,
                Property.ASSIGNED_CLIENT_ID,
                Property.AUTHENTICATION_METHOD,
                Property.RESPONSE_INFORMATION,
                Property.SERVER_REFERENCE,
                Property.REASON_STRING,
            ),
            _TEXT,
        ),
        Property.USER_PROPERTY: (_pair, _pair_octets),
    }
)


def write_properties(properties: Properties) -> bytes:
    """Return properties as they are written, with their length before them.

    Raises
    ------
    UnsendableError
        If a text is too long.

    Examples
    --------
    >>> write_properties({Property.MESSAGE_EXPIRY: 60}).hex()
    '05020000003c'
    """
    found = bytearray()
    for name, value in properties.items():
        write = _KINDS[name][1]
        for each in value if name in REPEATED else (value,):
            found.append(name)
            found += write(each)
    return length_octets(len(found)) + bytes(found)


def read_properties(octets: Octets) -> Properties:
    """Read properties, with their length before them.

    Raises
    ------
    MalformedFrameError
        If there is one that MQTT does not know, one is repeated that must not be, or is not complete.
    """
    length = octets.length()
    if length == 0:
        return NO_PROPERTIES
    if length > octets.left:
        raise MalformedFrameError("a frame is shorter than its properties")
    end = octets.place + length
    found: dict[Property, Any] = {}
    while octets.place < end:
        number = octets.one()
        try:
            name = Property(number)
        except ValueError as error:
            raise MalformedFrameError(f"MQTT has no property {number}") from error
        value = _KINDS[name][0](octets)
        if name in REPEATED:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise MalformedFrameError(f"a property is repeated: {name.name.lower()}")
        else:
            found[name] = value
    if octets.place > end:
        raise MalformedFrameError("a property is longer than all properties")
    return found


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
