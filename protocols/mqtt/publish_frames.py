"""Many PUBLISH frames in one buffer, made by columns: one write sends as many of them as may be in flight.

    buffer      [frame][frame  ][frame ]...     each: kind and length, topic, number, payload
    ends              ^        ^       ^
    numbers_at     ^     ^        ^             two bytes each, filled in when a frame is sent

Only quality of service 1 is meant, as in section 3.3 of MQTT 3.1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from protocols.mqtt.frames import (
    LENGTH_BITS,
    LONGEST_LENGTH,
    MORE_BIT,
    UnsendableError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Count = TypeVar("Count", int, NDArray[np.int64])

from protocols.mqtt.sent_frames import number_of

Places: TypeAlias = "NDArray[np.int64]"


PUBLISH_ACKNOWLEDGED = 0x32
"""The first byte of a PUBLISH that is to be acknowledged and not retained."""


NUMBER = b"\0\0"
"""Where the number of a message will be: between its topic and its payload."""


class OversizedMessageError(UnsendableError):
    """A message that is too long for MQTT."""


@dataclass(frozen=True, slots=True)
class PublishFrames:
    """Frames of messages, in the order in which they are to be published.

    Parameters
    ----------
    buffer
        Their bytes, which change when they get their numbers.
    ends
        Where each ends.
    numbers_at
        Where the number of each belongs.
    """

    buffer: bytearray
    ends: Places
    numbers_at: Places

    def __len__(self) -> int:
        return len(self.ends)

    def numbered(self, start: int, stop: int, sent: int) -> memoryview:
        """Give the frames from `start` to `stop` the numbers that follow those of `sent` messages; return their bytes.

        Parameters
        ----------
        start, stop
            Which frames.
        sent
            Messages that were sent before on this connection.
        """
        octets = np.frombuffer(self.buffer, np.uint8)
        numbers, places = number_of(np.arange(sent, sent + stop - start)), self.numbers_at[start:stop]
        octets[places] = numbers >> 8
        octets[places + 1] = numbers & 0xFF
        first = int(self.ends[start - 1]) if start else 0
        return memoryview(self.buffer)[first : int(self.ends[stop - 1])]


def beginnings(lengths: Places) -> tuple[NDArray[np.uint8], Places]:
    """Return the kind and length with which frames begin, one after another, and where each of these ends.

    Parameters
    ----------
    lengths
        Bytes of each frame after its length: topic, number and payload.

    Raises
    ------
    OversizedMessageError
        If a message is too long.

    Examples
    --------
    >>> octets, ends = beginnings(np.array([5, 300]))
    >>> bytes(octets[: ends[0]]).hex(), bytes(octets[ends[0] : ends[1]]).hex()
    ('3205', '32ac02')
    """
    if len(lengths) and int(lengths.max()) >= 1 << LENGTH_BITS * LONGEST_LENGTH:
        raise OversizedMessageError(f"a message of {int(lengths.max()):,} bytes is too long for MQTT")
    counts = 2 + sum((lengths >> LENGTH_BITS * more > 0).astype(np.int64) for more in range(1, LONGEST_LENGTH))
    ends = np.cumsum(counts)
    starts = ends - counts
    octets = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    octets[starts] = PUBLISH_ACKNOWLEDGED
    for place in range(LONGEST_LENGTH):
        there = counts > place + 1
        rest = lengths[there] >> LENGTH_BITS * place
        octets[starts[there] + 1 + place] = (rest & ~MORE_BIT & 0xFF) | np.where(rest >> LENGTH_BITS > 0, MORE_BIT, 0)
    return octets, ends
