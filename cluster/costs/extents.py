"""What extents go through, by how many keys their samples have, and how many are linked. Pure arithmetic.

samples of a key   | | | |           an extent changes when one enters or leaves: all of its key are gone through
of another         |                 once in a batch, and if it is lazy, at each such instant
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster.costs.work import BATCHES_PER_SECOND, SECOND_US
from cluster.operators import Extent, Filter, Project, Source, TimeWindow
from cluster.operators.characteristics import KEYS_ASSUMED, Characteristics
from cluster.operators.scalar_expressions import plain_column

FEWEST_KEYS = KEYS_ASSUMED // 10
"""Keys that are assumed where they have not been measured, since more would make lazy extents look cheaper."""

LINKED_ASSUMED = 0.5
"""The share of samples that go on with the one before, where it has not been measured."""

PRICED_AMONG = 1_000
"""Prices of what is compared lazily are for so many samples that are kept."""


@dataclass(frozen=True, slots=True)
class SeenKeys:
    """What is known of the keys of samples.

    Parameters
    ----------
    count
        How many there are, the fewer, the more samples have the same one. It is the reciprocal of the probability that
        two samples have one key, so that 100 keys of which one has nearly all samples are hardly more than one.
    linked
        The share of samples that are coalesced with the one of their key before, of all extents with these keys.
    """

    count: float
    linked: float = LINKED_ASSUMED


Place = tuple[str, tuple[str, ...]]
"""A stream, and its columns that are keys."""
Keys = Mapping[Place, SeenKeys]
"""By place: as measured."""
NO_KEYS: Keys = {}
_ASSUMED = SeenKeys(FEWEST_KEYS)


def place_of_keys(extent: Extent) -> Place | None:
    """Return the stream and its columns by which an extent's samples are coalesced; None if they are computed."""
    names: list[str] = list(extent.keys)
    node = extent.input
    while isinstance(node, Filter | Project | TimeWindow):
        if isinstance(node, Project):
            columns = {each.name: plain_column(each.scalar) for each in node.outputs}
            found = [columns.get(name) for name in names]
            names = [each for each in found if each is not None]
            if len(names) < len(found):
                return None
        node = node.input
    return (node.stream, tuple(sorted(set(names)))) if isinstance(node, Source) else None


def keys_of(extent: Extent, measured: Keys) -> SeenKeys:
    """Return what is known of an extent's keys: as measured, else as assumed."""
    place = place_of_keys(extent)
    seen = _ASSUMED if place is None else measured.get(place, _ASSUMED)
    return seen if extent.keys else replace(seen, count=1.0)


def changes_of_key(samples: Characteristics, keys: float) -> float:
    """Return at how many instants of a second a sample of one key enters or leaves: where the window moves, at most."""
    return SECOND_US * min(2 * samples.rate / keys, 1 / samples.granule)


def compared_lazily(samples: Characteristics, keys: float, kept: float) -> float:
    """Return how many samples there are at the instants of a second at which something changes, key by key."""
    changes = changes_of_key(samples, keys)
    return changes * kept if changes else 0.0


def scattered(kept: float) -> float:
    """Return how many times as long it takes to read a sample as among a thousand: those of a key are far apart.

    Measured with up to 60,000 samples: the more there are, the fewer are in a processor's caches.
    """
    return math.sqrt(kept / PRICED_AMONG)


def moves(samples: Characteristics) -> float:
    """Return in how many batches of a second the window moves, at most."""
    return min(SECOND_US / samples.granule, BATCHES_PER_SECOND)


def gone_through(samples: Characteristics, keys: float, kept: float) -> float:
    """Return how many of the samples that are kept are of keys that change in a batch, on average."""
    between = max(SECOND_US / BATCHES_PER_SECOND, samples.granule)
    changing = -math.expm1(-2 * samples.rate * between / keys)
    share = changing * moves(samples) / BATCHES_PER_SECOND
    return share * kept if share else 0.0
