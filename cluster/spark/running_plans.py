"""What a worker runs: the physical plan of an epoch, as far as one of a Fjord's two Spark queries hosts it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cluster.physical.nodes import Fragment
from cluster.physical.plan_files import PlanFiles
from cluster.plan.pipelines import Host


@lru_cache(maxsize=8)
def _plans(folder: str) -> PlanFiles:
    """Return the plans of one Fjord; each is made of the one read last, so that it costs what has changed."""
    return PlanFiles(Path(folder))


@lru_cache(maxsize=8)
def fragments_at(plans_folder: str, epoch: int, host: Host) -> tuple[Fragment, ...]:
    """Return what one of a Fjord's two Spark queries runs of an epoch's plan."""
    return _plans(plans_folder).read(epoch).hosted(host).fragments
