"""A bucket's state in memory."""

from __future__ import annotations

from collections.abc import Iterable


class MemoryStore(dict[str, bytes]):
    """Values by name. A copy is a snapshot: values never change."""

    def put(self, name: str, value: bytes) -> None:
        """Set a value."""
        self[name] = value

    def remove(self, name: str) -> None:
        """Remove a value."""
        del self[name]

    def names(self) -> Iterable[str]:
        """Return the names of all values."""
        return list(self)
