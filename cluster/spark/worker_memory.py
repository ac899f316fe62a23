"""What a Python worker of Spark keeps across tasks: the plans that it has read, and the objects built for them.

After every task a worker collects garbage, and Spark's collection looks at all that it keeps: libraries, plans, tables
of relations. On two cores that took half of the processors' time. What stays is set aside, and is looked at again only
when there is much more of it: while queries are added one by one, it changes with each of them.

Memory that NumPy has freed is kept, too. The next micro-batch needs as much again, and to get it from the kernel, page
by page, doubled what some operators take, or not, depending on how large the largest array had been before.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from cluster.functions.calling import CALLS
from cluster.physical.nodes import Fragment, Host
from cluster.physical.plan_files import PlanFiles

_ALL_GENERATIONS = 2
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Settings of the allocator of glibc (mallopt(3))."""
MOST_FREED_BYTES, LARGEST_FREED_BYTES = 64 * 1024**2, 32 * 1024**2
"""So much is kept that is free at the end of the heap, which has blocks of up to this; more cannot be set."""
GROWN = 1.25
"""What was set aside is looked at when there is so much more of it; garbage in it waits until then."""


@lru_cache(maxsize=8)
def fragments_at(plans_folder: str, epoch: int, host: Host, gone: tuple[str, ...] = ()) -> tuple[Fragment, ...]:
    """Return the part of an epoch's plan that one of the two Spark queries runs, without queries that are gone."""
    return _plan_files(plans_folder).read(epoch).hosted(host).without(frozenset(gone)).fragments


def end_unused_functions(plans_folder: str, epoch: int) -> None:
    """End the processes of functions of users that no query of an epoch calls any more."""
    CALLS.follow(epoch, lambda: _plan_files(plans_folder).read(epoch).functions)


@lru_cache(maxsize=8)
def _plan_files(folder: str) -> PlanFiles:
    """Return the plans in a folder; each is made of the one read last, so that it costs what has changed."""
    return PlanFiles(Path(folder))


def keep_freed_memory() -> None:
    """Let this process keep memory that C code frees, where the C library can be asked to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, MOST_FREED_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_FREED_BYTES)


class WorkerMemory:
    """Freezes all objects that survive the next full garbage collection.

    This uses Spark's own collection and adds none: it comes when the task's output has been sent.
    """

    def __init__(self) -> None:
        self._built: Hashable = None
        self._due = False
        self._aside = 0
        """How many objects were left when all were looked at."""
        self._added = 0
        """How many have been set aside since, at most: some of them may be gone."""
        self._all = True

    def keep(self, built: Hashable) -> None:
        """Freeze what this process has built, if it differs from the last time."""
        if built != self._built:
            self._built, self._due = built, True
        if self._around_collection not in gc.callbacks:
            self._aside = gc.get_freeze_count()  # what the process was forked with stays shared
            gc.callbacks.append(self._around_collection)
            keep_freed_memory()

    def _around_collection(self, phase: Literal["start", "stop"], details: dict[str, int]) -> None:
        if not self._due or details["generation"] != _ALL_GENERATIONS:
            return
        if phase == "start":
            self._all = self._has_grown()
            if self._all:
                gc.unfreeze()  # objects that were set aside before may be garbage by now
        else:
            if not self._all:
                self._added += len(gc.get_objects(generation=_ALL_GENERATIONS))
            gc.freeze()
            if self._all:
                self._aside, self._added = gc.get_freeze_count(), 0
            self._due = False

    def _has_grown(self) -> bool:
        """Return whether there is much more than when all was looked at."""
        if self._aside + self._added < GROWN * self._aside:
            return False
        # Python counts them one by one: 10 ms, in each worker and for each plan, if it were not so seldom.
        there = gc.get_freeze_count()
        self._added = there - self._aside
        return there >= GROWN * self._aside


WORKER_MEMORY = WorkerMemory()
"""That of this process."""
