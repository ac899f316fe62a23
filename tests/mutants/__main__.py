"""Make small faults in translator, rules and operators, one at a time, and count those found: ``make mutants``.

A mutant that survives means that a test is missing, or it is equivalent: then `equivalent.toml` has the argument.
"""

from __future__ import annotations

import difflib
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.mutants.mutant import Mutant
from tests.mutants.results import ArgumentError, Results, Score, digest_of, entry_for, equivalent_among
from tests.mutants.running import Run, SuiteError, workshop
from tests.mutants.sampling import all_mutants, drawn
from tests.mutants.suite import LONGEST_SECONDS, arguments

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
RESULTS = ROOT / ".mutants" / "results.json"


@click.command()
@click.option("--count", default=200, show_default=True, help="Number of mutants.")
@click.option("--seed", default=1, show_default=True, help="Seed of the choice.")
@click.option("--workers", default=2, show_default=True, help="Mutants at a time.")
@click.option(
    "--longest",
    default=LONGEST_SECONDS,
    show_default=True,
    help="Seconds of a core that the suite may take on the unchanged source; a busy machine counts more of them.",
)
@click.option("--fresh", is_flag=True, help="Repeat those with a known outcome, too.")
@click.option("--show", is_flag=True, help="Show them only.")
def main(count: int, seed: int, workers: int, longest: float, *, fresh: bool, show: bool) -> None:
    """Count the mutants that the tests find."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True)
    by_area = drawn(ROOT, seed, count)
    chosen = [mutant for mutants in by_area.values() for mutant in mutants]
    if show:
        for mutant in chosen:
            console.print(_shown(mutant), markup=False)
        return
    try:
        arguments_by_identity = equivalent_among(
            (each for area in all_mutants(ROOT).values() for each in area), EQUIVALENT
        )
    except ArgumentError as error:
        raise click.ClickException(f"{EQUIVALENT.name}: {error}") from None
    results = Results(RESULTS, ROOT, digest_of(_suite_files()))
    missing = [mutant for mutant in chosen if fresh or results.outcome(mutant) is None]
    console.print(f"{len(chosen)} mutants of seed {seed}, {len(chosen) - len(missing)} of them known from earlier runs")
    if missing:
        areas = {mutant.identity: area for area, mutants in by_area.items() for mutant in mutants}
        try:
            _run_all(missing, areas, results, workers, longest, console)
        except SuiteError as error:
            raise click.ClickException(str(error)) from None
        except KeyboardInterrupt:
            console.print("stopped; the same command continues from here")
            sys.exit(130)
    outcomes = {mutant.identity: results.outcome(mutant) or "" for mutant in chosen}
    for mutant in chosen:
        if outcomes[mutant.identity] == "survived" and mutant.identity not in arguments_by_identity:
            console.print(_shown(mutant), markup=False)
            console.print(entry_for(mutant) + "\n", markup=False)
    for area, mutants in by_area.items():
        own = {mutant.identity: outcomes[mutant.identity] for mutant in mutants}
        console.print(f"{area + ':':<12} {_counts(Score.of(own, arguments_by_identity))}")
    score = Score.of(outcomes, arguments_by_identity)
    console.print(f"{'all:':<12} {_counts(score)}")
    sys.exit(0 if score.good else 1)


def _suite_files() -> list[Path]:
    tests = ROOT / "tests"
    return sorted(
        [
            *(tests / "cluster").rglob("*.py"),
            tests / "test_docstrings.py",
            *(tests / "mutants" / f"{name}.py" for name in ("suite", "shortening", "seeded_oracles")),
        ]
    )


def _command(area: str | None = None) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments(area)]


def _run_all(
    mutants: list[Mutant], areas: Mapping[str, str], results: Results, workers: int, longest: float, console: Console
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        workshop(ROOT, _command()) as shop,
        Progress(*columns, TimeRemainingColumn(), console=console) as progress,
        ThreadPoolExecutor(workers) as pool,
    ):
        task = progress.add_task("the suite as it is", total=len(mutants))
        seconds, cpu = shop.prepare(workers, longest)
        console.print(f"the suite takes {seconds:.0f} s, {cpu:.0f} s of a core")
        progress.update(task, description="mutants")
        running: dict[Future[Run], Mutant] = {
            pool.submit(shop.run, mutant, _command(areas[mutant.identity])): mutant for mutant in mutants
        }
        try:
            while running:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    results.add(running.pop(done), done.result())
                    progress.advance(task)
        finally:
            for each in running:
                each.cancel()
            shop.stop()


def _shown(mutant: Mutant) -> str:
    source = (ROOT / mutant.file).read_bytes()
    before, after = source.decode().splitlines(), mutant.applied(source).decode().splitlines()
    changed = [line for line in difflib.unified_diff(before, after, lineterm="", n=0) if line[:3] not in {"---", "+++"}]
    return "\n".join([f"{mutant.file}:{mutant.line(source)} {mutant.where} ({mutant.operator})", *changed[1:]])


def _counts(score: Score) -> str:
    words = ", ".join(f"{score.counts.get(each, 0)} {each}" for each in ("killed", "timeout", "survived", "equivalent"))
    return f"{words}; {score.share_killed:.1%} found"


if __name__ == "__main__":
    main()
