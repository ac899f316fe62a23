"""Schedules are run, each in a process of its own, and what is wrong is collected."""

from __future__ import annotations

import os
import selectors
import shutil
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.forked import Apart, EndedError, apart
from tests.simulation.oracles import violations
from tests.simulation.preparing import folder_in_memory
from tests.simulation.process_folders import own_prefix, remove_stale_folders
from tests.simulation.violations import Violation
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.simulation.schedules import Schedule
    from tests.simulation.world import Cluster

    MakeCluster = Callable[[World, Path], Cluster]

PURPOSE = "fjord-simulation"
"""Of the folders in memory: their names begin with it."""
LONGEST_SECONDS = 120
"""Of processor time for one schedule."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a schedule came to.

    Parameters
    ----------
    schedule
        That was run.
    violations
        What was wrong.
    happened
        Faults by kind, of those that found something to go wrong.
    seconds, work_seconds
        Simulated time, and processor time.
    callbacks, trace
        How many callbacks ran, and a number made of what ran when and of all bytes that arrived.
    """

    schedule: Schedule
    violations: tuple[Violation, ...]
    happened: dict[str, int]
    seconds: float = 0.0
    work_seconds: float = 0.0
    callbacks: int = 0
    trace: int = 0


def run(schedule: Schedule, make_cluster: MakeCluster | None = None) -> Outcome:
    """Run a schedule in a process of its own."""
    try:
        return apart(lambda: _run(schedule, make_cluster), longest_seconds=LONGEST_SECONDS)
    except EndedError as error:
        return _ended(schedule, error)


def run_many(
    schedules: Iterable[Schedule],
    *,
    workers: int,
    until: float | None = None,
    make_cluster: MakeCluster | None = None,
) -> Iterator[Outcome]:
    """Run schedules, some at a time, and yield each outcome as it comes; none begins after `until`, if that is set."""
    waiting = iter(schedules)
    running: dict[int, tuple[Schedule, Apart[Outcome]]] = {}
    processors = sorted(os.sched_getaffinity(0))
    remove_leftovers()
    with selectors.DefaultSelector() as selector, _ended_at_last(running):
        while True:
            while len(running) < workers and (until is None or time.monotonic() < until):
                schedule = next(waiting, None)
                if schedule is None:
                    break
                work = _begin(schedule, make_cluster, _least_used(processors, running))
                selector.register(work.reading, selectors.EVENT_READ)
                running[work.reading] = schedule, work
            if not running:
                return
            for key, _ in selector.select():
                selector.unregister(key.fileobj)
                schedule, work = running.pop(key.fd)
                try:
                    outcome = work.result()
                except EndedError as error:
                    outcome = _ended(schedule, error)
                yield outcome


@contextmanager
def _ended_at_last(running: dict[int, tuple[Schedule, Apart[Outcome]]]) -> Iterator[None]:
    """End what still runs when it is waited for no more, and remove what it leaves."""
    try:
        yield
    finally:
        for _, work in running.values():
            work.end()
        remove_leftovers()


def remove_leftovers() -> None:
    """Remove the folders of processes that have been killed."""
    remove_stale_folders(PURPOSE, folder_in_memory())


def _least_used(processors: Sequence[int], running: Mapping[int, tuple[Schedule, Apart[Outcome]]]) -> int:
    """Return the processor on which the fewest schedules run."""
    used = Counter(work.processor for _, work in running.values())
    return min(processors, key=lambda each: used[each])


def _begin(schedule: Schedule, make_cluster: MakeCluster | None, processor: int) -> Apart[Outcome]:
    return Apart(lambda: _run(schedule, make_cluster), longest_seconds=LONGEST_SECONDS, processor=processor)


def _ended(schedule: Schedule, error: EndedError) -> Outcome:
    return Outcome(schedule, (Violation("wrong", str(error)),), {})


def _run(schedule: Schedule, make_cluster: MakeCluster | None) -> Outcome:
    began = time.process_time()
    folder = Path(tempfile.mkdtemp(prefix=own_prefix(PURPOSE, os.getpid()), dir=folder_in_memory()))
    try:
        world = World(schedule, folder, make_cluster)
        world.loop.run_until_complete(world.run())
        found = tuple(violations(world))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    worked = time.process_time() - began
    return Outcome(schedule, found, dict(world.happened), world.seconds, worked, world.loop.callbacks, world.loop.trace)
