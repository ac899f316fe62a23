"""The elements that frames of MQTT are made of (section 1.5 of MQTT 5), written and read. Pure."""

from __future__ import annotations

import struct
from functools import lru_cache

from protocols.errors import ProtocolError

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
