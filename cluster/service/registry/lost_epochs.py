"""Epochs that plans or Spark's log mention and the registry lacks: it was restored from a copy, or a disk lost them.

Without repair, the next query would get the number of an epoch that already has another plan, and could not be added;
or Spark would wait for ever for the plan of an epoch that it had begun. So the registry's queries continue in an epoch
after all of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster.physical.plan_files import PlanFiles
from cluster.service.registry.registry import Registry
from cluster.spark.checkpoint import newest_epochs
from protocols.event_log import get_logger

log = get_logger(__name__)


def newest_known_epoch(plans: PlanFiles, checkpoint: Path) -> int:
    """Return the newest epoch that has a plan, or that Spark's log of offsets names; 0 if there is none."""
    return max((plans.newest(), *newest_epochs(checkpoint)), default=0)


def skip_lost_epochs(registry: Registry, newest: int, positions: Mapping[str, int]) -> int:
    """Move the registry's queries to an epoch after the newest known one; log and return how many are lost.

    Queries that were added in a lost epoch are lost. Those that were dropped in one run again: no record of it is left.

    Parameters
    ----------
    registry
        The registry.
    newest
        The newest epoch that a plan or an offset names.
    positions
        By stream: the newest version of its table.

    Raises
    ------
    PlanError, StorageError
        If the plan cannot be written.
    """
    plan = registry.plan
    lost = max(0, newest - plan.epoch)
    if lost:
        log.error("changes of queries are lost", epochs=lost, newest=plan.epoch, goes_on_with=newest + 1)
        known = {**plan.positions, **positions}  # a stream that cannot be read now keeps its position
        registry.skip_epochs(newest, {stream: at for stream, at in known.items() if stream in plan.streams})
    return lost
