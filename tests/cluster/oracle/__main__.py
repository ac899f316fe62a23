"""Search for a query whose answer is not what it means: ``make oracle``.

Worker processes draw random plans and random streams, run them as they are and rewritten, and compare every snapshot
with the DuckDB definition; then random queries over streams and relations that change. The seed decides everything; a
mismatch prints the smallest streams found and ends it.
"""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.cluster.oracle.proving import MismatchError, Tally
from tests.cluster.oracle.relation_proving import RelationTally, search_relations
from tests.cluster.oracle.searching import search
from tests.cluster.oracle.strategies import KINDS

PLANS_PER_ROUND = 40
STREAM_SETS_PER_PLAN = 12
RELATION_QUERIES_PER_ROUND = 64


@click.command()
@click.option("--pairs", default=20_000, show_default=True, help="Stop after so many query-stream pairs.")
@click.option("--minutes", default=10.0, show_default=True, help="Stop after so long at the latest.")
@click.option("--seed", "first_seed", type=int, default=None, help="Where to begin; drawn and printed if not given.")
@click.option("--relation-queries", default=1000, show_default=True, help="Queries over streams and relations.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
def main(pairs: int, minutes: float, first_seed: int | None, relation_queries: int, workers: int) -> None:
    """Compare random queries over random streams with their definition, evaluated by DuckDB."""
    first = secrets.randbelow(1_000_000) if first_seed is None else first_seed
    click.echo(f"seed {first}: to see the same again, --seed {first}")
    began = time.monotonic()
    total = Tally()
    columns = (TextColumn("query-stream pairs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool, Progress(*columns) as progress:
        task = progress.add_task("pairs", total=pairs)
        following = iter(range(first, first + 10**9))
        running = {pool.submit(search, next(following), PLANS_PER_ROUND, STREAM_SETS_PER_PLAN) for _ in range(workers)}
        try:
            while running:
                done = next(as_completed(running))
                running.discard(done)
                total += done.result()
                progress.update(task, completed=min(total.pairs, pairs))
                if total.pairs < pairs and time.monotonic() - began < minutes * 60:
                    running.add(pool.submit(search, next(following), PLANS_PER_ROUND, STREAM_SETS_PER_PLAN))
        except MismatchError as mismatch:
            for each in running:
                each.cancel()
            click.echo(str(mismatch))
            raise SystemExit(1) from None
        _relations(pool, first, relation_queries)
    _report(total, time.monotonic() - began)
    if total.pairs < pairs:
        click.echo(f"only {total.pairs:,} of {pairs:,} pairs within {minutes:g} minutes")
        raise SystemExit(2)


def _relations(pool: ProcessPoolExecutor, first: int, queries: int) -> None:
    began, total = time.monotonic(), RelationTally()
    rounds = -(-queries // RELATION_QUERIES_PER_ROUND)
    try:
        for tally in pool.map(search_relations, range(first, first + rounds), [RELATION_QUERIES_PER_ROUND] * rounds):
            total += tally
    except MismatchError as mismatch:
        click.echo(str(mismatch))
        raise SystemExit(1) from None
    click.echo(
        f"{total.queries:,} queries over streams and relations, in {total.histories:,} histories, in "
        f"{time.monotonic() - began:.0f} s: no mismatch"
    )
    click.echo(f"  {total.answering:,} had answers, {total.dropped:,} were dropped, {total.failed:,} met a failure")


def _report(total: Tally, seconds: float) -> None:
    click.echo(f"{total.pairs:,} query-stream pairs of {total.plans:,} plans in {seconds:.0f} s: no mismatch")
    click.echo(f"  {total.rewritten:,} plans were rewritten, by {len(total.rules)} different rules")
    click.echo(f"  {total.ambiguous:,} pairs left out: a count window over equal stamps in no order has no one meaning")
    for reason, count in total.unsupported.most_common():
        click.echo(f"  {count:,} plans refused: {reason.partition(' (')[0]}")
    kinds = ", ".join(f"{kind.__name__} {total.by_kind[kind.__name__]:,}" for kind in KINDS)
    click.echo(f"  pairs by operator: {kinds}")


if __name__ == "__main__":
    main()
