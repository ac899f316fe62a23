"""Compare eager, lazy and batched coalescing with their definition on random streams: ``make coalescing``."""

from __future__ import annotations

import secrets

import click

from tests.cluster.temporal.random_streams import compare, drawn


@click.command()
@click.option("--streams", type=click.IntRange(min=1), default=10_000, show_default=True, help="How many are drawn.")
@click.option("--seed", type=int, default=None, help="Where to begin; drawn and printed if not given.")
def main(streams: int, seed: int | None) -> None:
    """Draw streams with disorder, expiry and groups; compare the runs after every arrival."""
    first = secrets.randbelow(1_000_000) if seed is None else seed
    click.echo(f"seed {first}: to see the same again, --seed {first}")
    arrivals = 0
    for each in range(first, first + streams):
        stream = drawn(each)
        try:
            compare(stream)
        except AssertionError as mismatch:
            click.echo(f"the stream of seed {each} disagrees: {stream}\n{mismatch}")
            raise SystemExit(1) from mismatch
        arrivals += len(stream.samples)
    click.echo(f"{streams:,} streams, {arrivals:,} arrivals: eager, lazy, batched and brute force agree after each")


if __name__ == "__main__":
    main()
