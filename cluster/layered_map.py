"""An immutable map of which one with a few changes is made at the cost of the changes, not of the map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST_CHANGES = 256
"""Changes that are kept apart; with more, all is copied once."""
_GONE: Any = object()


class LayeredMap(Mapping[K, V], Generic[K, V]):
    """A map that never changes: a large dictionary, which others share, and a few changes of it.

    Parameters
    ----------
    base
        The dictionary; it does not change any more.

    Examples
    --------
    >>> one = LayeredMap({"a": 1, "b": 2})
    >>> other = one.changed(go=["a"], come=[("c", 3)])
    >>> dict(one), dict(other)
    ({'a': 1, 'b': 2}, {'b': 2, 'c': 3})
    """

    __slots__ = ("_base", "_changes", "_size")

    def __init__(self, base: dict[K, V] | None = None) -> None:
        self._base: dict[K, V] = {} if base is None else base
        self._changes: dict[K, V] = {}
        self._size = len(self._base)

    def changed(self, go: Iterable[K] = (), come: Iterable[tuple[K, V]] = ()) -> LayeredMap[K, V]:
        """Return a map without some keys, and with others, of which none goes; keys that it has keep their places.

        Raises
        ------
        KeyError
            If a key that goes is not there.
        """
        come = tuple(come)
        if any(self._changes.get(key) is _GONE for key, _ in come):
            # What has gone and comes again is the last.
            return LayeredMap(dict(self)).changed(go, come)
        base, changes, size = self._base, dict(self._changes), self._size
        for key in go:
            if changes.get(key, base.get(key, _GONE)) is _GONE:
                raise KeyError(key)
            size -= 1
            changes.pop(key, None)
            if key in base:
                changes[key] = _GONE
        for key, value in come:
            size += changes.get(key, base.get(key, _GONE)) is _GONE
            changes[key] = value
        found: LayeredMap[K, V] = LayeredMap(base)
        found._changes, found._size = changes, size
        return found if len(changes) <= MOST_CHANGES else LayeredMap(dict(found))

    def __getitem__(self, key: K) -> V:
        if key not in self._changes:
            return self._base[key]
        found = self._changes[key]
        if found is _GONE:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        known: Mapping[Any, Any] = self._changes
        return known[key] is not _GONE if key in known else key in self._base

    def __iter__(self) -> Iterator[K]:
        changes = self._changes
        yield from (key for key in self._base if changes.get(key) is not _GONE)
        yield from (key for key, value in changes.items() if value is not _GONE and key not in self._base)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        """Return it as a dictionary."""
        return repr(dict(self))
