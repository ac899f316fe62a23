"""Keys of a simulated deployment: in some worlds all parts have them, and an intruder knows what is needed without."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from protocols.sealing.keys import (
    CLUSTER_FILE,
    SECRET_BYTES,
    file_of_motes,
    file_of_proxy,
    make_keys,
    read_mote_keys,
    read_part_keys,
)
from protocols.sealing.seals import FleetSeals, PartSeals

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

KEYED_SHARE = 0.25
"""Of all worlds with a cluster that stands in."""


class WorldKeys:
    """The keys of a deployment.

    Parameters
    ----------
    seed
        Of the world.
    proxies
        Their names.
    """

    def __init__(self, seed: int, proxies: Collection[str]) -> None:
        self._files = make_keys(Random(f"drawn secrets/{seed}").randbytes(SECRET_BYTES), proxies).files()

    def of_cluster(self, folder: Path) -> PartSeals:
        """Return what seals the frames of the cluster, which keeps its counters in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        return PartSeals(read_part_keys(self._files[CLUSTER_FILE], CLUSTER_FILE), folder)

    def of_proxy(self, name: str, folder: Path) -> PartSeals:
        """Return what seals the frames of a proxy."""
        return PartSeals(read_part_keys(self._files[file_of_proxy(name)], name), folder)

    def of_motes(self, proxy: str) -> FleetSeals:
        """Return what seals the frames of the motes of a proxy."""
        return FleetSeals(read_mote_keys(self._files[file_of_motes(proxy)], proxy))


def drawn_keys(seed: int, proxies: Collection[str]) -> WorldKeys | None:
    """Return the keys of a world; None for most worlds, which have none."""
    return WorldKeys(seed, proxies) if Random(f"secrets/{seed}").random() < KEYED_SHARE else None
