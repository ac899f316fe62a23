"""Names by which no proxy may offer a stream: those of relations, of derived streams and of unreadable streams.

A stream is unreadable if an earlier version accepted the statement that created it and this one refuses it. It keeps
its name until it is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.language.catalog import DerivedStream
from cluster.service.catalog.relation_store import RelationStore
from protocols.errors import FjordError
from protocols.wire.names import folded


@dataclass(frozen=True, slots=True)
class UnreadableStream:
    """A stream whose statement this version rejects.

    Parameters
    ----------
    name
        Its name.
    text
        The statement that created it.
    reason
        Why this version refuses it.
    """

    name: str
    text: str
    reason: str


class UnreadableStreams:
    """All unreadable streams, by name without regard to case."""

    def __init__(self) -> None:
        self._by_name: dict[str, UnreadableStream] = {}

    def all(self) -> list[UnreadableStream]:
        """Return all, oldest first."""
        return list(self._by_name.values())

    def find(self, name: str) -> UnreadableStream | None:
        """Return the stream of this name, or None."""
        return self._by_name.get(folded(name))

    def add(self, name: str, text: str, error: FjordError) -> None:
        """Note why a stream cannot be read."""
        self._by_name[name.casefold()] = UnreadableStream(name, text, str(error))

    def remove(self, name: str) -> None:
        """Remove a stream, if it is unreadable."""
        self._by_name.pop(name.casefold(), None)


class ReservedNames:
    """The reserved names, shared by the ingest, which rejects offers of them, and by the services that reserve them.

    Parameters
    ----------
    relations
        The relations.
    """

    def __init__(self, relations: RelationStore) -> None:
        self.relations = relations
        self.derived: dict[str, DerivedStream] = {}
        """By name, oldest first."""
        self.unreadable = UnreadableStreams()

    def reserved_for(self, name: str) -> str | None:
        """Return what a name is reserved for; None if a proxy may offer a stream of this name."""
        if self.relations.find(name) is not None:
            return "relation"
        if self.unreadable.find(name) is not None:
            return "stream that cannot be read called"
        return "derived stream" if name.casefold() in {each.casefold() for each in self.derived} else None
