"""Random migrations on the local engine, compared with plans that run alone: ``make migrations``.

Worker processes draw pairs of plans, streams, instants and restarts; the seed of each decides everything. The first
that is wrong is printed with its seed, and ends it.
"""

from __future__ import annotations

import secrets
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.cluster.local.migrating import first_wrong

AT_ONCE = 10
"""Migrations between two looks at what came of them."""


@click.command()
@click.option("--migrations", type=click.IntRange(min=1), default=10_000, show_default=True, help="How many.")
@click.option("--seed", "first_seed", type=int, default=None, help="Where to begin; drawn and printed if not given.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes.")
def main(migrations: int, first_seed: int | None, workers: int) -> None:
    """Let queries go on with other plans in the middle of random streams, and compare every snapshot."""
    first = secrets.randbelow(1_000_000_000) if first_seed is None else first_seed
    click.echo(f"seed {first}: to see the same again, --seed {first}")
    began = time.monotonic()
    columns = (TextColumn("{task.completed:,} migrations"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
    with pool, Progress(*columns) as progress:
        task = progress.add_task("migrations", total=migrations)
        begins = range(first, first + migrations, AT_ONCE)
        counts = [min(AT_ONCE, first + migrations - begin) for begin in begins]
        for wrong, count in zip(pool.map(first_wrong, begins, counts), counts, strict=True):
            if wrong is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                raise click.ClickException(wrong)
            progress.advance(task, count)
    click.echo(f"{migrations:,} migrations in {time.monotonic() - began:.0f} s: every snapshot as with one plan")


if __name__ == "__main__":
    main()
