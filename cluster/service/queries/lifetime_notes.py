"""Notes on results whose sensors sample less often than a query demands, so that their batteries last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from protocols.wire.catalog import MoteEntry

if TYPE_CHECKING:
    from cluster.service.catalog.sensor_catalog import SensorCatalog
    from cluster.service.registry.registry import Registry


def slower_queries(registry: Registry, sensors: SensorCatalog) -> dict[str, dict[str, Any]]:
    """Return the notes for the results of running queries, as :func:`lifetime_notes` does, where there are any.

    Parameters
    ----------
    registry
        The queries that run.
    sensors
        The entries of sensors. Queries are looked at only if one of these samples less often, or ends too early.
    """
    noted = [each for each in sensors.snapshot()[0] if each.stretched > 1 or not each.lifetime_kept]
    if not noted:
        return {}
    notes = lifetime_notes(noted, {query.name: query.node.streams for query in registry.queries()})
    return {query: note for query, note in notes.items() if note is not None}


def lifetime_notes(
    entries: Iterable[MoteEntry], streams: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Any] | None]:
    """Return the notes for the results of queries; None where sensors sample as demanded and last long enough.

    Parameters
    ----------
    entries
        Of the catalog; each is read once, however many queries there are.
    streams
        By query: the streams that it reads.

    Returns
    -------
    dict
        ``slower``: the greatest factor by which sample periods are longer than demanded; ``too_short_lived``: how many
        sensors will nevertheless not last as long as queries or their owners demand.
    """
    wanted = frozenset[str]().union(*streams.values())
    slower: dict[str, int] = {}
    too_short_lived: dict[str, int] = {}
    for entry in entries:
        if entry.stream in wanted:
            slower[entry.stream] = max(slower.get(entry.stream, 1), entry.stretched)
            too_short_lived[entry.stream] = too_short_lived.get(entry.stream, 0) + (not entry.lifetime_kept)
    return {
        query: _note(
            max((slower.get(each, 1) for each in read), default=1), sum(too_short_lived.get(each, 0) for each in read)
        )
        for query, read in streams.items()
    }


def _note(slower: int, too_short_lived: int) -> dict[str, Any] | None:
    return {"slower": slower, "too_short_lived": too_short_lived} if slower > 1 or too_short_lived else None
