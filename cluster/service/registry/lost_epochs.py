"""Epochs that plans or Spark's log know and the registry does not: it was brought back from a copy, or lost by a disk.

Were nothing done, the next query would get the number of an epoch that has another plan, and could not be added; or
Spark would wait for ever for the plan of the epoch that it had begun. So the registry's own queries go on in an epoch
behind all that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.physical.plan_files import PlanFiles
from cluster.service.registry.registry import Registry
from cluster.spark.checkpoint import newest_epochs
from protocols.event_log import get_logger

log = get_logger(__name__)


def named_epoch(plans: PlanFiles, checkpoint: Path) -> int:
    """Return the newest epoch that has a plan, or that Spark's log of offsets names; 0 if there is none."""
    return max((plans.newest(), *newest_epochs(checkpoint)), default=0)


def go_on_behind(registry: Registry, named: int, positions: Mapping[str, int]) -> int:
    """Give the registry's queries an epoch behind the newest one that is named; say so, and return how many are lost.

    Queries that were added in a lost epoch are gone. Those that were dropped in one are back: no record is left of it.

    Parameters
    ----------
    registry
        The registry.
    named
        The newest epoch that is named.
    positions
        By stream: the newest version of its table.

    Raises
    ------
    PlanError, StorageError
        If the plan cannot be written.
    """
    plan = registry.plan
    lost = max(0, named - plan.epoch)
    if lost:
        log.error("changes of queries are lost", epochs=lost, newest=plan.epoch, goes_on_with=named + 1)
        known = {**plan.positions, **positions}  # of a stream that cannot be read now, what it was
        registry.go_on_behind(named, {stream: at for stream, at in known.items() if stream in plan.streams})
    return lost
