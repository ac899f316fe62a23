"""Seals what a part publishes, and opens what it receives: by topic, with the part's keys.

A link to the broker is given one of these (:class:`protocols.mqtt.messages.Seals`). What is not among Fjord's frames,
such as results and messages of devices, passes as it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec.structs import replace

from protocols.errors import FrameError, SettingsError, TopicError
from protocols.event_log import get_logger
from protocols.mqtt.messages import Message
from protocols.sealing.counters import SeenCounters, SentCounter
from protocols.sealing.keys import MoteKeys, PartKeys, read_mote_keys, read_part_keys
from protocols.sealing.sealing import MoteSeal, forged, open_sealed, seal
from protocols.wire import topics
from protocols.wire.demand_pieces import PIECES

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
