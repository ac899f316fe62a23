"""What a log of events consists of: segment files with a header, and chunks of entries.

    segment   magic, then frames: length, checksum, MessagePack; the first is the header, all others are chunks
    chunk     the instant at which it begins, and entries
    entry     a turn of the event loop; below it its inputs, then what was sent in it

Turns of the loop are what makes a replay exact: in each the same inputs meet the same timers, in the same order.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import FjordError
from protocols.mqtt.messages import Message

FORMAT = 1
MAGIC = b"fjordlog"
PLAIN, RETAINED, AGAIN = 1, 4, 64
"""Flags of a message: its quality of service, whether it was retained, and whether it had been sent before."""
REFUSALS = ("", "unsealed", "forged", "replayed", "too_many_topics")
REFUSED_SHIFT = 3
"""By how many bits the place of a refusal in these is shifted among the flags."""
MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Of a header with a copy of the state, or a chunk."""
MOST_PAUSE_NS = 86_400 * 10**9
"""Between two turns: parts have timers of seconds. So a log from anywhere cannot let a part make up for centuries."""
LATEST_NS = 2**62
SUFFIX = ".fjordlog"

Instant = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Text = Annotated[str, Meta(max_length=65_536)]


class LogError(FjordError):
    """A log of events that cannot be written or read."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a segment.

    Parameters
    ----------
    format
        Of the log.
    part, name
        What was recorded: ``proxy``, ``cluster``; and which one.
    run
        Drawn when the process began: segments of one run belong together.
    begins
        Whether the process began here. If not, replaying from here begins with `state`, as a restart would.
    settings
        Of the part, without secrets.
    versions
        Of Fjord and Python.
    state
        Files of the data folder, by name, as they were then.
    left_out
        Files that `state` lacks because they are too large.
    documents
        Texts of further files that the part reads when it begins, by name.
    """

    format: int
    part: Text
    name: Text
    run: Text
    begins: bool
    settings: dict[str, int | float | str | bool | None]
    versions: dict[str, str]
    state: dict[str, bytes]
    left_out: tuple[Text, ...] = ()
    documents: dict[str, str] = {}


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Base of all entries."""


class Turn(Entry, frozen=True, tag=0, gc=False):
    """A turn of the loop, so long after the one before; `waited`: nothing could be done before."""

    after_ns: Annotated[int, Meta(ge=0, le=MOST_PAUSE_NS)]
    waited: bool


class WallClock(Entry, frozen=True, tag=1, gc=False):
    """From this turn on the time of day is so far ahead of the monotonic clock."""

    ahead_ns: Instant


class ClockRead(Entry, frozen=True, tag=2, gc=False):
    """The reading of a clock, so many after the log began, that showed that time had passed within its turn."""

    number: Count
    now_ns: Instant


class Messages(Entry, frozen=True, tag=3):
    """Messages that arrived together, by columns: there are many.

    Parameters
    ----------
    topics, payloads
        Of each.
    flags
        Of each its quality of service, 4 more if it was retained, and 8 times the place of its refusal; empty if all
        are :data:`PLAIN`.
    numbers
        Of each its number in a session that lasts; empty if there is none.
    """

    topics: tuple[Text, ...]
    payloads: tuple[bytes, ...]
    flags: bytes = b""
    numbers: tuple[Count, ...] = ()

    def __post_init__(self) -> None:
        known = {0, len(self.topics)}
        if len(self.topics) != len(self.payloads) or len(self.flags) not in known or len(self.numbers) not in known:
            raise ValueError("topics, payloads and flags are of different messages")

    def flags_of_each(self) -> bytes:
        """Return the flags of all messages."""
        return self.flags or bytes([PLAIN]) * len(self.topics)

    def numbers_of_each(self) -> tuple[int, ...]:
        """Return the numbers of all messages."""
        return self.numbers or (0,) * len(self.topics)


class Connected(Entry, frozen=True, tag=4):
    """The link has a connection."""


class Disconnected(Entry, frozen=True, tag=5):
    """It has lost it."""


class Published(Entry, frozen=True, tag=6):
    """What has become of the message number `nth` to a topic; `error` is why it was not published."""

    topic: Text
    nth: Count
    error: Text | None = None


class Worked(Entry, frozen=True, tag=7):
    """A thread has done the piece of work number `nth` of a task."""

    task: Text
    nth: Count


class Stopped(Entry, frozen=True, tag=8):
    """The part was asked to stop."""


class Sent(Entry, frozen=True, tag=9):
    """A message that the part published, and what it was handling: the stimulus id of a message, or a task."""

    topic: Text
    payload: bytes
    qos: int
    retain: bool
    cause: Text


class Began(Entry, frozen=True, tag=10):
    """A task wants piece of work number `nth` to be done in a thread."""

    task: Text
    nth: Count


class Requested(Entry, frozen=True, tag=11):
    """A request over HTTP that may change something, without what proves that it may."""

    method: Annotated[str, Meta(max_length=16)]
    path: Text
    query: bytes
    content_type: Annotated[str, Meta(max_length=256)]
    body: bytes


AnyEntry = (
    Turn
    | WallClock
    | ClockRead
    | Messages
    | Connected
    | Disconnected
    | Published
    | Worked
    | Stopped
    | Sent
    | Began
    | Requested
)
Input = Messages | Connected | Disconnected | Published | Worked | Stopped | Requested


class Chunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Entries of some turns.

    Parameters
    ----------
    now_ns, ahead_ns
        The monotonic clock before its first turn, and how far the time of day was ahead of it.
    connected
        Whether there was a connection.
    """

    now_ns: Instant
    ahead_ns: Instant
    connected: bool
    entries: tuple[AnyEntry, ...]


encode = msgspec.msgpack.Encoder().encode
_header_decoder = msgspec.msgpack.Decoder(Header)
_chunk_decoder = msgspec.msgpack.Decoder(Chunk)
_NOT_READABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_header(content: bytes) -> Header:
    """Return a header.

    Raises
    ------
    LogError
        It is none, or of another format.
    """
    try:
        header = _header_decoder.decode(content)
    except _NOT_READABLE as error:
        raise LogError(f"a log of events begins with no header: {error}") from error
    if header.format != FORMAT:
        raise LogError(
            f"a log of events has format {header.format}, this program reads format {FORMAT}",
            hint="replay it with the version that has recorded it",
        )
    return header


def decode_chunk(content: bytes) -> Chunk:
    """Return a chunk; raises LogError."""
    try:
        return _chunk_decoder.decode(content)
    except _NOT_READABLE as error:
        raise LogError(f"a log of events is damaged: {error}") from error


def flags_of(message: Message) -> int:
    """Return the flags of a message that was received."""
    refused = REFUSALS.index(message.refusal) << REFUSED_SHIFT if message.refusal else 0
    return message.qos | refused | (RETAINED if message.retain else 0) | (AGAIN if message.again else 0)


def with_flags(topic: str, payload: bytes, flags: int, number: int = 0) -> Message:
    """Return a message that was received; raises LogError if the flags are none."""
    again, plain = bool(flags & AGAIN), flags & ~AGAIN
    if plain >> REFUSED_SHIFT >= len(REFUSALS):
        raise LogError(f"a log of events is damaged: a message has the flags {flags}")
    refusal = REFUSALS[plain >> REFUSED_SHIFT]
    quality, retain = plain & (RETAINED - 1), bool(plain & RETAINED)
    return Message(topic, payload, quality, retain, refusal=refusal, again=again, number=number)
