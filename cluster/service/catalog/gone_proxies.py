"""After how long each stream goes on without a proxy that is gone: a time of its own, or the cluster's default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cluster.language.catalog import CatalogError
from cluster.service.registry.registry import Registry

LEAST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 1e9
"""A longer time is never."""


class GoneAfter(msgspec.Struct, frozen=True):
    """What was set for a stream: after how many seconds it goes on without a proxy; None for never."""

    seconds: float | None


class GoneProxies:
    """The times of all streams.

    Parameters
    ----------
    registry
        Keeps those of single streams.
    default
        For all others, in seconds; None for never.
    """

    def __init__(self, registry: Registry, default: float | None) -> None:
        self._registry = registry
        self._default = default
        stored = registry.streams.gone_after()
        self._own = {name: msgspec.json.decode(text, type=GoneAfter) for name, text in stored.items()}

    def after(self, stream: str) -> float | None:
        """Return after how many seconds a stream goes on without a proxy; None for never."""
        own = self._own.get(stream)
        return self._default if own is None else own.seconds

    def set(self, stream: str, found: GoneAfter | None, known: Mapping[str, object]) -> None:
        """Set it for a stream; None restores the default.

        Parameters
        ----------
        stream
            Its name.
        found
            After how long.
        known
            The streams, by name.

        Raises
        ------
        CatalogError
            If there is no stream of this name that is stored.
        """
        if stream not in known:
            raise CatalogError(f"there is no stream {stream!r} that is stored", hint="`fjord stream list` has all")
        if found is None:
            self.forget(stream)
            return
        self._registry.streams.set_gone_after(stream, msgspec.json.encode(found).decode())
        self._own[stream] = found

    def forget(self, stream: str) -> None:
        """Restore the default for a stream."""
        self._registry.streams.set_gone_after(stream, None)
        self._own.pop(stream, None)
