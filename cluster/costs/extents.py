"""What extents go through, by how many keys their samples have. Pure arithmetic.

samples of a key   | | | |           an extent changes when one enters or leaves: all of its key are gone through
of another         |                 once in a batch, and if it is lazy, at each such instant
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cluster.costs.characteristics import Characteristics
from cluster.costs.selectivity import KEYS_ASSUMED
from cluster.costs.work import BATCHES_PER_SECOND, SECOND_US
from cluster.language.algebra import Extent, Filter, Project, Source, TimeWindow
from cluster.language.plans import plain_column

FEWEST_KEYS = KEYS_ASSUMED // 10
"""Keys that are assumed where they have not been measured, since more would make lazy extents look cheaper."""

Keys = Mapping[tuple[str, tuple[str, ...]], float]
"""By stream and the columns that are keys: how many there are, the fewer, the more samples have the same one.

It is the reciprocal of the probability that two samples have one key, so that 100 keys of which one has nearly all
samples are hardly more than one.
"""
NO_KEYS: Keys = {}


def place_of_keys(extent: Extent) -> tuple[str, tuple[str, ...]] | None:
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


def keys_of(extent: Extent, measured: Keys) -> float:
    """Return how many keys an extent has: as measured, else as assumed."""
    if not extent.keys:
        return 1.0
    place = place_of_keys(extent)
    return measured.get(place, FEWEST_KEYS) if place is not None else FEWEST_KEYS


def changes_of_key(samples: Characteristics, keys: float) -> float:
    """Return at how many instants of a second a sample of one key enters or leaves: where the window moves, at most."""
    return SECOND_US * min(2 * samples.rate / keys, 1 / samples.granule)


def compared_lazily(samples: Characteristics, keys: float, kept: float) -> float:
    """Return how many samples there are at the instants of a second at which something changes, key by key."""
    changes = changes_of_key(samples, keys)
    return changes * kept if changes else 0.0


def moves(samples: Characteristics) -> float:
    """Return in how many batches of a second the window moves, at most."""
    return min(SECOND_US / samples.granule, BATCHES_PER_SECOND)


def gone_through(samples: Characteristics, keys: float, kept: float) -> float:
    """Return how many of the samples that are kept are of keys that change in a batch, on average."""
    between = max(SECOND_US / BATCHES_PER_SECOND, samples.granule)
    changing = -math.expm1(-2 * samples.rate * between / keys)
    share = changing * moves(samples) / BATCHES_PER_SECOND
    return share * kept if share else 0.0
