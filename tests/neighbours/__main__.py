"""An owner does its worst beside a victim, whose answers must stay exact and in time: ``make neighbours``.

To repeat one attack: ``python -m tests.neighbours --only "columns/3,000 STDDEV"``.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from protocols.errors import FjordError
from protocols.event_log import configure_logging
from tests.neighbours.attacks import Attack, chosen
from tests.neighbours.deployment import Deployment
from tests.neighbours.owner import Answered
from tests.neighbours.running import Outcome, carried_out
from tests.neighbours.table import as_json, table, totals, verdict
from tests.neighbours.victim import Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@click.command()
@click.option("--only", multiple=True, help="Only attacks whose names contain this; may be given several times.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="For how long each attack is kept up; by default 12 s, or a little more.",
)
@click.option("--json", "json_only", is_flag=True, help="Print one JSON array and nothing else.")
@click.option("--show", is_flag=True, help="Show the attacks only.")
def main(only: tuple[str, ...], *, seconds: float | None, json_only: bool, show: bool) -> None:
    """Carry out attacks beside a victim."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configure_logging("critical")
    attacks = [each if seconds is None else replace(each, seconds=seconds) for each in chosen(only)]
    if not attacks:
        raise click.UsageError(f"no attack has {' or '.join(map(repr, only))} in its name; --show lists them")
    if show:
        for each in attacks:
            click.echo(f"{each.name}: {len(each.statements)} {each.way}")
        return
    outcomes: list[Outcome] = []
    try:
        _carry_out(attacks, outcomes, Console(stderr=True, quiet=json_only, highlight=False, soft_wrap=True))
    except KeyboardInterrupt:
        click.echo(f"interrupted after {len(outcomes)} of {len(attacks)} attacks", err=True)
    if json_only:
        click.echo(json.dumps(as_json(outcomes), indent=1))
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else 300).print(table(outcomes))
        for line in totals(outcomes):
            click.echo(line)
    sys.exit(0 if len(outcomes) == len(attacks) and all(each.held for each in outcomes) else 1)


def _carry_out(attacks: list[Attack], outcomes: list[Outcome], console: Console) -> None:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("start", total=len(attacks))
        while len(outcomes) < len(attacks):
            done = len(outcomes)
            for outcome in _next_outcomes(attacks[done:], lambda name: progress.update(task, description=name)):
                outcomes.append(outcome)
                progress.advance(task)
                console.print(f"{outcome.attack.name}: {verdict(outcome)}, {outcome.seen.median_s:.2f} s", markup=False)
                for problem in outcome.problems:
                    console.print(f"  {problem}", markup=False)


def _next_outcomes(attacks: list[Attack], shown: Callable[[str], None]) -> Iterator[Outcome]:
    """Carry out attacks beside parts of their own, up to the first after which these are not as before."""
    folder = Path(tempfile.mkdtemp(prefix="fjord-neighbours-"))
    shown("start")
    carried = 0
    try:
        with Deployment(folder) as deployment:
            for attack in attacks:
                shown(attack.name)
                outcome = carried_out(attack, deployment)
                carried += 1
                yield outcome
                if not deployment.is_calm():
                    return
    except (FjordError, httpx.HTTPError) as error:
        if not carried:
            raise
        seen = Seen(1, 1, 0, math.inf, math.inf)
        yield Outcome(attacks[carried], Answered(), (), seen, (f"{type(error).__name__}: {error}",))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
