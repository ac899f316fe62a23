"""After how long each stream goes on without a proxy that is gone: a time of its own, or the cluster's default."""

from __future__ import annotations

from typing import Final

import msgspec

from cluster.service.catalog.stream_settings import StreamSettings
from cluster.service.registry.registry import Registry

LEAST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 1e9
"""A longer time is never."""


class GoneAfter(msgspec.Struct, frozen=True):
    """After how many seconds a stream goes on without a proxy; None for never."""

    seconds: float | None


class GoneProxies(StreamSettings[GoneAfter]):
    """The times of all streams.

    Parameters
    ----------
    registry
        Keeps those of single streams.
    default
        For all others, in seconds; None for never.
    """

    def __init__(self, registry: Registry, default: float | None) -> None:
        streams = registry.streams
        super().__init__(GoneAfter, GoneAfter(default), streams.gone_after(), streams.set_gone_after)

    def after(self, stream: str) -> float | None:
        """Return after how many seconds a stream goes on without a proxy; None for never."""
        return self.of(stream).seconds
