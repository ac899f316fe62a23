"""Plant one fault after the other in the product, and see how soon a simulation finds it: ``make planted``."""

from __future__ import annotations

import os
import sys

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.simulation import preparing

CONTROL_RUNS = 5
"""Of each simulation, without any plant: nothing may be found."""


@click.command()
@click.option("--most", type=click.IntRange(1), default=60, show_default=True, help="Runs for one plant.")
@click.option("--only", default="", help="Plants whose names contain this.")
@click.option(
    "--control", type=click.IntRange(0), default=CONTROL_RUNS, show_default=True, help="Runs without a plant."
)
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
def planted(most: int, only: str, control: int, workers: int) -> None:
    """Plant each fault; ends with 1 if one was not found, or something was found without any."""
    preparing.prepare()
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from tests.simulation.planted.all_plants import PLANTS
    from tests.simulation.planted.plant import Plant, Simulation, nothing
    from tests.simulation.planted.searching import PURPOSE, Found, search
    from tests.simulation.preparing import folder_in_memory
    from tests.simulation.process_folders import remove_stale_folders

    console = Console(highlight=False, soft_wrap=True)
    chosen = [plant for plant in PLANTS if only in plant.name]
    if not chosen:
        names = "".join(f"\n  {plant.name}" for plant in PLANTS)
        raise click.UsageError(f"there is no plant with {only!r} in its name; plants are{names}")
    remove_stale_folders(PURPOSE, folder_in_memory())
    controls = [Plant(f"nothing in {each.value}", "nothing is found without a plant", each, nothing)
                for each in Simulation if any(plant.simulation is each for plant in chosen)]  # fmt: skip
    missed = wrong = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("planted", total=len(chosen) + bool(control) * len(controls))

        def show(found: Found, *, good: bool) -> None:
            plant = found.plant
            seed = "nothing" if found.seed is None else f"seed {found.seed}"
            console.print(
                f"{plant.name:48} {plant.simulation.value:10} {seed:8} {found.runs:3} runs {found.seconds:6.1f} s"
                f"  {'' if good else 'WRONG: '}{found.violation[:110]}",
                markup=False,
            )
            console.print(f"    {plant.promise}", markup=False)
            progress.advance(task)

        for found in search(controls if control else (), most=control, workers=workers):
            wrong += found.seed is not None
            show(found, good=found.seed is None)
        for found in search(chosen, most=most, workers=workers):
            missed += found.seed is None
            show(found, good=found.seed is not None)
    false = f", {wrong} found where nothing was planted" if wrong else ""
    console.print(f"{len(chosen)} planted, {len(chosen) - missed} found{false}")
    sys.exit(1 if missed or wrong else 0)


if __name__ == "__main__":
    preparing.fix_hashes("tests.simulation.planted")
    planted()
