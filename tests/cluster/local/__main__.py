"""Random migrations on the local engine, compared with plans that run alone: ``make migrations``.

Worker processes draw pairs of plans, streams, instants and restarts; the seed of each decides everything. The first
that is wrong is printed with its seed, and ends it. However it ends, it prints what has been done.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.cluster.local.judged_migrations import Outcome, outcomes
from tests.cluster.local.migrating import INSTANTS

AT_ONCE = 5
"""Migrations between two looks at what came of them."""
SPANS = {span: f"T < {span}" for span in (30, 60, INSTANTS)}
"""Where in the streams the instant was; it may be behind them, too."""


@click.command()
@click.option("--migrations", type=click.IntRange(min=1), default=10_000, show_default=True, help="How many.")
@click.option("--seed", "first_seed", type=int, default=None, help="Where to begin; drawn and printed if not given.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes.")
def main(migrations: int, first_seed: int | None, workers: int) -> None:
    """Let queries go on with other plans in the middle of random streams, and compare every snapshot."""
    first = secrets.randbelow(1_000_000_000) if first_seed is None else first_seed
    click.echo(f"seed {first}: to see the same again, --seed {first}")
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # its tables are small, and other workers use the other cores
    began, found = time.monotonic(), list[Outcome]()
    columns = (TextColumn("{task.completed:,} migrations"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
    stopped = False
    with pool, Progress(*columns) as progress:
        task = progress.add_task("migrations", total=migrations)
        begins = range(first, first + migrations, AT_ONCE)
        counts = [min(AT_ONCE, first + migrations - begin) for begin in begins]
        try:
            for done in pool.map(outcomes, begins, counts):
                found += done
                progress.advance(task, len(done))
                if done[-1].wrong is not None:
                    break
        except KeyboardInterrupt:
            stopped = True
        pool.shutdown(wait=False, cancel_futures=True)
    _print(found)
    wrong = next((each.wrong for each in found if each.wrong is not None), None)
    if wrong is not None:
        raise click.ClickException(wrong)
    seconds = time.monotonic() - began
    of_all = f" of {migrations:,}, and was stopped" if stopped else ""
    click.echo(f"{len(found):,} migrations{of_all} in {seconds:.0f} s: every snapshot as with one plan")


def _print(found: Iterable[Outcome]) -> None:
    """Print what came of the migrations, by kind of plans."""
    kinds: dict[str, Counter[str]] = {}
    for each in found:
        counts = kinds.setdefault(each.kind, Counter())
        span = next((name for span, name in SPANS.items() if each.at_us < span), "later")
        counts.update(("migrations", each.way, span))
        counts.update({"rows fused": each.fused, "rows cut": each.left})
    table = Table(box=None)
    headings = ("migrations", "whole", "cut", "fused", "rows fused", "rows cut", *SPANS.values(), "later")
    for heading in ("plans", *headings):
        table.add_column(heading, justify="left" if heading == "plans" else "right")
    for name, counts in sorted(kinds.items()):
        table.add_row(name.replace("_", " "), *(f"{counts[heading]:,}" for heading in headings))
    total = sum(kinds.values(), Counter[str]())
    table.add_row("all", *(f"{total[heading]:,}" for heading in headings))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
