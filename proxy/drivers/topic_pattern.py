"""Topic patterns with named parts, such as ``factory/{line}/{mote}/telemetry``."""

from __future__ import annotations

import re

from protocols.wire.names import NAME_SHAPE, WORD, is_identifier
from proxy.errors import ConfigurationError

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
