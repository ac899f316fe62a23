"""Streams whose statement an earlier version accepted and this one refuses: each keeps its name until it is dropped."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.errors import FjordError


@dataclass(frozen=True, slots=True)
class UnreadableStream:
    """A stream that no query can read.

    Parameters
    ----------
    name
        Its name.
    text
        The statement that created it.
    reason
        Why that is refused.
    """

    name: str
    text: str
    reason: str


class UnreadableStreams:
    """All of them, by name without regard to case."""

    def __init__(self) -> None:
        self._by_name: dict[str, UnreadableStream] = {}

    def all(self) -> list[UnreadableStream]:
        """Return them, oldest first."""
        return list(self._by_name.values())

    def find(self, name: str) -> UnreadableStream | None:
        """Return the one of this name, or None."""
        return self._by_name.get(name.casefold())

    def add(self, name: str, text: str, error: FjordError) -> None:
        """Remember why a stream cannot be read."""
        self._by_name[name.casefold()] = UnreadableStream(name, text, str(error))

    def remove(self, name: str) -> None:
        """Forget one, if it is there."""
        self._by_name.pop(name.casefold(), None)
