"""Schedules are run, each in a process of its own, and what is wrong is collected."""

from __future__ import annotations

import selectors
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.forked import Apart, EndedError, apart
from tests.simulation.oracles import violations
from tests.simulation.preparing import folder_in_memory
from tests.simulation.violations import Violation
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.simulation.schedules import Schedule
    from tests.simulation.world import Cluster

    MakeCluster = Callable[[World, Path], Cluster]

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
        Faults by kind, of those that began.
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
    with selectors.DefaultSelector() as selector:
        running = 0
        while True:
            while running < workers and (until is None or time.monotonic() < until):
                schedule = next(waiting, None)
                if schedule is None:
                    break
                work = _begin(schedule, make_cluster)
                selector.register(work.reading, selectors.EVENT_READ, (schedule, work))
                running += 1
            if not running:
                return
            for key, _ in selector.select():
                schedule, work = key.data
                selector.unregister(key.fileobj)
                running -= 1
                try:
                    yield work.result()
                except EndedError as error:
                    yield _ended(schedule, error)


def _begin(schedule: Schedule, make_cluster: MakeCluster | None) -> Apart[Outcome]:
    return Apart(lambda: _run(schedule, make_cluster), longest_seconds=LONGEST_SECONDS)


def _ended(schedule: Schedule, error: EndedError) -> Outcome:
    return Outcome(schedule, (Violation("wrong", str(error)),), {})


def _run(schedule: Schedule, make_cluster: MakeCluster | None) -> Outcome:
    began = time.process_time()
    folder = Path(tempfile.mkdtemp(prefix="fjord-simulation-", dir=folder_in_memory()))
    try:
        world = World(schedule, folder, make_cluster)
        world.loop.run_until_complete(world.run())
        found = tuple(violations(world))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    worked = time.process_time() - began
    return Outcome(schedule, found, dict(world.happened), world.seconds, worked, world.loop.callbacks, world.loop.trace)
