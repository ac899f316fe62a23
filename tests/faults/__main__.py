"""Run schedules of faults over real processes, and check Fjord's guarantees: ``make test-faults``.

A seed is one schedule. The same processes run several schedules; after one that fails, new ones are started for the
next, and the logs of the old ones are kept.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import duckdb
import httpx
from deltalake.exceptions import DeltaError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from protocols.errors import FjordError
from protocols.event_log import configure_logging
from tests.faults.running import Outcome, run_group
from tests.faults.schedules import Schedule, drawn, grouped
from tests.faults.table import as_json, line, table, totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_SCHEDULES = 50
DEFAULT_SEED = 1
LARGEST_GROUP = 10
"""The most schedules for the same processes."""


@click.command()
@click.option("--schedules", "count", default=DEFAULT_SCHEDULES, show_default=True, help="Number of schedules.")
@click.option(
    "--seed", default=DEFAULT_SEED, show_default=True, help="Seed of the first schedule; the others count up."
)
@click.option("--only", type=int, multiple=True, help="Only the schedule of this seed; may be given several times.")
@click.option("--json", "path", type=click.Path(path_type=Path), default=None, help="Write outcomes to this file, too.")
@click.option("--show", is_flag=True, help="Show the schedules only.")
def main(count: int, seed: int, only: tuple[int, ...], path: Path | None, *, show: bool) -> None:
    """Run schedules of faults over real parts."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configure_logging("error")
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)
    seeds = only or range(seed, seed + count)
    schedules = [drawn(each) for each in seeds]
    console.print(f"seeds {', '.join(map(str, only)) or f'{seed} to {seed + count - 1}'}: to repeat one, --only SEED")
    if show:
        for each in schedules:
            console.print(f"{each.seed} {each.setting}: {each}", markup=False)
        return
    outcomes: list[Outcome] = []
    stopped = False
    try:
        _run_all(schedules, outcomes, console)
    except KeyboardInterrupt:
        stopped = True
    outcomes.sort(key=lambda each: each.schedule.seed)
    console.print(table(outcomes))
    for each in totals(outcomes):
        console.print(each, markup=False)
    if path is not None:
        path.write_text(json.dumps(as_json(outcomes), indent=1), encoding="utf-8")
    if stopped:
        console.print(f"interrupted after {len(outcomes)} of {len(schedules)} schedules")
        sys.exit(130)
    sys.exit(1 if any(each.problems for each in outcomes) else 0)


def _run_all(schedules: list[Schedule], outcomes: list[Outcome], console: Console) -> None:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("start", total=len(schedules))

        def shown(schedule: Schedule, what: str) -> None:
            progress.update(task, description=f"seed {schedule.seed}: {what}")

        for group in grouped(schedules, LARGEST_GROUP):
            left = group
            while left:
                done = 0
                for outcome in _run_some(left, shown):
                    done += 1
                    outcomes.append(outcome)
                    progress.advance(task)
                    console.print(line(outcome), markup=False)
                    for problem in outcome.problems:
                        console.print(f"  {problem}", markup=False)
                    if outcome.logs is not None:
                        console.print(f"  logs: {outcome.logs}", markup=False)
                left = left[done:]


def _run_some(schedules: list[Schedule], shown: Callable[[Schedule, str], None]) -> Iterator[Outcome]:
    """Run schedules over parts of their own, up to the first that fails."""
    folder = Path(tempfile.mkdtemp(prefix="fjord-faults-"))
    number, failed = 0, True
    try:
        try:
            for outcome in run_group(schedules, folder, shown):
                number += 1
                failed = bool(outcome.problems)
                yield replace(outcome, logs=folder / "logs") if failed else outcome
        except (FjordError, httpx.HTTPError, OSError, duckdb.Error, DeltaError) as error:
            failed = True
            problem = f"{type(error).__name__}: {error}"
            yield Outcome(schedules[number], 0.0, None, 0, (problem,), folder / "logs")
    finally:
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
