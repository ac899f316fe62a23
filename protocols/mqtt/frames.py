"""Dividing the bytes of a socket into frames of MQTT 3.1.1 (its sections 2.2 and 3.3). Pure.

A frame is a byte with its kind, one to four bytes of length, lowest seven bits first, and its body. Most frames are
messages, so these are decoded here, many at a time.
"""

from __future__ import annotations

from functools import lru_cache

from protocols.errors import ProtocolError
from protocols.mqtt.messages import Message

KIND_BITS, PUBLISH = 0xF0, 0x30
RETAIN_BIT, QUALITY_BITS = 0x01, 0x06
"""In the first byte of a PUBLISH."""
_MORE_BIT = 0x80
_LONGEST_LENGTH = 4


class MalformedFrameError(ProtocolError):
    """Bytes that are not MQTT."""


@lru_cache(maxsize=65_536)
def topic_of(name: bytes) -> str:
    """Return a topic as text; cached, since few motes send many packets, and known texts have their hashes."""
    return name.decode(errors="replace")


def take_messages(received: bytes, start: int, messages: list[Message], numbers: list[int]) -> int:
    """Read the PUBLISH frames at the beginning.

    Parameters
    ----------
    received, start
        The bytes, and the place where a frame begins.
    messages, numbers
        Lists to append the messages to, and the numbers to acknowledge them by: 0 for a message with a quality of
        service of 0.

    Returns
    -------
    int
        Where the first frame of another kind, or an incomplete one, begins.

    Raises
    ------
    MalformedFrameError
        If the bytes are not MQTT.
    """
    last = len(received) - 2
    while start <= last and received[start] & KIND_BITS == PUBLISH:
        length, body = received[start + 1], start + 2
        if length & _MORE_BIT:
            length, body = _long_length(received, start)
        end = body + length
        if end > len(received):
            break
        first = received[start]
        name = body + 2
        payload = name + int.from_bytes(received[body:name], "big")
        topic = topic_of(received[name:payload])
        number = 0
        if first & QUALITY_BITS:
            number = int.from_bytes(received[payload : payload + 2], "big")
            payload += 2
        if payload > end:
            raise MalformedFrameError("a message is shorter than its topic")
        messages.append(Message(topic, received[payload:end], (first & QUALITY_BITS) >> 1, bool(first & RETAIN_BIT)))
        numbers.append(number)
        start = end
    return start


def frame_end(received: bytes, start: int) -> int | None:
    """Return where the frame that begins at `start` ends, None if it is not complete; raises MalformedFrameError."""
    if start + 2 > len(received):
        return None
    length, body = _long_length(received, start)
    return body + length if body + length <= len(received) else None


def _long_length(received: bytes, start: int) -> tuple[int, int]:
    """Return the length of a frame's body and its place; a place behind the received bytes if they are not complete."""
    length = 0
    for place in range(_LONGEST_LENGTH):
        where = start + 1 + place
        if where >= len(received):
            return 0, len(received) + 1
        length |= (received[where] & ~_MORE_BIT) << 7 * place
        if not received[where] & _MORE_BIT:
            return length, where + 1
    raise MalformedFrameError("the length of a frame has more than four bytes")
