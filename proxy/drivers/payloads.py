"""JSON of devices: bounded, checked, and read by path."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from protocols.wire.frames import KIBIBYTE
from proxy.errors import ProxyError

MAX_PAYLOAD_BYTES = 64 * KIBIBYTE
MAX_DEPTH = 32
LONGEST_WORD = 256
"""Characters of a payload that is text without quotes."""
MISSING: Any = msgspec.UNSET
"""Stands for a missing value; JSON's null is a value."""

NOT_A_NUMBER = "\ufdd0not a number"
"""Stands for a value that JSON has not, such as ``nan``: no field accepts it. (U+FDD0 is in no text of people.)"""

_decoder = msgspec.json.Decoder()
_SHOWN = 60
_NO_JSON = re.compile(
    rb"""("(?:[^"\\]|\\.)*+"?)|[-+]?\b(?:nan|inf(?:inity)?)\b|-?\b[0-9]++(?:\.[0-9]++)?e\+?[0-9]{3,}+""",
    re.DOTALL | re.IGNORECASE,
)
"""A string, which stays as it is, or what some devices write for a number. Possessive: its work is linear."""
_MARK = msgspec.json.encode(NOT_A_NUMBER)
_BARE_NUMBER = re.compile(rb"\s*([-+]?[0-9][0-9.,]{0,60})\s*")


class PayloadError(ProxyError):
    """A payload that a driver rejects; ``reason`` is one of a small fixed set of words."""

    def __init__(self, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


def read_json(
    payload: bytes, *, max_bytes: int = MAX_PAYLOAD_BYTES, decimal_comma: bool = False, words: bool = False
) -> Any:
    """Return the content of a payload.

    With `decimal_comma` a payload such as ``21,5`` is that text; with `words` one such as ``ON``, which is not JSON nor
    the beginning of any, is.

    Raises
    ------
    PayloadError
        With reason ``size``, ``garbled`` (no JSON) or ``depth``.

    Examples
    --------
    >>> read_json(b'{"t": nan, "u": "nan"}') == {"t": NOT_A_NUMBER, "u": "nan"}
    True
    >>> read_json(b"ON", words=True)
    'ON'
    """
    if len(payload) > max_bytes:
        raise PayloadError("size", f"payload has {len(payload):,} bytes, the limit is {max_bytes:,}")
    try:
        try:
            value = _decoder.decode(payload)
        except msgspec.DecodeError:
            value = _decode_leniently(payload, decimal_comma=decimal_comma)
    except RecursionError as error:
        raise PayloadError("depth", f"payload is nested deeper than {MAX_DEPTH}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        if words and (word := _word(payload)):
            return word
        raise PayloadError("garbled", f"payload {payload[:_SHOWN]!r} is not JSON: {error}") from error
    if payload.count(b"{") + payload.count(b"[") < MAX_DEPTH:
        return value  # it cannot be nested deeper than it has brackets
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


def _word(payload: bytes) -> str:
    """Return a payload as text; empty if it is none, or looks like damaged JSON."""
    try:
        found = payload[: LONGEST_WORD + 1].decode().strip()
    except UnicodeDecodeError:
        return ""
    return found if len(found) <= LONGEST_WORD and found.isprintable() and found[:1] not in '{["' else ""


def _decode_leniently(payload: bytes, *, decimal_comma: bool) -> Any:
    """Decode what is JSON but for numbers that JSON has not."""
    bare = _BARE_NUMBER.fullmatch(payload) if decimal_comma else None
    if bare is not None:
        return bare[1].decode()
    return _decoder.decode(_NO_JSON.sub(_replaced, payload))


def _replaced(found: re.Match[bytes]) -> bytes:
    """Return a string as it is, and for a number that is none, or larger than every real, the mark."""
    if found[1]:
        return found[1]
    return found[0] if found[0][-1:].isdigit() and math.isfinite(float(found[0])) else _MARK


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
        if value.__class__ is dict:  # as nearly all are, and no subclass of it
            value = value.get(part, MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < len(str(MAX_PAYLOAD_BYTES)):
            value = value[int(part)] if int(part) < len(value) else MISSING
        else:
            return MISSING
    return value


def finder(path: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that looks up `path` in a payload as :func:`look_up` does, in less time where it is short."""
    if len(path) == 1:
        (name,) = path
        return lambda value: value.get(name, MISSING) if value.__class__ is dict else look_up(value, path)
    if len(path) == 2:  # noqa: PLR2004 - a name within a name, as in most payloads with any
        outer, inner = path

        def find(value: Any) -> Any:
            if value.__class__ is dict:
                value = value.get(outer, MISSING)
                return value.get(inner, MISSING) if value.__class__ is dict else look_up(value, (inner,))
            return look_up(value, path)

        return find
    return lambda value: look_up(value, path)
