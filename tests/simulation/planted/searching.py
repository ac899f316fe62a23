"""How soon a simulation finds a plant: seed after seed, several plants side by side."""

from __future__ import annotations

import os
import selectors
import shutil
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation import cluster_fault_kinds, running
from tests.simulation.cluster_runs import Run
from tests.simulation.deployed_cluster import DeployedCluster
from tests.simulation.forked import Apart, EndedError
from tests.simulation.planted.plant import Simulation
from tests.simulation.preparing import folder_in_memory
from tests.simulation.process_folders import own_prefix
from tests.simulation.schedules import drawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.planted.plant import Plant

PURPOSE = "fjord-planted"
"""Of the folders in memory: their names begin with it."""
CLUSTER_MINUTES = 4.0
"""Simulated time of a cluster among scripted proxies."""
SCHEDULE_SECONDS = 300.0
"""Simulated time in which faults happen to a deployment."""


class Found(NamedTuple):
    """What came of a plant.

    Parameters
    ----------
    plant
        Which.
    seed
        Of the run that found it; None if none did.
    runs, seconds
        How many there were, and the processor time that they took.
    violation
        What was seen.
    """

    plant: Plant
    seed: int | None
    runs: int
    seconds: float
    violation: str


@dataclass(slots=True)
class _Search:
    plant: Plant
    folder: Path
    work: Apart[tuple[list[str], float]]
    seed: int = 1
    seconds: float = 0.0


def search(plants: Iterable[Plant], *, most: int, workers: int) -> Iterator[Found]:
    """Yield what came of each plant as soon as it is known.

    Parameters
    ----------
    plants
        Those looked for.
    most
        Runs of each.
    workers
        Plants at a time.
    """
    waiting = deque(plants)
    with selectors.DefaultSelector() as selector:

        def begin(plant: Plant, seed: int, seconds: float) -> None:
            folder = Path(tempfile.mkdtemp(prefix=own_prefix(PURPOSE, os.getpid()), dir=folder_in_memory()))
            work = Apart(lambda: _run(plant, seed, folder), longest_seconds=running.LONGEST_SECONDS)
            selector.register(work.reading, selectors.EVENT_READ, _Search(plant, folder, work, seed, seconds))

        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < workers:
                begin(waiting.popleft(), 1, 0.0)
            for key, _ in selector.select():
                one: _Search = key.data
                selector.unregister(key.fileobj)
                violations, seconds = _ended(one)
                seconds += one.seconds
                if violations:
                    yield Found(one.plant, one.seed, one.seed, seconds, violations[0])
                elif one.seed == most:
                    yield Found(one.plant, None, most, seconds, "")
                else:
                    begin(one.plant, one.seed + 1, seconds)


def _ended(search: _Search) -> tuple[list[str], float]:
    try:
        return search.work.result()
    except EndedError as error:
        return [str(error).strip().splitlines()[-1]], 0.0
    finally:
        shutil.rmtree(search.folder, ignore_errors=True)


def _run(plant: Plant, seed: int, folder: Path) -> tuple[list[str], float]:
    """Return what a run with a plant violates, and the processor time that it took."""
    began = time.process_time()
    plant.plant()
    if plant.simulation is Simulation.CLUSTER:
        violations = Run(str(seed), CLUSTER_MINUTES, folder / "cluster").outcome().violations
    else:
        make_cluster = None
        if plant.simulation is Simulation.DEPLOYMENT:
            cluster_fault_kinds.install()
            make_cluster = DeployedCluster
        outcome = running._run(drawn(seed, SCHEDULE_SECONDS), make_cluster)
        violations = [f"{each.kind}: {each.what}" for each in outcome.violations]
    return violations, time.process_time() - began
