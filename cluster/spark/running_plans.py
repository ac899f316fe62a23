"""What a worker runs: the physical plan of an epoch, as far as one of a Fjord's two Spark queries hosts it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING, Fragment, PhysicalPlan
from cluster.plan.epoch import PlanFiles
from cluster.plan.hosts import Host


class _Plans:
    """The plans of one Fjord; each is made of the one read last, so that it costs what has changed."""

    def __init__(self, folder: str) -> None:
        self._files = PlanFiles(Path(folder))
        self._last: PhysicalPlan = NOTHING

    def at(self, epoch: int) -> PhysicalPlan:
        if self._last.epoch != epoch or self._last is NOTHING:
            self._last = lower(self._files.read(epoch), self._last)
        return self._last


@lru_cache(maxsize=8)
def _plans(folder: str) -> _Plans:
    return _Plans(folder)


@lru_cache(maxsize=8)
def fragments_at(plans_folder: str, epoch: int, host: Host) -> tuple[Fragment, ...]:
    """Return what one of a Fjord's two Spark queries runs of an epoch's plan."""
    return _plans(plans_folder).at(epoch).hosted(host)
