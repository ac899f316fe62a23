"""Seals what a part publishes, and opens what it receives: by topic, with the part's keys, each frame once.

**Which sealed frames were seen before, and how those that are sent are counted.**

A counter is the number of a connection, and below it that of a frame::

    connection 1764057600    1  2  3  4 ...... 4294967295      the last number is that of the will
    connection 1764057723    1  2 ...

Connections are numbered by the time of day in seconds, and by one more than the last where that is not later: a clock
that is set back does no harm, nor does a data folder that is restored from a copy; only both together do. A receiver
accepts of each topic what has a higher counter than all before. The broker sends what it retains again: the same frame.

**Sealed frames: the bytes of a frame between a mark and what proves from which part it is, and for which topic.**

    mote leg    0xC1 | frame | tag                        4 bytes: BLAKE2s with the mote's key, over topic and frame
    part leg    0xC1 | counter | frame | signature        8 and 64 bytes: Ed25519, over topic, counter and frame

No frame begins with 0xC1: it is never used in MessagePack. A tag is as short as TinySec's: a forger needs two
thousand million attempts on average, all of them counted, and each byte costs a mote energy.

A link to the broker is given one of these (:class:`protocols.mqtt.messages.Seals`). What is not among Fjord's frames,
such as results and messages of devices, passes as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec.structs import replace

from protocols.errors import FrameError, SettingsError, TopicError
from protocols.event_log import get_logger
from protocols.mqtt.messages import Message
from protocols.sealing.keys import MoteKeys, PartKeys, read_mote_keys, read_part_keys
from protocols.wire import topics
from protocols.wire.demands import PIECES
from protocols.wire.packets import SEAL_BYTES

_NUMBER_BITS: Final = 32
WILL: Final = 2**_NUMBER_BITS - 1
"""The number of the will: it is sealed first, and published last."""


class SentCounter:
    """Counts the frames that a part sends. Pure.

    Parameters
    ----------
    connection
        The number of the last connection.
    """

    def __init__(self, connection: int = 0) -> None:
        self.connection = connection
        self._number = 0

    def connect(self, now_seconds: int) -> None:
        """Begin a connection."""
        self.connection = max(self.connection + 1, now_seconds)
        self._number = 0

    def next(self) -> int:
        """Return the counter of the next frame; raises OverflowError after so many that none is left."""
        self._number += 1
        if self._number >= WILL:
            raise OverflowError("a connection has at most 2^32 - 2 frames")
        return self.connection << _NUMBER_BITS | self._number

    def of_will(self) -> int:
        """Return the counter of the will of this connection."""
        return self.connection << _NUMBER_BITS | WILL


class SeenCounters:
    """The highest counter of each topic, of a bounded number of topics. Pure.

    Parameters
    ----------
    seen
        From before a restart.
    bound_of
        With which others a topic is counted, and how many there may be of these. None: as many as there are.
    """

    def __init__(
        self, seen: Mapping[str, int] | None = None, *, bound_of: Callable[[str], tuple[str, int]] | None = None
    ) -> None:
        self.seen: dict[str, int] = dict(seen or {})
        self._bound_of = bound_of
        self._topics: Counter[str] = Counter(bound_of(each)[0] for each in self.seen) if bound_of else Counter()

    def accept(self, topic: str, counter: int, *, retained: bool) -> None:
        """Accept a frame whose seal is right.

        Raises
        ------
        FrameError
            With reason ``replayed`` if it, or a later one, was accepted before; ``too_many_topics`` if it is the first
            on its topic, and there are as many as there may be.
        """
        last = self.seen.get(topic)
        if last is None:
            self._add(topic)
        elif counter < last or (counter == last and not retained):
            raise FrameError("replayed", f"frame {counter} came after frame {last}")
        self.seen[topic] = counter

    def _add(self, topic: str) -> None:
        if self._bound_of is None:
            return
        counted, most = self._bound_of(topic)
        if self._topics[counted] >= most:
            raise FrameError("too_many_topics", f"there are {most} topics of this kind already")
        self._topics[counted] += 1


MARK: Final = 0xC1
_MARK: Final = bytes([MARK])
TAG_BYTES: Final = 4
COUNTER_BYTES: Final = 8
SIGNATURE_BYTES: Final = 64
MOTE_SEAL_BYTES: Final = SEAL_BYTES
PART_SEAL_BYTES: Final = 1 + COUNTER_BYTES + SIGNATURE_BYTES
REASONS: Final = ("unsealed", "forged", "replayed", "too_many_topics")
"""Why a message is refused; metric labels."""
_UP, _DOWN = b"fjord up", b"fjordown"
_SIGNED: Final = b"fjord sealed frame 1\0"


def unsealed() -> FrameError:
    """Return the error of a frame without a seal, where keys are in use."""
    return FrameError("unsealed", "the frame has no seal", hint="give its sender a key: docs/how-to/use-keys.md")


def forged(detail: str) -> FrameError:
    """Return the error of a frame whose seal is not that of its sender."""
    return FrameError("forged", detail)


class MoteSeal:
    """Seals and opens the frames of one mote on one topic. Pure.

    Parameters
    ----------
    secret
        Of the mote.
    topic
        Where the frames are published: a tag of another topic is none here.
    to_mote
        Whether the proxy seals; each direction has a key of its own.
    """

    __slots__ = ("_base",)

    def __init__(self, secret: bytes, topic: str, *, to_mote: bool) -> None:
        key = hashlib.blake2s(secret, person=_DOWN if to_mote else _UP).digest()
        self._base = hashlib.blake2s(topic.encode() + b"\0", key=key, digest_size=TAG_BYTES)

    def seal(self, frame: bytes) -> bytes:
        """Return a frame as it is sent."""
        return b"".join((_MARK, frame, self._tag(frame)))

    def open(self, payload: bytes) -> bytes:
        """Return the frame in a payload.

        Raises
        ------
        FrameError
            With reason ``unsealed`` or ``forged``.
        """
        if payload[:1] != _MARK:
            raise unsealed()
        frame = payload[1:-TAG_BYTES]
        if len(payload) < MOTE_SEAL_BYTES or not hmac.compare_digest(self._tag(frame), payload[-TAG_BYTES:]):
            raise forged("the tag is not that of the mote's key")
        return frame

    def _tag(self, frame: bytes) -> bytes:
        state = self._base.copy()
        state.update(frame)
        return state.digest()


def seal(key: Ed25519PrivateKey, topic: str, counter: int, frame: bytes) -> bytes:
    """Return a frame of a proxy or cluster as it is sent. Pure."""
    number = counter.to_bytes(COUNTER_BYTES, "big")
    return b"".join((_MARK, number, frame, key.sign(_signed(topic, number, frame))))


def open_sealed(key: Ed25519PublicKey, topic: str, payload: bytes) -> tuple[int, bytes]:
    """Return counter and frame of a payload of a proxy or cluster. Pure.

    Raises
    ------
    FrameError
        With reason ``unsealed`` or ``forged``.
    """
    if payload[:1] != _MARK:
        raise unsealed()
    if len(payload) < PART_SEAL_BYTES:
        raise forged("the seal is cut off")
    number, frame = payload[1 : 1 + COUNTER_BYTES], payload[1 + COUNTER_BYTES : -SIGNATURE_BYTES]
    try:
        key.verify(payload[-SIGNATURE_BYTES:], _signed(topic, number, frame))
    except InvalidSignature:
        raise forged("the signature is not that of the sender's key") from None
    return int.from_bytes(number, "big"), frame


def _signed(topic: str, number: bytes, frame: bytes) -> bytes:
    """Return what is signed: a digest, as Ed25519 reads its message twice, and batches are large."""
    return _SIGNED + hashlib.blake2b(b"\0".join((topic.encode(), number + frame)), digest_size=32).digest()


log = get_logger(__name__)

OF_MOTES: Final = frozenset({"packet", "announcement", "control"})
OF_CLUSTER: Final = frozenset({"acks", "cluster_status", "cluster_claim", "demand", "demand_piece"})
OF_PROXIES: Final = frozenset(
    {
        *("batches", "resumptions", "proxy_status", "proxy_claim", "proxy_clock", "proxy_spool", "proxy_waits"),
        *("stream_offer", "mote_entry", "demand_report", "demand_request", "proxy_backlog"),
    }
)
KEPT: Final = OF_CLUSTER | {"batches", "resumptions", "proxy_status", "proxy_claim", "stream_offer"}
"""Topics whose counters are kept over restarts; with others, an older frame would only show an older state."""
WRITE_SECONDS: Final = 1.0
MOST_NAMES: Final = 4_096
"""Topics of one kind that frames of one part are accepted on: a part that was broken into may invent names."""
MOST_TOPICS: Final = {"mote_entry": 131_072, "demand_piece": 1_024 * PIECES}
"""The same, of kinds of which a part may have more."""
_MOST_SEALS: Final = 65_536


class MoteSeals:
    """The seals of motes, at their proxy or where they are simulated.

    Parameters
    ----------
    keys
        Of the motes.
    """

    def __init__(self, keys: MoteKeys) -> None:
        self.of: Callable[[str], MoteSeal] = lru_cache(_MOST_SEALS)(self._of)
        self._keys = keys

    def _of(self, topic: str) -> MoteSeal:
        parsed = topics.parse(topic)
        return MoteSeal(self._keys.secret(parsed.names[1]), topic, to_mote=parsed.kind == "control")


class FleetSeals:
    """What a link of motes does to messages.

    Parameters
    ----------
    keys
        Of the motes.
    """

    def __init__(self, keys: MoteKeys) -> None:
        self._seals = MoteSeals(keys)

    def connecting(self) -> None:
        """Begin a connection: nothing of a mote's frames depends on it."""

    def seal(self, message: Message) -> Message:
        """Return a message of a mote as it is published."""
        return replace(message, payload=self._seals.of(message.topic).seal(message.payload))

    seal_will = seal

    def open(self, message: Message) -> Message:
        """Return a message to a mote, opened or refused."""
        try:
            return replace(message, payload=self._seals.of(message.topic).open(message.payload))
        except (FrameError, TopicError) as error:
            return refused(message, error)


class PartSeals:
    """What the link of a proxy or cluster does to messages.

    Parameters
    ----------
    keys
        Of the part.
    folder
        Where counters are kept.
    purpose
        Of the link: several links of a part publish on topics of their own, and keep counters of their own.
    now
        The time of day in seconds; None for that of this machine.
    """

    def __init__(
        self, keys: PartKeys, folder: Path, *, purpose: str = "link", now: Callable[[], float] | None = None
    ) -> None:
        self._file = folder / f"counters-{purpose}.json"
        self._now = now or (lambda: time.time())  # noqa: PLW0108 - simulations replace it
        self._checked_with = {"": keys.cluster.hex(), **{name: key.hex() for name, key in keys.proxies.items()}}
        kept = _read(self._file)
        # Counters belong to a key: what was seen under one that leaked must not shut out the one that replaced it.
        seen = {topic: last for topic, last in kept.seen.items() if self._key_of(topic) == kept.keys.get(topic)}
        self._sent, self._seen = SentCounter(kept.sent), SeenCounters(seen, bound_of=_bound_of)
        self._generations = {} if keys.motes is None else dict(keys.motes.generations)
        self.renewed_motes = frozenset(
            mote for mote, generation in self._generations.items() if generation != kept.generations.get(mote, 1)
        )
        """Motes that have another secret than at the last start: their packets are numbered anew."""
        self._signing = Ed25519PrivateKey.from_private_bytes(keys.signing)
        self._cluster = Ed25519PublicKey.from_public_bytes(keys.cluster)
        self._proxies = {name: Ed25519PublicKey.from_public_bytes(key) for name, key in keys.proxies.items()}
        self._motes = None if keys.motes is None else MoteSeals(keys.motes)
        self._written = 0.0
        self._unwritten = False

    def connecting(self) -> None:
        """Begin a connection; frames of earlier ones count as seen by all that have received a later one."""
        self._sent.connect(int(self._now()))
        self._write()

    def seal(self, message: Message) -> Message:
        """Return a message as it is published."""
        return self._sealed(message, None)

    def seal_will(self, message: Message) -> Message:
        """Return the will of this connection: it counts as later than all other messages."""
        return self._sealed(message, self._sent.of_will())

    def open(self, message: Message) -> Message:
        """Return a message that was received: opened, or refused; or as it is, if it is no frame of Fjord."""
        try:
            parsed = topics.parse(message.topic)
        except TopicError:
            return message
        kind, payload = parsed.kind, message.payload
        try:
            if kind in OF_MOTES:
                if self._motes is None:
                    raise forged("it is of a mote, and not for this part")
                return Message(
                    message.topic,
                    self._motes.of(message.topic).open(payload),
                    message.qos,
                    message.retain,
                    message.expiry_seconds,
                    message.user_properties,
                )
            if kind in OF_CLUSTER:
                key: Ed25519PublicKey | None = self._cluster
            elif kind in OF_PROXIES:
                key = self._proxies.get(parsed.names[0])
            else:
                return message
            if key is None:
                raise forged(f"there is no key of proxy {parsed.names[0]!r}")
            counter, frame = open_sealed(key, message.topic, payload)
            self._seen.accept(message.topic, counter, retained=message.retain)
        except FrameError as error:
            return refused(message, error)
        if kind in KEPT:
            self._unwritten = True
            if time.monotonic() - self._written >= WRITE_SECONDS:
                self._write()
        return replace(message, payload=frame)

    def _sealed(self, message: Message, counter: int | None) -> Message:
        try:
            kind = topics.parse(message.topic).kind
        except TopicError:
            return message
        if kind in OF_MOTES and self._motes is not None:
            return replace(message, payload=self._motes.of(message.topic).seal(message.payload))
        if kind not in OF_CLUSTER and kind not in OF_PROXIES:
            return message
        payload = seal(self._signing, message.topic, self._sent.next() if counter is None else counter, message.payload)
        return replace(message, payload=payload)

    def _key_of(self, topic: str) -> str | None:
        """Return the key that frames of a topic are checked with; None if they are of no part that has one."""
        try:
            parsed = topics.parse(topic)
        except TopicError:
            return None
        if parsed.kind in OF_CLUSTER:
            return self._checked_with[""]
        return self._checked_with.get(parsed.names[0]) if parsed.kind in OF_PROXIES else None

    def _write(self) -> None:
        """Keep the counters; without them an older frame might be accepted after a restart, and nothing else."""
        self._written, self._unwritten = time.monotonic(), False
        kept = {topic: seen for topic, seen in self._seen.seen.items() if topics.parse(topic).kind in KEPT}
        beside = self._file.with_suffix(".new")
        with contextlib.suppress(OSError):
            keys = {topic: key for topic in kept if (key := self._key_of(topic)) is not None}
            content = _Kept(self._sent.connection, kept, keys, self._generations)
            beside.write_bytes(msgspec.json.encode(content))
            beside.replace(self._file)


def _bound_of(topic: str) -> tuple[str, int]:
    """Return what a topic is counted as: part and kind; and how many topics of these there may be."""
    parsed = topics.parse(topic)
    part = parsed.names[0] if parsed.kind in OF_PROXIES else ""
    return f"{part}/{parsed.kind}", MOST_TOPICS.get(parsed.kind, MOST_NAMES)


def refused(message: Message, error: FrameError | TopicError) -> Message:
    """Return a message with the reason why it is refused."""
    return replace(message, refusal=error.reason if isinstance(error, FrameError) else "forged")


def load_part_keys(file: Path, *, proxy: str | None) -> PartKeys:
    """Return the keys of a proxy, or of a cluster if `proxy` is None.

    Raises
    ------
    SettingsError
        If the file cannot be read, may be read by others than its owner, or does not hold them.
    """
    keys = read_part_keys(_text_of(file), str(file))
    if (keys.motes is None) is not (proxy is None):
        raise SettingsError(f"{file} has no keys of a {'cluster' if proxy is None else 'proxy'}")
    return keys


def load_mote_keys(file: Path) -> MoteKeys:
    """Return the keys of motes; raises SettingsError as :func:`load_part_keys` does."""
    return read_mote_keys(_text_of(file), str(file))


def _text_of(file: Path) -> str:
    try:
        if file.stat().st_mode & 0o077:
            raise SettingsError(f"{file} may be read by others than its owner", hint=f"chmod 600 {file}")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot read the keys in {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"{file} is no file of keys: it is no text") from None


class _Kept(msgspec.Struct, frozen=True):
    """What lasts over restarts: the last connection, by topic counters and the keys they belong to, and generations."""

    sent: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0
    seen: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    keys: dict[str, str] = {}
    generations: dict[str, int] = {}


def _read(file: Path) -> _Kept:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return _Kept()
    except (OSError, msgspec.DecodeError) as error:
        log.warning("counters of sealed frames cannot be read: older frames may be accepted once", error=str(error))
        return _Kept()
