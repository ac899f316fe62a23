"""Plant one fault after the other in the product, and see how soon the simulation finds it: ``make planted``."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import click

from tests.simulation import preparing


class Found(NamedTuple):
    """The seed that found a plant, after how many runs and seconds of processor time, and what it saw."""

    seed: int | None
    runs: int
    seconds: float
    violation: str


def search(plant: Callable[[], None], minutes: float, most: int) -> Found:
    """Run one seed after the other until one finds a violation."""
    from tests.simulation.cluster_runs import Run
    from tests.simulation.forked import EndedError, apart

    def work(seed: int) -> list[str]:
        plant()
        return (
            Run(str(seed), minutes, preparing.folder_in_memory() / f"fjord-planted-{os.getppid()}").outcome().violations
        )

    before = _seconds()
    for seed in range(1, most + 1):
        try:
            violations = apart(partial(work, seed))
        except EndedError as error:
            violations = [str(error).strip().splitlines()[-1]]
        if violations:
            return Found(seed, seed, _seconds() - before, violations[0])
    return Found(None, most, _seconds() - before, "")


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@click.command()
@click.option("--minutes", type=float, default=4.0, show_default=True, help="Simulated time of each run.")
@click.option("--most", type=int, default=60, show_default=True, help="Runs for one plant.")
@click.option("--only", default="", help="Plants whose names contain this.")
def planted(minutes: float, most: int, only: str) -> None:
    """Plant each fault; ends with 1 if one was not found, or something was found without any."""
    preparing.prepare()
    from tests.simulation.planted.cluster_plants import PLANTS

    missed = 0
    for name, promise, plant in PLANTS:
        if only not in name:
            continue
        found = search(plant, minutes, most)
        missed += found.seed is None
        where = "NOT FOUND" if found.seed is None else f"seed {found.seed}"
        click.echo(f"{name:50} {where:10} {found.runs:3} runs {found.seconds:6.1f} s  {found.violation[:110]}")
        click.echo(f"{'':4}{promise}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    preparing.fix_hashes("tests.simulation.planted")
    planted()
