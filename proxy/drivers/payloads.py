"""JSON of devices: bounded, checked, and read by path."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from protocols.wire.frames import KIBIBYTE
from proxy.errors import ProxyError

MAX_PAYLOAD_BYTES = 64 * KIBIBYTE
MAX_DEPTH = 32
MISSING: Any = msgspec.UNSET
"""Stands for a missing value; JSON's null is a value."""

_decoder = msgspec.json.Decoder()
_SHOWN = 60


class PayloadError(ProxyError):
    """A payload that a driver rejects; ``reason`` is one of a small fixed set of words."""

    def __init__(self, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def read_json(payload: bytes, *, max_bytes: int = MAX_PAYLOAD_BYTES) -> Any:
    """Return the content of a payload.

    Raises
    ------
    PayloadError
        With reason ``size``, ``garbled`` (no JSON) or ``depth``.
    """
    if len(payload) > max_bytes:
        raise PayloadError("size", f"payload has {len(payload):,} bytes, the limit is {max_bytes:,}")
    try:
        value = _decoder.decode(payload)
    except RecursionError as error:
        raise PayloadError("depth", f"payload is nested deeper than {MAX_DEPTH}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise PayloadError("garbled", f"payload {payload[:_SHOWN]!r} is not JSON: {error}") from error
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return value
    raise PayloadError("depth", f"payload is nested deeper than {MAX_DEPTH}")


def parse_path(path: str) -> tuple[str, ...]:
    r"""Split a dotted path; ``\.`` is a dot within a name, and the empty path is the whole payload.

    Examples
    --------
    >>> parse_path("params.temperature:0.tC"), parse_path(r"a\.b.0"), parse_path("")
    (('params', 'temperature:0', 'tC'), ('a.b', '0'), ())
    """
    if not path:
        return ()
    return tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path))


def look_up(value: Any, path: tuple[str, ...]) -> Any:
    """Return what is at `path`, or :data:`MISSING`; digits count the elements of a list from 0.

    Examples
    --------
    >>> look_up({"a": [{"b": 1}]}, ("a", "0", "b"))
    1
    """
    for part in path:
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < len(str(MAX_PAYLOAD_BYTES)):
            value = value[int(part)] if int(part) < len(value) else MISSING
        else:
            return MISSING
    return value
