"""What devices publish: topics by pattern, names, and JSON that is bounded, checked, and read by path."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from protocols.errors import TopicError
from protocols.wire.frames import KIBIBYTE
from protocols.wire.names import LONGEST_NAME, NAME_SHAPE, WORD, is_identifier
from protocols.wire.streams import RESERVED_PREFIX
from protocols.wire.topics import check_part_name
from proxy.errors import ConfigurationError, ProxyError

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


_PART = re.compile(rf"\{{({WORD})\}}")
_MAX_TOPIC_BYTES = 65_535


class TopicPattern:
    """A pattern: each ``{part}`` stands for some letters of one level.

    Raises
    ------
    ConfigurationError
        If it is empty, holds a wildcard or a brace too many, or names a part twice.

    Examples
    --------
    >>> pattern = TopicPattern("shelly-{mote}/events/rpc")
    >>> pattern.filter, pattern.match("shelly-b8d6/events/rpc"), pattern.match("tele/x/SENSOR")
    ('+/events/rpc', {'mote': 'b8d6'}, None)
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.parts: tuple[str, ...] = tuple(_PART.findall(pattern))
        plain = _PART.sub("", pattern)
        if not pattern or len(pattern.encode()) > _MAX_TOPIC_BYTES or "\0" in pattern:
            raise ConfigurationError(f"{pattern[:80]!r} is not a topic", hint="write, say, tele/{mote}/SENSOR")
        if any(each in plain for each in "+#{}"):
            raise ConfigurationError(
                f"topic {pattern!r} holds a wildcard or a brace that names no part",
                hint="write {part} for what differs: tele/{mote}/SENSOR",
            )
        if wrong := next((each for each in self.parts if not is_identifier(each)), None):
            raise ConfigurationError(f"topic {pattern!r} names a part {wrong!r}", hint=NAME_SHAPE)
        if len(set(self.parts)) != len(self.parts):
            raise ConfigurationError(f"topic {pattern!r} names a part twice", hint="give each a name of its own")
        self.filter = "/".join("+" if _PART.search(level) else level for level in pattern.split("/"))
        levels = (
            "".join(
                f"(?P<{piece}>[^/]+)" if place % 2 else re.escape(piece)
                for place, piece in enumerate(_PART.split(level))
            )
            for level in pattern.split("/")
        )
        self._expression = re.compile("/".join(levels), re.DOTALL)

    def match(self, topic: str) -> dict[str, str] | None:
        """Return the parts of a topic, None if it does not fit."""
        found = self._expression.fullmatch(topic)
        return None if found is None else found.groupdict()


_HASH_LETTERS = 8


class NameTable:
    """Names of other systems, and their names in Fjord.

    A name that all parts may have stays as it is. Any other gets a hash of itself at its end, so that ``hall/1`` and
    ``hall 1`` differ, whichever was seen first; so do letters beyond ASCII, as before names could have them.

    Examples
    --------
    >>> names = NameTable()
    >>> names.name_of("kitchen"), names.name_of("Upper floor/bed room")
    ('kitchen', 'Upper-floor-bed-room-3a228335')
    """

    def __init__(self, *, prefix: str = "") -> None:
        self._prefix = prefix
        self._given: dict[str, str] = {}
        self._used: set[str] = set()

    def name_of(self, original: str) -> str:
        """Return the name of `original`, always the same one."""
        known = self._given.get(original)
        if known is not None:
            return known
        prefixed, name = self._prefix + original, self.likely(original)
        letters = _HASH_LETTERS
        while name in self._used:  # another name was chosen to look like this hash
            letters += 1
            name = hashed(prefixed, letters)
        self._given[original] = name
        self._used.add(name)
        return name

    def likely(self, original: str) -> str:
        """Return the name of `original`, or the one that it will most likely get; nothing is remembered."""
        prefixed = self._prefix + original
        return self._given.get(original) or (prefixed if _allowed(prefixed) else hashed(prefixed))

    def forget(self, original: str) -> None:
        """Forget a name that was given in vain."""
        self._used.discard(self._given.pop(original, ""))

    def known(self, original: str) -> str | None:
        """Return the name of `original` if it was given one."""
        return self._given.get(original)


def hashed(text: str, letters: int = _HASH_LETTERS) -> str:
    """Return an allowed name made of `text` and the first letters of its hash."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:letters]
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", text)[: LONGEST_NAME - letters - 1].strip("-_.")
    return f"{plain}-{digest}" if plain else digest


def identifier(text: str) -> str:
    """Return `text` as a name that SQL allows without quotes: letters, digits and ``_``, beginning with a letter.

    Examples
    --------
    >>> identifier("SNZB-02"), identifier("1/2 width"), identifier("fjord_x")
    ('SNZB_02', 'x_1_2_width', 'x_fjord_x')
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    if not plain or not plain[0].isalpha() or plain.casefold().startswith(RESERVED_PREFIX):
        plain = f"x_{plain}".rstrip("_")
    return plain[:LONGEST_NAME].rstrip("_")


def _allowed(name: str) -> bool:
    try:
        check_part_name(name)
    except TopicError:
        return False
    return True
