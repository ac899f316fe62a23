"""What a Python worker of Spark keeps across tasks: the plans that it has read, and the objects built for them.

After every task a worker collects garbage, and Spark's collection looks at all that it keeps: libraries, plans, tables
of relations. On two cores that took half of the processors' time. What stays is set aside, and is looked at no more.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from cluster.physical.nodes import Fragment, Host
from cluster.physical.plan_files import PlanFiles

_ALL_GENERATIONS = 2
SURVIVORS_ONLY = 31
"""How many times in a row only what is new is looked at. A collection of everything that a worker keeps takes 80 ms, in
each of six workers: too much for every query that is added. Garbage in cycles among what was set aside waits for it."""


@lru_cache(maxsize=8)
def fragments_at(plans_folder: str, epoch: int, host: Host) -> tuple[Fragment, ...]:
    """Return the part of an epoch's plan that one of the two Spark queries runs."""
    return _plan_files(plans_folder).read(epoch).hosted(host).fragments


@lru_cache(maxsize=8)
def _plan_files(folder: str) -> PlanFiles:
    """Return the plans in a folder; each is made of the one read last, so that it costs what has changed."""
    return PlanFiles(Path(folder))


class WorkerMemory:
    """Freezes all objects that survive the next full garbage collection.

    This uses Spark's own collection and adds none: it comes when the task's output has been sent.
    """

    def __init__(self) -> None:
        self._built: Hashable = None
        self._due = False
        self._until_all = 0

    def keep(self, built: Hashable) -> None:
        """Freeze what this process has built, if it differs from the last time."""
        if built != self._built:
            self._built, self._due = built, True
        if self._around_collection not in gc.callbacks:
            gc.callbacks.append(self._around_collection)

    def _around_collection(self, phase: Literal["start", "stop"], details: dict[str, int]) -> None:
        if not self._due or details["generation"] != _ALL_GENERATIONS:
            return
        if phase == "start":
            if self._until_all == 0:
                gc.unfreeze()  # objects that were set aside before may be garbage by now
            self._until_all = (self._until_all or SURVIVORS_ONLY + 1) - 1
        else:
            gc.freeze()
            self._due = False


WORKER_MEMORY = WorkerMemory()
"""That of this process."""
