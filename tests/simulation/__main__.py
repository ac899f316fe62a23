"""Run random schedules of a whole deployment in simulated time: ``make simulate``."""

from __future__ import annotations

import os
import pkgutil
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tests.minutes import Minutes
from tests.simulation import preparing
from tests.simulation.tally import Shown, Tally

if TYPE_CHECKING:
    from tests.simulation.running import MakeCluster, Outcome
    from tests.simulation.schedules import Schedule

DEFAULT_SEED = 1
INTERRUPTED = 130


@click.command()
@click.option(
    "--minutes", type=Minutes(), default=None, help="Run schedules for so long; 10 unless --schedules is given."
)
@click.option("--schedules", type=click.IntRange(1), default=None, help="Run so many.")
@click.option("--seed", type=int, default=DEFAULT_SEED, show_default=True, help="Of the first schedule.")
@click.option("--replay", type=int, default=None, help="Run the schedule of this seed alone.")
@click.option("--file", type=click.Path(path_type=Path, exists=True), default=None, help="Run the schedule of a file.")
@click.option("--shrink/--no-shrink", default=True, help="Whether a schedule that fails is made smaller.")
@click.option("--log", default=None, metavar="LEVEL", help="Show the event logs of all processes.")
@click.option("--cluster", default=None, metavar="MODULE:NAME", help="Makes the cluster; the real one unless given.")
@click.option("--stand-in", is_flag=True, help="Run a small cluster that only stores batches: four times as fast.")
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
def simulate(
    minutes: float | None,
    schedules: int | None,
    seed: int,
    replay: int | None,
    file: Path | None,
    shrink: bool,
    log: str | None,
    cluster: str | None,
    stand_in: bool,
    workers: int,
) -> None:
    """Run schedules, and check what is promised. Ends with 1 if anything was wrong or none ran, 130 after Ctrl-C."""
    preparing.prepare(log)
    make_cluster = None if stand_in else pkgutil.resolve_name(cluster) if cluster else _real_cluster()
    from tests.simulation.running import run_many
    from tests.simulation.schedules import Schedule, drawn

    if file is not None:
        wanted = iter([msgspec.json.decode(file.read_bytes(), type=Schedule)])
    elif replay is not None:
        wanted = iter([drawn(replay)])
    else:
        numbers = count(seed) if schedules is None else range(seed, seed + schedules)
        wanted = (drawn(each) for each in numbers)
    endless = file is None and replay is None and schedules is None
    until = time.monotonic() + (minutes or 10.0) * 60 if endless or minutes else None
    tally = Tally()
    with Shown(tally, until=until, schedules=schedules) as shown:
        try:
            for outcome in run_many(wanted, workers=workers, until=until, make_cluster=make_cluster):
                tally.add(outcome)
                if outcome.violations:
                    with shown.aside():
                        _show(outcome, make_cluster, shrink=shrink and file is None)
                shown.refresh()
        except KeyboardInterrupt:
            tally.interrupted = True
    for line in tally.lines():
        click.echo(line)
    sys.exit(INTERRUPTED if tally.interrupted else 1 if tally.failed or not tally.schedules else 0)


def _real_cluster() -> MakeCluster:
    """Return what makes a real cluster, and let schedules draw the faults that only that has."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from tests.simulation import cluster_fault_kinds
    from tests.simulation.deployed_cluster import DeployedCluster

    cluster_fault_kinds.install()
    return DeployedCluster


def _show(outcome: Outcome, make_cluster: MakeCluster | None, *, shrink: bool) -> None:
    seed = outcome.schedule.seed
    texts = "; ".join(f"{each.kind}: {each.what}" for each in outcome.violations)
    click.echo(f"FAILED seed {seed}: {texts}\n    again: python -m tests.simulation --replay {seed}")
    if shrink:
        found = _shrunk(outcome, make_cluster)
        file = Path(f"simulation-{seed}.json")
        file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
        click.echo(f"    smaller, in {file}: {', '.join(f'{each.kind} of {each.target}' for each in found.faults)}")


def _shrunk(outcome: Outcome, make_cluster: MakeCluster | None) -> Schedule:
    from tests.simulation.running import run
    from tests.simulation.shrinking import shrunk

    wrong = {each.alike for each in outcome.violations}
    return shrunk(
        outcome.schedule, lambda each: bool(wrong & {found.alike for found in run(each, make_cluster).violations})
    )


if __name__ == "__main__":
    preparing.fix_hashes()
    simulate()
