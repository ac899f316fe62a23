"""Random inputs behind the decoders, each with a limit of processor time: ``make fuzz``.

An input is refused with one of our own errors, or accepted; anything else that is raised is a fault, and so is any step
that takes longer than its limit, also when its input is repeated in a process of its own. To repeat an input:
``python -m tests.fuzz --only fleet/1/77``.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from itertools import count
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from protocols.event_log import configure_logging
from tests.fuzz.measuring import Tally, run_input, run_inputs
from tests.fuzz.repeating import confirm
from tests.fuzz.targets import all_targets
from tests.minutes import Minutes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fuzz.measuring import Target

DEFAULT_SEED = 1
MOST_SHOWN = 5
"""Findings of a target that are shown."""


@click.command()
@click.option("--minutes", type=Minutes(), default=10.0, show_default=True, help="Time for all targets together.")
@click.option("--seed", default=DEFAULT_SEED, show_default=True, help="Seed of the inputs.")
@click.option("--target", "names", multiple=True, help="Only this target; may be given several times.")
@click.option("--only", multiple=True, help="Only the input of this name; may be given several times.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def main(minutes: float, seed: int, names: tuple[str, ...], only: tuple[str, ...], *, as_json: bool) -> None:
    """Try random inputs on everything that reads some from outside."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configure_logging("critical")
    targets = all_targets()
    unknown = {*names, *(each.partition("/")[0] for each in only)} - targets.keys()
    if unknown:
        raise click.UsageError(f"there is no target {min(unknown)!r}; targets are {', '.join(targets)}")
    tallies: dict[str, Tally] = {}
    if only:
        for each in only:
            name = each.partition("/")[0]
            run_input(targets[name], each, tallies.setdefault(name, Tally()))
    else:
        chosen = [targets[name] for name in dict.fromkeys(names)] or list(targets.values())
        tried(chosen, seed, minutes * 60 / len(chosen), tallies, Console(stderr=True, quiet=as_json))
        for tally in tallies.values():
            confirm(tally)
    if as_json:
        click.echo(json.dumps(report(tallies)))
    else:
        show(tallies)
    sys.exit(any(each.findings for each in tallies.values()))


def tried(targets: list[Target], seed: int, seconds: float, tallies: dict[str, Tally], console: Console) -> None:
    """Give each target its time; Ctrl-C ends all, and what was found is shown."""
    columns = (TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.fields[inputs]:>8,} inputs"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        try:
            for target in targets:
                tally = tallies[target.name] = Tally()
                task = progress.add_task(target.name, total=seconds, inputs=0)
                began = time.monotonic()
                for each in run_inputs(target, (f"{target.name}/{seed}/{number}" for number in count()), tally):
                    passed = time.monotonic() - began
                    progress.update(task, completed=min(passed, seconds), inputs=each.inputs)
                    if passed > seconds:
                        break
        except KeyboardInterrupt:
            console.print("interrupted")


def report(tallies: Mapping[str, Tally]) -> dict[str, object]:
    """Return what came of each target, as JSON."""
    return {
        name: {
            "inputs": each.inputs, "steps": each.steps, "refused": each.refused, "foreign_errors": each.foreign,
            "over_limit": each.over_limit, "slowest_s": round(each.slowest_seconds, 4), "slowest": each.slowest,
            "findings": [[found.input, found.what] for found in each.findings],
            "slow_once": [[found.input, found.what] for found in each.slow_once],
        }
        for name, each in tallies.items()
    }  # fmt: skip


def show(tallies: Mapping[str, Tally]) -> None:
    """Print what came of each target, and its first findings."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table("target", "inputs", "steps", "refused", "other errors", "over limit", "slowest step", box=None)
    for name, each in tallies.items():
        slowest = f"{each.slowest_seconds * 1000:.0f} ms"
        cells = (each.inputs, each.steps, each.refused, each.foreign, each.over_limit)
        table.add_row(name, *(f"{cell:,}" for cell in cells), slowest)
    console.print(table)
    for each in tallies.values():
        for found in each.findings[:MOST_SHOWN]:
            console.print(f"\n{found.input}: {found.what}\n{found.detail}", markup=False)
        for found in each.slow_once:
            console.print(f"{found.input}: {found.what}; not so when it was repeated", markup=False)
    inputs = sum(each.inputs for each in tallies.values())
    foreign, over = (sum(getattr(each, kind) for each in tallies.values()) for kind in ("foreign", "over_limit"))
    console.print(f"{inputs:,} inputs, {foreign} errors other than our own, {over} over their limit")


if __name__ == "__main__":
    main()
