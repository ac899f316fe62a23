"""Frames: typed values as MessagePack bytes, with strict checks and size limits.

Every frame is a MessagePack array whose first element is the protocol version. The types are `msgspec` structures:
decoding checks the number, types and ranges of all fields, and allocates no more than the payload's size allows.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from protocols.errors import FrameError, ProtocolError, UnsupportedVersionError
from protocols.wire.names import LONGEST_NAME, NAME_PATTERN

VERSION = 1
"""The protocol version of this program."""

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE

Microseconds = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""An instant of application time (since 1970-01-01T00:00:00Z) or a difference of two, in microseconds."""

DurationMicroseconds = Annotated[int, Meta(ge=0, le=2**62)]
PositiveMicroseconds = Annotated[int, Meta(ge=1, le=2**62)]
LONGEST_PERIOD_US = 366 * 86_400_000_000
"""The longest sample period, and the widest pane, that a sensor may be asked for."""
PeriodMicroseconds = Annotated[int, Meta(ge=1, le=LONGEST_PERIOD_US)]
Counter = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=NAME_PATTERN)]
"""A name that may be part of a topic; see :func:`protocols.wire.topics.check_name`."""

Value = int | float | str | bool | None
"""One value of a sample: what a field may hold on the wire."""


class Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all frames: a positional array that starts with the protocol version."""

    version: Annotated[int, Meta(ge=0, le=255)]


class _VersionOnly(msgspec.Struct, frozen=True, array_like=True):
    version: int


FrameT = TypeVar("FrameT", bound=Frame)

_encoder = msgspec.msgpack.Encoder()
_version_decoder = msgspec.msgpack.Decoder(_VersionOnly)


def encode(frame: Frame) -> bytes:
    """Return the MessagePack bytes of a frame."""
    return _encoder.encode(frame)


class FrameDecoder(Generic[FrameT]):
    """Decodes one kind of frame.

    Parameters
    ----------
    kind
        The frame's type.
    max_bytes
        Larger payloads are rejected before they are decoded.
    name
        Its name in errors; by default that of its type.
    """

    def __init__(self, kind: type[FrameT], *, max_bytes: int, name: str | None = None) -> None:
        self._decoder: msgspec.msgpack.Decoder[FrameT] = msgspec.msgpack.Decoder(kind)
        self._name = name or kind.__name__.lower()
        self.max_bytes = max_bytes

    def __call__(self, payload: bytes | bytearray | memoryview) -> FrameT:
        """Return the frame in `payload`.

        Raises
        ------
        FrameError
            With reason ``size`` (too large), ``garbled`` (not MessagePack, or truncated) or ``shape`` (a field is
            missing, of a wrong type or out of range).
        UnsupportedVersionError
            If the frame is of another protocol version.
        """
        if len(payload) > self.max_bytes:
            raise FrameError(
                "size",
                f"{self._name} has {len(payload):,} bytes, the limit is {self.max_bytes:,}",
                hint="send several smaller ones",
            )
        try:
            frame = self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            _check_version(payload)
            raise FrameError("shape", f"{self._name} does not fit its format: {error}") from error
        except FrameError:
            raise
        except ProtocolError as error:
            raise FrameError("shape", f"{self._name}: {error.message}", hint=error.hint) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError("garbled", f"{self._name} cannot be decoded: {error}") from error
        if frame.version != VERSION:
            raise UnsupportedVersionError(frame.version, VERSION)
        return frame


def _check_version(payload: Any) -> None:
    try:
        version = _version_decoder.decode(payload).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if version != VERSION:
        raise UnsupportedVersionError(version, VERSION)
