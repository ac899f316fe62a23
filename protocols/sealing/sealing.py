"""Sealed frames: the bytes of a frame between a mark and what proves from which part it is, and for which topic.

    mote leg    0xC1 | frame | tag                        4 bytes: BLAKE2s with the mote's key, over topic and frame
    part leg    0xC1 | counter | frame | signature        8 and 64 bytes: Ed25519, over topic, counter and frame

No frame begins with 0xC1: it is never used in MessagePack. Pure. A tag is as short as TinySec's: a forger needs two
thousand million attempts on average, all of them counted, and each byte costs a mote energy.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from protocols.errors import FrameError
from protocols.wire.packets import SEAL_BYTES

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
    """Seals and opens the frames of one mote on one topic.

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
    """Return a frame of a proxy or cluster as it is sent."""
    number = counter.to_bytes(COUNTER_BYTES, "big")
    return b"".join((_MARK, number, frame, key.sign(_signed(topic, number, frame))))


def open_sealed(key: Ed25519PublicKey, topic: str, payload: bytes) -> tuple[int, bytes]:
    """Return counter and frame of a payload of a proxy or cluster.

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
