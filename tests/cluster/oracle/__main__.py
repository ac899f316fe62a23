"""Search for a query whose answer is not what it means: ``make oracle``.

Worker processes draw random texts, random plans, and random queries over relations that change; they run them as they
are and rewritten, over random streams, and compare every snapshot with definitions evaluated by DuckDB. The seed
decides everything; a mismatch prints the smallest text and streams found, and ends it. So does Ctrl-C, with what has
been proven until then.
"""

from __future__ import annotations

import secrets
import signal
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.cluster.oracle.proving import MismatchError
from tests.cluster.oracle.searching import Searched, search_round
from tests.cluster.oracle.strategies import KINDS
from tests.cluster.oracle.text_coverage import Drawn
from tests.minutes import Minutes

USUAL_PAIRS = 20_000
USUAL_MINUTES = 10.0
COLUMNS = 118
"""Of what is printed."""


@click.command()
@click.option("--pairs", type=click.IntRange(min=1), default=None, help="Stop after so many query-stream pairs.")
@click.option("--minutes", type=Minutes(), default=None, help="Stop after so long.")
@click.option("--seed", "first_seed", type=int, default=None, help="Where to begin; drawn and printed if not given.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes.")
def main(pairs: int | None, minutes: float | None, first_seed: int | None, workers: int) -> None:
    """Compare random queries over random streams with their definition, evaluated by DuckDB.

    Without limits it stops after 20,000 pairs or 10 minutes.
    """
    if pairs is None and minutes is None:
        pairs, minutes = USUAL_PAIRS, USUAL_MINUTES
    first = secrets.randbelow(1_000_000) if first_seed is None else first_seed
    click.echo(f"seed {first}: to see the same again, --seed {first}")
    began = time.monotonic()
    total, mismatch, stopped = _search(first, pairs, minutes, workers)
    _report(total, time.monotonic() - began, 0 if mismatch is None else 1)
    if mismatch is not None:
        click.echo(mismatch)
        raise SystemExit(1)
    if total.texts.texts:
        _report_constructs(total.texts.drawn)
    if stopped:
        click.echo("interrupted")
        raise SystemExit(130)
    if pairs is not None and total.pairs < pairs:
        click.echo(f"only {total.pairs:,} of {pairs:,} pairs within {minutes:g} minutes")
        raise SystemExit(2)


def _search(first: int, pairs: int | None, minutes: float | None, workers: int) -> tuple[Searched, str | None, bool]:
    """Return what has been proven, the first mismatch, and whether it was interrupted."""
    began, total = time.monotonic(), Searched()
    mismatch: str | None = None
    stopped = False
    columns = (TextColumn("{task.fields[done]:,} query-stream pairs"), BarColumn(), TimeElapsedColumn())
    following = count(first)

    def share() -> float:
        shares = [total.pairs / pairs] if pairs else []
        shares += [(time.monotonic() - began) / (minutes * 60)] if minutes else []
        return max(shares)

    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
    running: set[Future[Searched]] = set()
    try:
        with Progress(*columns) as progress:
            task = progress.add_task("pairs", total=1.0, done=0)
            running = {pool.submit(search_round, next(following)) for _ in range(workers)}
            while running:
                finished, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for each in finished:
                    total += each.result()
                    if share() < 1:
                        running.add(pool.submit(search_round, next(following)))
                progress.update(task, completed=min(share(), 1.0), done=total.pairs)
    except MismatchError as found:
        mismatch = str(found)
    except KeyboardInterrupt:
        stopped = True
    _end(pool)
    return total, mismatch, stopped


def _end(pool: ProcessPoolExecutor) -> None:
    """Let workers go, whatever they are at."""
    workers = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()


def _report(total: Searched, seconds: float, mismatches: int) -> None:
    texts, plans, relations = total.texts, total.plans, total.relations
    click.echo(f"{total.pairs:,} pairs in {seconds:.0f} s, mismatches: {mismatches}")
    click.echo(
        f"texts: {texts.texts:,} translated, {texts.rewritten:,} of them rewritten; {texts.pairs:,} pairs, "
        f"{texts.answering:,} with an answer, {texts.paned:,} of these from panes; "
        f"{texts.ambiguous:,} left out: which tuples count is arbitrary"
    )
    for reason, times in texts.refused.most_common():
        click.echo(f"  {times:,} refused: {reason.partition(' (')[0]}")
    click.echo(
        f"plans: {plans.plans:,}, {plans.rewritten:,} of them rewritten by {len(plans.rules)} different rules; "
        f"{plans.pairs:,} pairs; {plans.ambiguous:,} left out: which tuples count is arbitrary"
    )
    for reason, times in plans.unsupported.most_common():
        click.echo(f"  {times:,} refused: {reason.partition(' (')[0]}")
    click.echo(
        f"  pairs by operator: {', '.join(f'{kind.__name__} {plans.by_kind[kind.__name__]:,}' for kind in KINDS)}"
    )
    click.echo(
        f"queries over relations that change: {relations.queries:,} in {relations.histories:,} histories; "
        f"{relations.answering:,} had answers, {relations.dropped:,} were dropped, {relations.failed:,} met a failure"
    )


def _report_constructs(drawn: Drawn) -> None:
    counts = drawn.counts()
    click.echo(f"constructs drawn in texts, and in how many places: {len(counts)}")
    line = " "
    for name, times in counts.items():
        more = f" {name} {times:,};"
        if len(line) + len(more) > COLUMNS:
            click.echo(line)
            line = " "
        line += more
    click.echo(line.rstrip(";"))
    never = [name for name, times in counts.items() if not times]
    click.echo(f"never drawn: {', '.join(never) if never else 'nothing'}")


if __name__ == "__main__":
    main()
