"""What a worker holds for long is kept out of Spark's way.

After every task a Python worker of Spark collects garbage, and looks at all it holds for that: libraries, plans, tables
of relations. On two cores that took half of the processors' time. Once set aside, what stays is looked at no more.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable
from typing import Literal

_ALL_GENERATIONS = 2


class WorkerMemory:
    """Sets aside, with the next collection of all garbage, everything that this leaves.

    Spark's own collection is made use of, and there is none besides: it comes when the task's answer is on its way.
    """

    def __init__(self) -> None:
        self._built: Hashable = None
        self._due = False

    def keep(self, built: Hashable) -> None:
        """Say what this process has built to keep; if that is something else than the last time, it is set aside."""
        if built != self._built:
            self._built, self._due = built, True
        if self._around_collection not in gc.callbacks:
            gc.callbacks.append(self._around_collection)

    def _around_collection(self, phase: Literal["start", "stop"], details: dict[str, int]) -> None:
        if not self._due or details["generation"] != _ALL_GENERATIONS:
            return
        if phase == "start":
            gc.unfreeze()  # what was set aside before may be garbage by now
        else:
            gc.freeze()
            self._due = False


WORKER_MEMORY = WorkerMemory()
"""That of this process."""
